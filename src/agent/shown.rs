//! What is shown of a reply while it streams: without the values of secrets, wherever the stream cuts one.
use super::{Note, Watcher};
use crate::{
    clock::Pulse,
    event::NodeId,
    journal::Spent,
    llm::{Retry, Sink},
    message::Usage,
    secrets::{Secrets, Stream},
};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Shows what it is given, and notes it as a sign of life.
pub(super) struct Shown<'a> {
    watcher: &'a dyn Watcher,
    node: &'a NodeId,
    pulse: &'a Pulse,
    secrets: &'a Secrets,
    text: Mutex<Option<Stream>>,
    thinking: Mutex<Option<Stream>>,
    lost: Mutex<Spent>,
}

impl<'a> Shown<'a> {
    pub(super) fn new((watcher, node): (&'a dyn Watcher, &'a NodeId), pulse: &'a Pulse, secrets: &'a Secrets) -> Shown<'a> {
        Shown { watcher, node, pulse, secrets, text: Mutex::new(secrets.stream()), thinking: Mutex::new(secrets.stream()), lost: Mutex::default() }
    }

    /// Returns what attempts have used that gave no reply.
    pub(super) fn lost(&self) -> Spent {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows what was held back, at the end of the reply or of a try at one.
    pub(super) fn finish(&self) {
        let rest = |held: &Mutex<Option<Stream>>, show: &dyn Fn(&str)| {
            let ended = std::mem::replace(&mut *held.lock().unwrap_or_else(PoisonError::into_inner), self.secrets.stream());
            if let Some(rest) = ended.map(|stream| String::from_utf8_lossy(&stream.finish()).into_owned()).filter(|rest| !rest.is_empty()) {
                show(&rest);
            }
        };
        rest(&self.thinking, &|text| self.note(Note::Thought(text.to_owned())));
        rest(&self.text, &|text| self.note(Note::Said(text.to_owned())));
    }

    fn note(&self, note: Note) {
        self.watcher.sees(self.node, note);
    }
}

/// Shows a piece, or what can be shown by now.
fn pass(held: &Mutex<Option<Stream>>, delta: &str, show: impl FnOnce(&str)) {
    match held.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(|stream| stream.push_text(delta)) {
        None => show(delta),
        Some(text) if text.is_empty() => {}
        Some(text) => show(&text),
    }
}

impl Sink for Shown<'_> {
    fn text(&self, delta: &str) {
        self.pulse.beat();
        pass(&self.text, delta, |text| self.note(Note::Said(text.to_owned())));
    }

    fn thinking(&self, delta: &str) {
        self.pulse.beat();
        pass(&self.thinking, delta, |text| self.note(Note::Thought(text.to_owned())));
    }

    fn retrying(&self, retry: &Retry<'_>) {
        self.pulse.beat_until(Duration::from_millis(retry.wait_ms));
        self.finish();
        let why = self.secrets.text(&retry.why.message).into_owned();
        self.note(Note::Retrying { kind: retry.why.kind, why, wait: Duration::from_millis(retry.wait_ms), attempt: retry.attempt, of: retry.of });
    }

    fn asking(&self) {
        self.note(Note::Asking);
    }

    fn waiting(&self, why: &str) {
        self.note(Note::Waiting { why: self.secrets.text(why).into_owned() });
    }

    fn alive(&self) {
        self.pulse.beat();
    }

    fn lost(&self, usage: &Usage, usd: Option<f64>) {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) += Spent::without_reply(usage, usd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Clock,
        llm::{ModelError, ModelErrorKind},
    };
    use std::collections::BTreeMap;

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Watcher for Heard {
        fn sees(&self, _node: &NodeId, note: Note) {
            let line = match note {
                Note::Asking => "asking".to_owned(),
                Note::Said(text) => format!("text {text}"),
                Note::Thought(text) => format!("thinking {text}"),
                Note::Retrying { why, .. } => format!("retrying {why}"),
                Note::Waiting { why } => format!("waiting {why}"),
            };
            self.0.lock().unwrap().push(line);
        }
    }

    #[test]
    fn a_value_is_not_shown_wherever_the_stream_cuts_it() {
        let secrets = Secrets::new(BTreeMap::from([("TOKEN".to_owned(), "s3cr3t-välue".to_owned())])).unwrap();
        let said = "ä s3cr3t-välue ö s3cr3t-";
        for (cut, _) in said.char_indices() {
            let (heard, pulse) = (Heard::default(), Pulse::new(&Clock::system()));
            let node = NodeId::step(&"work".into());
            let shown = Shown::new((&heard, &node), &pulse, &secrets);
            for piece in [&said[..cut], &said[cut..]] {
                shown.text(piece);
                shown.thinking(piece);
            }
            let why = ModelError { kind: ModelErrorKind::Cut, message: "at s3cr3t-välue".to_owned(), hint: None };
            shown.retrying(&Retry { why: &why, wait_ms: 1, attempt: 2, of: 10 });
            shown.waiting("for s3cr3t-välue");
            shown.text("next");
            shown.finish();
            let all = heard.0.into_inner().unwrap();
            let of = |kind: &str| all.iter().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' ')).collect::<String>();
            assert_eq!(of("text"), "ä ***TOKEN*** ö s3cr3t-next", "cut at {cut}");
            assert_eq!(of("thinking"), "ä ***TOKEN*** ö s3cr3t-");
            assert_eq!(of("retrying") + &of("waiting"), "at ***TOKEN***for ***TOKEN***");
        }
    }
}
