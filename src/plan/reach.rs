//! Who comes before whom, asked in bulk.
//!
//! Most questions are answered by one pass over the graph that numbers it. Where that does not tell, a pass answers for 64
//! steps at a time, a bit for each; so thousands of questions about thousands of steps cost passes, not walks.

/// Whether `target` is one of `at`, or comes before one of them.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) target: usize,
    pub(super) at: Vec<usize>,
}

/// Answers questions about a graph given as the needs of each step and a topological order.
pub(super) fn answers(needs: &[Vec<usize>], order: &[usize], questions: &[Question]) -> Vec<bool> {
    if questions.is_empty() {
        return Vec::new();
    }
    let quick = Quick::new(needs, order);
    let mut answers = vec![false; questions.len()];
    let mut open = Vec::new();
    for (at, question) in questions.iter().enumerate() {
        match quick.answer(question) {
            Some(answer) => answers[at] = answer,
            None => open.push(at),
        }
    }
    let passed = pass(needs, order, &open.iter().map(|&at| &questions[at]).collect::<Vec<_>>());
    for (at, answer) in open.into_iter().zip(passed) {
        answers[at] = answer;
    }
    answers
}

/// What one pass over the graph tells of most questions: each step hangs below one of its needs, which makes trees whose
/// lines are lines of the graph; and whoever lies no deeper than another does not come after it.
struct Quick {
    depth: Vec<usize>,
    /// When a walk through the trees enters and leaves each step.
    entered: Vec<usize>,
    left: Vec<usize>,
}

impl Quick {
    fn new(needs: &[Vec<usize>], order: &[usize]) -> Quick {
        let count = needs.len();
        let mut quick = Quick { depth: vec![0; count], entered: vec![0; count], left: vec![0; count] };
        let mut below: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut roots = Vec::new();
        for &step in order {
            let deepest = needs[step].iter().copied().max_by_key(|&need| quick.depth[need]);
            match deepest {
                Some(need) => {
                    quick.depth[step] = quick.depth[need] + 1;
                    below[need].push(step);
                }
                None => roots.push(step),
            }
        }
        let mut time = 0;
        let mut open: Vec<(usize, bool)> = roots.into_iter().map(|step| (step, false)).collect();
        while let Some((step, through)) = open.pop() {
            time += 1;
            if through {
                quick.left[step] = time;
            } else {
                quick.entered[step] = time;
                open.push((step, true));
                open.extend(below[step].iter().map(|&step| (step, false)));
            }
        }
        quick
    }

    fn answer(&self, question: &Question) -> Option<bool> {
        let target = question.target;
        let above = |step: usize| self.entered[target] <= self.entered[step] && self.left[step] <= self.left[target];
        if question.at.iter().any(|&step| above(step)) {
            return Some(true);
        }
        let deeper = |step: usize| self.depth[step] > self.depth[target];
        if question.at.iter().any(|&step| deeper(step)) { None } else { Some(false) }
    }
}

/// Answers the rest, 64 targets at a time.
fn pass(needs: &[Vec<usize>], order: &[usize], questions: &[&Question]) -> Vec<bool> {
    let mut position = vec![0; needs.len()];
    for (place, &step) in order.iter().enumerate() {
        position[step] = place;
    }
    let mut by_target: Vec<usize> = (0..questions.len()).collect();
    by_target.sort_by_key(|&question| (position[questions[question].target], question));
    let mut targets: Vec<usize> = by_target.iter().map(|&question| questions[question].target).collect();
    targets.dedup();
    let mut answers = vec![false; questions.len()];
    let mut bits = vec![0_u64; needs.len()];
    let mut asked = by_target.into_iter().peekable();
    for batch in targets.chunks(u64::BITS as usize) {
        bits.fill(0);
        for (bit, &target) in batch.iter().enumerate() {
            bits[target] = 1 << bit;
        }
        for &step in &order[position[batch[0]]..] {
            bits[step] = needs[step].iter().fold(bits[step], |bits_so_far, &need| bits_so_far | bits[need]);
        }
        for (bit, &target) in batch.iter().enumerate() {
            while let Some(question) = asked.next_if(|&question| questions[question].target == target) {
                answers[question] = questions[question].at.iter().any(|&step| bits[step] & (1 << bit) != 0);
            }
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn walk(needs: &[Vec<usize>], from: usize, target: usize) -> bool {
        from == target || needs[from].iter().any(|&need| walk(needs, need, target))
    }

    proptest! {
        #[test]
        fn answers_are_those_of_a_walk(edges in prop::collection::vec((0_usize..12, 0_usize..12), 0..20), asked in prop::collection::vec((0_usize..12, prop::collection::vec(0_usize..12, 0..3)), 0..200)) {
            let mut needs = vec![Vec::new(); 12];
            for (a, b) in edges {
                if a != b {
                    needs[a.max(b)].push(a.min(b));
                }
            }
            let order: Vec<usize> = (0..12).collect();
            let questions: Vec<Question> = asked.into_iter().map(|(target, at)| Question { target, at }).collect();
            let expected: Vec<bool> = questions.iter().map(|question| question.at.iter().any(|&step| walk(&needs, step, question.target))).collect();
            prop_assert_eq!(answers(&needs, &order, &questions), expected);
        }
    }

    #[test]
    fn more_targets_than_one_pass_holds() {
        let needs: Vec<Vec<usize>> = (0..200_usize).map(|step| step.checked_sub(1).into_iter().collect()).collect();
        let order: Vec<usize> = (0..200).collect();
        let questions: Vec<Question> = (0..200).map(|target| Question { target, at: vec![100] }).collect();
        let expected: Vec<bool> = (0..200).map(|target| target <= 100).collect();
        assert_eq!(answers(&needs, &order, &questions), expected);
        assert_eq!(pass(&needs, &order, &questions.iter().collect::<Vec<_>>()), expected);
    }

    #[test]
    fn chains_and_wide_graphs_are_told_by_their_numbers() {
        let count = 10_000_usize;
        let chain: Vec<Vec<usize>> = (0..count).map(|step| if step == 0 { vec![] } else { vec![step / 2, step - 1] }).collect();
        let wide: Vec<Vec<usize>> = (0..count).map(|step| if step == 0 { vec![] } else { vec![0] }).collect();
        let order: Vec<usize> = (0..count).collect();
        for needs in [chain, wide] {
            let quick = Quick::new(&needs, &order);
            for step in 1..count {
                for (target, at) in [(0, step), (step, 0), (step, step / 2)] {
                    assert_eq!(quick.answer(&Question { target, at: vec![at] }), Some(target <= at && target == 0), "{target} before {at}");
                }
            }
        }
    }
}
