//! Which source comes first: the same commits give the same order, before a crash and after it.
use super::Source;
use crate::{
    event::CommitId,
    git::{GitError, Merged, Repository},
    workflow::MergeOrder,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Beyond so many sources nobody asks which of them conflict: each is asked about with each other.
const PAIRED_MAX: usize = 64;

/// Returns the places of the sources in the order in which they are joined. What comes earlier in `order` decides first; what
/// it leaves open is as in the list.
pub(super) fn ordered(repository: &Repository, onto: &CommitId, sources: &[Source], order: &[MergeOrder]) -> Result<Vec<usize>, GitError> {
    let below = below(repository, onto, sources)?;
    let conflicts = if order.contains(&MergeOrder::FewestConflicts) { conflicts(repository, sources)? } else { vec![0; sources.len()] };
    if order.first() == Some(&MergeOrder::FewestConflicts) {
        let rank: BTreeMap<usize, usize> = on_top(&below, &vec![0; sources.len()]).into_iter().enumerate().map(|(rank, at)| (at, rank)).collect();
        let mut places: Vec<usize> = (0..sources.len()).collect();
        places.sort_by_key(|at| (conflicts[*at], rank.get(at).copied(), *at));
        return Ok(places);
    }
    Ok(on_top(&below, &conflicts))
}

/// Puts each on top of what it builds on; of those that may come next the one with the smallest weight, then the first.
fn on_top(below: &[BTreeSet<usize>], weights: &[usize]) -> Vec<usize> {
    let mut open: Vec<usize> = below.iter().map(BTreeSet::len).collect();
    let mut above: Vec<Vec<usize>> = vec![Vec::new(); below.len()];
    for (at, needs) in below.iter().enumerate() {
        for need in needs {
            above[*need].push(at);
        }
    }
    let mut free: BTreeSet<(usize, usize)> = (0..below.len()).filter(|at| open[*at] == 0).map(|at| (weights[at], at)).collect();
    let mut places = Vec::with_capacity(below.len());
    while let Some((_, at)) = free.pop_first() {
        places.push(at);
        for next in &above[at] {
            open[*next] -= 1;
            if open[*next] == 0 {
                free.insert((weights[*next], *next));
            }
        }
    }
    places
}

/// Returns for each source those that it builds on: whose commit is in the history of what it was made from.
fn below(repository: &Repository, onto: &CommitId, sources: &[Source]) -> Result<Vec<BTreeSet<usize>>, GitError> {
    let mut known: BTreeMap<&CommitId, BTreeSet<usize>> = BTreeMap::new();
    let mut below = Vec::with_capacity(sources.len());
    for (at, source) in sources.iter().enumerate() {
        if source.base == *onto {
            below.push(BTreeSet::new());
            continue;
        }
        if !known.contains_key(&source.base) {
            let mut held = BTreeSet::new();
            let mut seen = BTreeSet::new();
            for (other, candidate) in sources.iter().enumerate() {
                // What made no commit of its own stands at its base, and nobody builds on that; the same commit counts once.
                if candidate.commit != candidate.base && seen.insert(&candidate.commit) && repository.is_ancestor(&candidate.commit, &source.base)? {
                    held.insert(other);
                }
            }
            known.insert(&source.base, held);
        }
        let mut held = known.get(&source.base).cloned().unwrap_or_default();
        held.remove(&at);
        below.push(held);
    }
    Ok(below)
}

/// Counts for each source the others that it conflicts with. Those that change no path in common are not asked about.
fn conflicts(repository: &Repository, sources: &[Source]) -> Result<Vec<usize>, GitError> {
    let mut counts = vec![0; sources.len()];
    if sources.len() > PAIRED_MAX {
        return Ok(counts);
    }
    let paths = sources.iter().map(|source| Ok(repository.changed_paths(&source.base, &source.commit)?.into_iter().collect::<HashSet<String>>()));
    let paths = paths.collect::<Result<Vec<_>, GitError>>()?;
    for first in 0..sources.len() {
        for second in first + 1..sources.len() {
            if paths[first].is_disjoint(&paths[second]) {
                continue;
            }
            let (one, other) = (&sources[first], &sources[second]);
            if matches!(repository.merge_commits(Some(&other.base), &one.commit, &other.commit)?, Merged::Conflicted { .. }) {
                counts[first] += 1;
                counts[second] += 1;
            }
        }
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_need_comes_first_and_weight_decides_the_rest() {
        let needs = |needs: &[usize]| needs.iter().copied().collect::<BTreeSet<usize>>();
        let below = [needs(&[2]), needs(&[]), needs(&[]), needs(&[0])];
        assert_eq!(on_top(&below, &[0; 4]), [1, 2, 0, 3]);
        assert_eq!(on_top(&below, &[0, 5, 1, 0]), [2, 0, 3, 1]);
        assert_eq!(on_top(&[], &[]), Vec::<usize>::new());
    }
}
