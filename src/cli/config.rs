//! `spinney config`: every value of the configuration that holds here, and where it came from. Keys are never shown.
use super::{
    args,
    context::{Context, Failed},
    report::{Cell, Table, json_text, line, put},
    screen::Tone,
};
use crate::engine::{Project, Setting};
use serde_json::{Value, json};
use std::io;

pub(super) fn run(args: &args::Config, context: &mut Context) -> Result<u8, Failed> {
    let project = Project::open(context.settings.clone())?;
    let settings = project.configuration.settings(&context.settings.environment);
    let untrusted = project.configuration.untrusted();
    let text = if args.json {
        let waits: Vec<Value> = untrusted.iter().map(|untrusted| json!({"file": untrusted.file, "providers": untrusted.providers})).collect();
        json_text(&json!({"settings": settings, "untrusted": waits})).map_err(io::Error::from)? + "\n"
    } else {
        page(&settings, context.color)
    };
    put(context, &text)?;
    for untrusted in untrusted {
        context.note(&format!("warning: {}", line(&untrusted.warning(), 500)));
    }
    Ok(0)
}

fn page(settings: &[Setting], color: bool) -> String {
    let mut table = Table::new(&[], 1);
    for setting in settings {
        let value = match &setting.value {
            Value::String(text) => text.clone(),
            Value::Array(values) => values.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect::<Vec<_>>().join(", "),
            value => value.to_string(),
        };
        table.row(vec![Cell::new(line(&setting.key, 60), Tone::Name), Cell::plain(line(&value, 200)), Cell::new(line(&setting.from, 60), Tone::Dim)]);
    }
    table.render(color, 0, usize::MAX)
}
