//! Read: a file with its line numbers.
use super::{
    Effect, Tool, ToolContext, ToolError, ToolOutput, files, number, on_files,
    place::Place,
    reads,
    text::{self, ANSWER_MAX},
    text_of,
};
use crate::message::ToolSpec;
use async_trait::async_trait;
use serde_json::{Value, json};

/// Lines that are shown when the model names no limit.
const LINES: usize = 2_000;

/// How much of a file is looked at to tell text from binary data.
const SNIFF: usize = 8 << 10;

/// The beginnings of what a model might take for readable.
const MEDIA: &[(&[u8], &str)] = &[
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"RIFF", "a RIFF file (WebP, WAV or AVI)"),
    (b"%PDF-", "a PDF document"),
];

pub(super) struct Read(ToolSpec);

impl Read {
    pub(super) fn new() -> Read {
        let description = format!(
            "Reads a text file. The answer has one line of the file per line, each after its number and a tab; the numbers and the tab are not part of the file.\n\
             - Paths are absolute, or relative to your working directory.\n\
             - At most {LINES} lines are shown, fewer where they are long; the answer says where to go on. Use `offset` and `limit` for a part of a large file.\n\
             - Read a file before you edit it. Read several files at once by making several calls in one turn.\n\
             - Folders are not read: use Glob, or `ls` in Bash. Images and other binary files cannot be read."
        );
        let input_schema = json!({
            "type": "object",
            "properties": {
                "file_path": {"type": "string", "description": "The file to read"},
                "offset": {"type": "integer", "minimum": 0, "description": "The first line to show, counted from 1"},
                "limit": {"type": "integer", "minimum": 1, "description": "How many lines to show"}
            },
            "required": ["file_path"],
            "additionalProperties": false
        });
        Read(ToolSpec { name: "Read".to_owned(), description, input_schema })
    }
}

#[async_trait]
impl Tool for Read {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn effect(&self, input: &Value, cx: &ToolContext) -> Effect {
        text_of(input, "file_path").map_or_else(|_| Effect::Reads(Vec::new()), |path| reads(cx, path))
    }

    async fn call(&self, input: &Value, cx: &ToolContext) -> Result<ToolOutput, ToolError> {
        let path = text_of(input, "file_path")?.to_owned();
        let first = number(input, "offset").unwrap_or(1).max(1);
        let limit = number(input, "limit").unwrap_or(LINES).max(1);
        on_files(cx, move |cx| {
            let place = Place::find(cx, &path)?;
            let content = files::read(&place)?;
            refuse_binary(&place, &content)?;
            cx.seen.note(&place.key(), &content);
            Ok(show(&place, &cx.secrets.bytes(&content), first, limit))
        })
        .await
    }
}

fn refuse_binary(place: &Place, content: &[u8]) -> Result<(), ToolError> {
    let media = MEDIA.iter().find(|(magic, _)| content.starts_with(magic)).map(|(_, kind)| *kind);
    let kind = media.or_else(|| content[..content.len().min(SNIFF)].contains(&0).then_some("a binary file"));
    match kind {
        Some(kind) => Err(ToolError::Model(format!(
            "`{}` is {kind} of {} bytes and cannot be shown as text. Use a command in Bash (`file`, `strings`, `xxd | head`) to learn about it.",
            place.path().display(),
            content.len()
        ))),
        None => Ok(()),
    }
}

fn show(place: &Place, content: &[u8], first: usize, limit: usize) -> ToolOutput {
    let body = content.strip_suffix(b"\n").unwrap_or(content);
    let total = if content.is_empty() { 0 } else { body.split(|byte| *byte == b'\n').count() };
    let mut shown = String::new();
    let mut lines = 0;
    for (at, line) in body.split(|byte| *byte == b'\n').enumerate().take(total).skip(first - 1).take(limit) {
        let line = text::shorten(&text::from_file(line.strip_suffix(b"\r").unwrap_or(line)));
        let line = format!("{:>6}\t{line}\n", at + 1);
        if shown.len() + line.len() > ANSWER_MAX {
            break;
        }
        shown.push_str(&line);
        lines += 1;
    }
    let last = first - 1 + lines;
    let note = if content.is_empty() {
        "[The file exists and is empty.]".to_owned()
    } else if first > total {
        format!("[The file has only {total} lines.]")
    } else if last < total {
        format!("[Lines {first} to {last} of {total}. Go on with offset {}.]", last + 1)
    } else {
        String::new()
    };
    let plain: Vec<&str> = shown.lines().filter_map(|line| line.split_once('\t')).map(|(_, line)| line).collect();
    let file = json!({"filePath": place.shown(), "content": plain.join("\n"), "numLines": lines, "startLine": first, "totalLines": total});
    ToolOutput { text: shown + &note, response: json!({"type": "text", "file": file}), is_error: false, whole: None }
}
