//! Many hooks, one decision. Pure: replies in the order of registration go in, so that the same replies give the same
//! decision however long each hook took.
use super::{
    on::{Blocking, On},
    reply::{Effect, Reply},
};
use crate::event::HookVerdict;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What is to become of a call, or of an agent that wants to stop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody had anything to say.
    #[default]
    Undecided,
    /// Go ahead without asking; deny and ask rules still hold.
    Allow,
    /// A person is to be asked.
    Ask {
        /// What the hook wants to be asked; may be empty.
        question: String,
    },
    /// Before a call: it is not made. After a call: its result becomes an error. At the end: the agent goes on.
    Deny {
        /// What the model is told.
        reason: String,
    },
    /// The call waits, durably, until somebody has answered; hooks have had their say then.
    Park,
    /// The agent ends.
    Stop {
        /// For people.
        reason: String,
    },
}

/// What all hooks together decided.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// What is to become of it.
    pub verdict: Verdict,
    /// The call's input as hooks want it; to be checked against the schema again.
    pub input: Option<Value>,
    /// The call's structured output as hooks want it.
    pub output: Option<Value>,
    /// What the model is to know besides, in order.
    pub context: Vec<String>,
    /// Whether the workspace goes back to what it was before the call, where the verdict is `Deny`.
    pub rollback: bool,
    /// What people are to know: messages of hooks, conflicts between them.
    pub notices: Vec<String>,
    /// Every hook that ran, in order.
    pub ran: Vec<HookReport>,
}

/// What one hook did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookReport {
    /// Its name.
    pub hook: String,
    /// The event.
    pub on: On,
    /// What it said.
    pub verdict: HookVerdict,
    /// Its reason, or what went wrong.
    pub reason: String,
    /// How long it took.
    pub took_ms: u64,
}

/// What one hook said, and whose words they are.
#[derive(Debug, Clone)]
pub(super) struct Heard {
    pub(super) hook: String,
    pub(super) rolls_back: bool,
    pub(super) reply: Reply,
    pub(super) took_ms: u64,
}

impl Decision {
    /// Joins what was heard about a call with this input.
    pub(super) fn of(on: On, input: &Value, heard: Vec<Heard>) -> Decision {
        let mut decision = Decision::default();
        let mut rewrites = Vec::new();
        for Heard { hook, rolls_back, reply, took_ms } in heard {
            let (said, reason) = said(on, &reply.effect);
            let reason =
                if reason.is_empty() && matches!(said, HookVerdict::Deny | HookVerdict::Block) { format!("hook `{hook}` objects") } else { reason.to_owned() };
            decision.rollback |= rolls_back && matches!(reply.effect, Effect::Block(_)) && on != On::PreToolUse;
            decision.verdict = stronger(std::mem::take(&mut decision.verdict), verdict(&reply.effect, &reason));
            decision.context.extend(reply.context);
            decision.notices.extend(reply.message);
            if let Effect::User(text) = &reply.effect {
                decision.notices.push(format!("hook `{hook}`: {text}"));
            }
            if let Some(Value::Object(wanted)) = reply.input {
                rewrites.push((hook.clone(), wanted));
            }
            if let Some(output) = reply.output {
                if decision.output.as_ref().is_some_and(|earlier| *earlier != output) {
                    decision.notices.push(format!("more than one hook rewrites the output of the call: that of `{hook}` holds"));
                }
                decision.output = Some(output);
            }
            decision.ran.push(HookReport { hook, on, verdict: said, reason, took_ms });
        }
        decision.input = rewritten(input, rewrites, &mut decision.notices);
        decision
    }
}

/// Applies rewrites key by key, each as what it changes in the original input.
fn rewritten(original: &Value, rewrites: Vec<(String, Map<String, Value>)>, notices: &mut Vec<String>) -> Option<Value> {
    if rewrites.is_empty() {
        return None;
    }
    let original = original.as_object().cloned().unwrap_or_default();
    let mut changed: BTreeMap<String, (String, Option<Value>)> = BTreeMap::new();
    for (hook, wanted) in rewrites {
        let gone = original.keys().filter(|key| !wanted.contains_key(*key)).map(|key| (key.clone(), None));
        let set = wanted.iter().filter(|(key, value)| original.get(*key) != Some(*value)).map(|(key, value)| (key.clone(), Some(value.clone())));
        for (key, value) in gone.chain(set) {
            if let Some((earlier, other)) = changed.get(&key)
                && *other != value
            {
                notices.push(format!("hooks `{earlier}` and `{hook}` both rewrite `{key}`: that of `{hook}` holds"));
            }
            changed.insert(key, (hook.clone(), value));
        }
    }
    let mut result = original;
    for (key, (_, value)) in changed {
        match value {
            Some(value) => drop(result.insert(key, value)),
            None => drop(result.shift_remove(&key)),
        }
    }
    Some(Value::Object(result))
}

fn verdict(effect: &Effect, reason: &str) -> Verdict {
    match effect {
        Effect::Nothing | Effect::User(_) | Effect::Failed(_) => Verdict::Undecided,
        Effect::Allow => Verdict::Allow,
        Effect::Ask(question) => Verdict::Ask { question: question.clone() },
        Effect::Park(_) => Verdict::Park,
        Effect::Block(_) => Verdict::Deny { reason: reason.to_owned() },
        Effect::Stop(reason) => Verdict::Stop { reason: reason.clone() },
    }
}

pub(super) fn said(on: On, effect: &Effect) -> (HookVerdict, &str) {
    match effect {
        Effect::Nothing => (HookVerdict::None, ""),
        Effect::User(text) => (HookVerdict::None, text),
        Effect::Failed(why) => (HookVerdict::Error, why),
        Effect::Allow => (HookVerdict::Allow, ""),
        Effect::Ask(question) => (HookVerdict::Ask, question),
        Effect::Park(why) => (HookVerdict::Park, why),
        Effect::Block(reason) if on.blocking() == Blocking::Call => (HookVerdict::Deny, reason),
        Effect::Block(reason) => (HookVerdict::Block, reason),
        Effect::Stop(reason) => (HookVerdict::Stop, reason),
    }
}

fn rank(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Undecided => 0,
        Verdict::Allow => 1,
        Verdict::Ask { .. } => 2,
        Verdict::Park => 3,
        Verdict::Deny { .. } => 4,
        Verdict::Stop { .. } => 5,
    }
}

/// Returns the stronger of two verdicts; equal ones keep the texts of both.
fn stronger(earlier: Verdict, later: Verdict) -> Verdict {
    match (earlier, later) {
        (Verdict::Deny { reason: a }, Verdict::Deny { reason: b }) => Verdict::Deny { reason: both(a, b) },
        (Verdict::Ask { question: a }, Verdict::Ask { question: b }) => Verdict::Ask { question: both(a, b) },
        (Verdict::Stop { reason: a }, Verdict::Stop { reason: b }) => Verdict::Stop { reason: both(a, b) },
        (earlier, later) if rank(&later) > rank(&earlier) => later,
        (earlier, _) => earlier,
    }
}

fn both(a: String, b: String) -> String {
    match (a.is_empty(), b.is_empty() || a.lines().any(|line| line == b)) {
        (_, true) => a,
        (true, false) => b,
        (false, false) => format!("{a}\n{b}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn heard(hook: &str, effect: Effect) -> Heard {
        Heard { hook: hook.to_owned(), rolls_back: false, reply: Reply { effect, ..Reply::default() }, took_ms: 1 }
    }

    fn rewrite(hook: &str, input: Value) -> Heard {
        Heard { reply: Reply { input: Some(input), ..Reply::default() }, ..heard(hook, Effect::Nothing) }
    }

    #[test]
    fn the_strongest_verdict_wins_whatever_the_order() {
        let by_strength = [
            (Effect::Nothing, Verdict::Undecided),
            (Effect::Allow, Verdict::Allow),
            (Effect::Ask("q".to_owned()), Verdict::Ask { question: "q".to_owned() }),
            (Effect::Park(String::new()), Verdict::Park),
            (Effect::Block("r".to_owned()), Verdict::Deny { reason: "r".to_owned() }),
            (Effect::Stop("s".to_owned()), Verdict::Stop { reason: "s".to_owned() }),
        ];
        for (a, (weak, _)) in by_strength.iter().enumerate() {
            for (strong, verdict) in &by_strength[a..] {
                for order in [[weak, strong], [strong, weak]] {
                    let heard = order.map(|effect| heard("h", effect.clone())).to_vec();
                    assert_eq!(Decision::of(On::PreToolUse, &json!({}), heard).verdict, *verdict);
                }
            }
        }
    }

    #[test]
    fn every_reason_is_kept_once() {
        let all = ["a", "b", "b"].map(|reason| heard("h", Effect::Block(reason.to_owned()))).to_vec();
        assert_eq!(Decision::of(On::PreToolUse, &json!({}), all).verdict, Verdict::Deny { reason: "a\nb".to_owned() });
        let silent = Decision::of(On::PreToolUse, &json!({}), vec![heard("gate", Effect::Block(String::new()))]);
        assert_eq!(silent.verdict, Verdict::Deny { reason: "hook `gate` objects".to_owned() });
        assert_eq!(silent.ran[0].verdict, HookVerdict::Deny);
    }

    #[test]
    fn rewrites_are_joined_by_key_and_an_empty_reply_clears_nothing() {
        let input = json!({"command": "a", "timeout": 1, "description": "d"});
        let one = rewrite("one", json!({"command": "b", "timeout": 1, "description": "d"}));
        let two = rewrite("two", json!({"command": "a", "timeout": 2}));
        let decision = Decision::of(On::PreToolUse, &input, vec![one, two, heard("three", Effect::Allow)]);
        assert_eq!(decision.input, Some(json!({"command": "b", "timeout": 2})));
        assert!(decision.notices.is_empty());
        assert_eq!(Decision::of(On::PreToolUse, &input, vec![heard("three", Effect::Allow)]).input, None);
    }

    #[test]
    fn a_conflict_is_reported_and_the_last_registered_wins() {
        let input = json!({"command": "a"});
        let all = vec![rewrite("one", json!({"command": "b"})), rewrite("two", json!({"command": "c"})), rewrite("same", json!({"command": "c"}))];
        let decision = Decision::of(On::PreToolUse, &input, all);
        assert_eq!(decision.input, Some(json!({"command": "c"})));
        assert_eq!(decision.notices, ["hooks `one` and `two` both rewrite `command`: that of `two` holds"]);
    }

    #[test]
    fn a_rollback_needs_a_block_after_the_call() {
        let with = |on, effect| Decision::of(on, &json!({}), vec![Heard { rolls_back: true, ..heard("h", effect) }]).rollback;
        assert!(with(On::PostToolUse, Effect::Block("r".to_owned())));
        assert!(!with(On::PostToolUse, Effect::Failed("r".to_owned())));
        assert!(!with(On::PreToolUse, Effect::Block("r".to_owned())));
    }
}
