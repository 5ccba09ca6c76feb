//! A run that dies after any of its records ends as one that was left alone: the same outcome, the same files, each effect
//! once, nothing left behind.
mod bytes;
mod illegal;
pub(crate) mod life;

use life::{ASKED, CHOICE, DURABLE, Death, Story, Tale};
pub(crate) use life::{plainly, without_hashes};

/// Lives of three records, the first of them of fewer, so that some life ends at every record. Three, since a hook's word
/// and the answer that it leads to are two, and both are needed to get on.
fn short_lives(tale: &'static Tale, death: Death) {
    let story = Story::clean(tale);
    for first in 1..=3 {
        let mut deaths = vec![(3, death); story.records];
        deaths[0].0 = first;
        story.with_deaths(&deaths);
    }
}

#[test]
fn a_run_of_short_lives_that_end_before_a_record_gets_there() {
    short_lives(DURABLE, Death::BeforeTheNext);
}

#[test]
fn a_run_of_short_lives_that_end_before_an_effect_gets_there() {
    short_lives(DURABLE, Death::Untold);
}

#[test]
fn sub_agents_and_a_choice_of_short_lives_that_end_before_a_record_get_there() {
    short_lives(CHOICE, Death::BeforeTheNext);
}

#[test]
fn sub_agents_and_a_choice_of_short_lives_that_end_before_an_effect_get_there() {
    short_lives(CHOICE, Death::Untold);
}

#[test]
fn a_run_of_short_lives_with_questions_gets_there() {
    short_lives(ASKED, Death::BeforeTheNext);
    short_lives(ASKED, Death::Untold);
}

/// At every record there is: before a question, with it open, with its answer written and not taken up, and after that.
#[test]
fn dying_once_with_an_open_question_changes_nothing() {
    once(ASKED, 1, 1);
}

/// Dies once, at every `step`th record from `from` on, and lives on to the end.
fn once(tale: &'static Tale, from: usize, step: usize) {
    let story = Story::clean(tale);
    for at in (from..story.records).step_by(step) {
        for death in [Death::BeforeTheNext, Death::Untold] {
            story.with_deaths(&[(at, death), (usize::MAX, death)]);
        }
    }
}

#[test]
fn dying_once_changes_nothing() {
    once(DURABLE, 9, 41);
}

/// Minutes long; `.ci/kill` runs it.
#[test]
#[ignore = "takes minutes"]
fn dying_once_at_any_record_changes_nothing() {
    once(DURABLE, 1, 1);
}

#[test]
fn dying_twice_changes_nothing() {
    let story = Story::clean(DURABLE);
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..4 {
        let mut death = || (random.usize(1..story.records), if random.bool() { Death::Untold } else { Death::BeforeTheNext });
        story.with_deaths(&[death(), death(), (usize::MAX, Death::Untold)]);
    }
}
