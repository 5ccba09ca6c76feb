//! What people have said to the question whether more may be used than a budget says.
//!
//! Each such question has a name that says whose budget it is and how often it was raised before, so that what was allowed follows from
//! the questions alone. A session asks by its own node; the run, and its steps and calls, by that of the run.
use super::{Conversation, RunState, account};

/// What people have said of one budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowance {
    /// How often they have allowed as much again.
    pub raises: u32,
    /// Whether they have said that it is enough.
    pub is_refused: bool,
    /// Whether they are being asked.
    pub is_asked: bool,
}

/// Names the question whether a budget that was raised so often may be raised once more, or several times at once; of the asking node's
/// own budget nothing says `whose` it is.
pub(crate) fn more(raises: u32, by: u32, whose: &str) -> String {
    let number = raises + 1;
    let times = if by > 1 { format!("x{by}") } else { String::new() };
    if whose.is_empty() { format!("more-{number}{times}") } else { format!("more-{number}{times}@{whose}") }
}

/// Returns how often the question of this name asks to raise a budget.
pub(crate) fn raised_by(name: &str) -> u32 {
    let number = name.split_once('@').map_or(name, |(number, _)| number);
    number.split_once('x').and_then(|(_, times)| times.parse().ok()).unwrap_or(1)
}

/// Returns whose budget the question of this name is about.
pub(crate) fn whose(name: &str) -> &str {
    name.split_once('@').map_or("", |(_, whose)| whose)
}

impl Conversation {
    /// Returns what was said of a budget in answer to the questions of this conversation's node.
    pub fn allowance(&self, whose: &str) -> Allowance {
        let mut said = Allowance::default();
        while let Some(question) = self.questions.iter().find(|question| question.call == more(said.raises, raised_by(&question.call), whose)) {
            match &question.answer {
                Some(answer) if answer.allowed => said.raises = said.raises.saturating_add(raised_by(&question.call)),
                answer => return Allowance { is_refused: answer.is_some(), is_asked: answer.is_none(), ..said },
            }
        }
        said
    }
}

impl RunState {
    /// Returns what was said of the budget of the run, or of a step or call in it.
    pub fn allowance(&self, whose: &str) -> Allowance {
        self.node(&account()).map(|node| node.conversation.allowance(whose)).unwrap_or_default()
    }
}
