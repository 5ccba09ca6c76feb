//! Who comes before whom, asked in bulk.
//!
//! One pass over the graph answers for 64 steps at a time, a bit for each; so thousands of questions about thousands of
//! steps cost passes, not walks.

/// Whether `target` is one of `at`, or comes before one of them.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) target: usize,
    pub(super) at: Vec<usize>,
}

/// Answers questions about a graph given as the needs of each step and a topological order.
pub(super) fn answers(needs: &[Vec<usize>], order: &[usize], questions: &[Question]) -> Vec<bool> {
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
        assert_eq!(answers(&needs, &order, &questions), (0..200).map(|target| target <= 100).collect::<Vec<_>>());
    }
}
