//! What is shown of a reply while it streams: without the values of secrets, wherever the stream cuts one.
use crate::{
    clock::Pulse,
    journal::Spent,
    llm::{ModelError, Sink},
    message::Usage,
    secrets::{Secrets, Stream},
};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Shows what it is given, and notes it as a sign of life.
pub(super) struct Shown<'a> {
    sink: &'a dyn Sink,
    pulse: &'a Pulse,
    secrets: &'a Secrets,
    text: Mutex<Option<Stream>>,
    thinking: Mutex<Option<Stream>>,
    lost: Mutex<Spent>,
}

impl<'a> Shown<'a> {
    pub(super) fn new(sink: &'a dyn Sink, pulse: &'a Pulse, secrets: &'a Secrets) -> Shown<'a> {
        Shown { sink, pulse, secrets, text: Mutex::new(secrets.stream()), thinking: Mutex::new(secrets.stream()), lost: Mutex::default() }
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
        rest(&self.thinking, &|text| self.sink.thinking(text));
        rest(&self.text, &|text| self.sink.text(text));
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
        pass(&self.text, delta, |text| self.sink.text(text));
    }

    fn thinking(&self, delta: &str) {
        self.pulse.beat();
        pass(&self.thinking, delta, |text| self.sink.thinking(text));
    }

    fn retrying(&self, why: &ModelError, wait_ms: u64) {
        self.pulse.beat_until(Duration::from_millis(wait_ms));
        self.finish();
        let why = ModelError { message: self.secrets.text(&why.message).into_owned(), ..why.clone() };
        self.sink.retrying(&why, wait_ms);
    }

    fn alive(&self) {
        self.pulse.beat();
        self.sink.alive();
    }

    fn lost(&self, usage: &Usage, usd: Option<f64>) {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) += Spent::without_reply(usage, usd);
        self.sink.lost(usage, usd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::Clock, llm::ModelErrorKind};
    use std::collections::BTreeMap;

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Heard {
        fn add(&self, kind: &str, text: &str) {
            self.0.lock().unwrap().push(format!("{kind} {text}"));
        }
    }

    impl Sink for Heard {
        fn text(&self, delta: &str) {
            self.add("text", delta);
        }
        fn thinking(&self, delta: &str) {
            self.add("thinking", delta);
        }
        fn retrying(&self, why: &ModelError, _wait_ms: u64) {
            self.add("retrying", &why.message);
        }
    }

    #[test]
    fn a_value_is_not_shown_wherever_the_stream_cuts_it() {
        let secrets = Secrets::new(BTreeMap::from([("TOKEN".to_owned(), "s3cr3t-välue".to_owned())])).unwrap();
        let said = "ä s3cr3t-välue ö s3cr3t-";
        for (cut, _) in said.char_indices() {
            let (heard, pulse) = (Heard::default(), Pulse::new(&Clock::system()));
            let shown = Shown::new(&heard, &pulse, &secrets);
            for piece in [&said[..cut], &said[cut..]] {
                shown.text(piece);
                shown.thinking(piece);
            }
            shown.retrying(&ModelError { kind: ModelErrorKind::Cut, message: "at s3cr3t-välue".to_owned(), hint: None }, 1);
            shown.text("next");
            shown.finish();
            let all = heard.0.into_inner().unwrap();
            let of = |kind: &str| all.iter().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' ')).collect::<String>();
            assert_eq!(of("text"), "ä ***TOKEN*** ö s3cr3t-next", "cut at {cut}");
            assert_eq!(of("thinking"), "ä ***TOKEN*** ö s3cr3t-");
            assert_eq!(of("retrying"), "at ***TOKEN***");
        }
    }
}
