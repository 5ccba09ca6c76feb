//! `spinney doctor`: whether what runs depend on is as it should be, and what was mended.
use super::{
    args,
    context::{Context, Failed},
    report::{json_text, line, put, repository},
    screen::{Tone, paint},
};
use crate::{
    clock::Clock,
    engine::{
        doctor::{Check, Verdict},
        health,
    },
};
use serde_json::json;
use std::{fmt::Write as _, io};

pub(super) fn run(args: &args::Doctor, context: &mut Context) -> Result<u8, Failed> {
    let repo = repository(context)?;
    let checks = health::runs(&repo, Clock::system().now(), args.repair).map_err(|error| Failed::of(&error))?;
    let worst = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Fine);
    let text =
        if args.json { json_text(&json!({"verdict": worst, "checks": checks})).map_err(io::Error::from)? + "\n" } else { page(&checks, worst, context.color) };
    put(context, &text)?;
    Ok(u8::from(worst == Verdict::Broken))
}

fn page(checks: &[Check], worst: Verdict, color: bool) -> String {
    let mut text = String::new();
    let mut area = "";
    let width = checks.iter().map(|check| line(&check.name, 60).chars().count()).max().unwrap_or(0);
    for check in checks {
        if check.area != area {
            let before = if area.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{before}{}", paint(color, Tone::Name, check.area));
            area = check.area;
        }
        let (word, tone) = match check.verdict {
            Verdict::Fine => ("fine  ", Tone::Good),
            Verdict::Mended => ("mended", Tone::Good),
            Verdict::Warn => ("warn  ", Tone::Warn),
            Verdict::Broken => ("broken", Tone::Bad),
        };
        let name = line(&check.name, 60);
        let _ = writeln!(text, "  {}  {name:<width$}  {}", paint(color, tone, word), line(&check.detail, 600));
        if let Some(hint) = &check.hint {
            let _ = writeln!(text, "          {:<width$}  hint: {}", "", line(hint, 400));
        }
    }
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let end = match worst {
        Verdict::Fine | Verdict::Mended => "Everything is fine.".to_owned(),
        Verdict::Warn => format!("Runs are possible; {} to look at.", count(Verdict::Warn)),
        Verdict::Broken => format!("{} broken, {} to look at.", count(Verdict::Broken), count(Verdict::Warn)),
    };
    let _ = writeln!(text, "\n{end}");
    text
}
