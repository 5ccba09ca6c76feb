//! `spinney explain`: what a code means, with an example put right; the pages of `docs/errors.md`.
use super::{
    args,
    context::{Context, Failed},
    report::{line, put},
    screen::{Tone, paint},
};
use crate::source::{codes, pages::Page};

pub(super) fn run(args: &args::Explain, context: &mut Context) -> Result<u8, Failed> {
    let text = match &args.code {
        Some(word) => {
            let page = Page::find(word).map_err(|near| {
                let hint = near.map_or_else(|| "`spinney explain` lists them all".to_owned(), |near| format!("did you mean `{near}`?"));
                Failed::usage(format!("find the code `{}`", line(word, 80))).hint(hint)
            })?;
            said(&page, context.color)
        }
        None => codes::ALL.iter().map(|(code, what)| format!("{code}  {what}\n")).collect(),
    };
    put(context, &text)?;
    Ok(0)
}

/// Writes a page for a terminal: the example indented, what is wrong and what is right in colour.
fn said(page: &Page, color: bool) -> String {
    let mut text = format!("{}: {}\n\n", page.code, page.what);
    let mut example = false;
    for line in page.text.lines() {
        if line.starts_with("```") {
            example = line.len() > 3;
            continue;
        }
        let tone = match line.chars().next().filter(|_| example) {
            Some('-') => Some(Tone::Bad),
            Some('+') => Some(Tone::Good),
            _ => None,
        };
        let indent = if example { "    " } else { "" };
        let line = tone.map_or_else(|| line.to_owned(), |tone| paint(color, tone, line));
        text.push_str(format!("{indent}{line}").trim_end());
        text.push('\n');
    }
    text
}
