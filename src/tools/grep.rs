//! Grep: lines by a regular expression.
use super::{
    Effect, Tool, ToolContext, ToolError, ToolOutput, flag, number, on_files, optional_text,
    search::{self, Opener, Search},
    text::{self, ANSWER_MAX},
    text_of,
};
use crate::{message::ToolSpec, secrets::Secrets};
use async_trait::async_trait;
use grep_matcher::{LineTerminator, Matcher as _};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkFinish, SinkMatch};
use ignore::types::TypesBuilder;
use serde_json::{Value, json};
use std::{io, path::Path};

/// Entries of an answer when the model names no limit (Claude Code's).
const HEAD: usize = 250;
/// Largest file that is searched: 64 MiB.
const FILE_MAX: u64 = 64 << 20;
/// Most context lines.
const CONTEXT_MAX: usize = 100;
/// Most lines that a search gathers before it gives up.
const LINES_MAX: usize = 100_000;

pub(super) struct Grep(ToolSpec);

impl Grep {
    pub(super) fn new() -> Grep {
        let description = format!(
            "Searches the contents of files by a regular expression (Rust syntax, as in ripgrep), in the order of their paths.\n\
             - `output_mode`: `files_with_matches` (default) names the files, `content` shows the lines as `path:line:text`, `count` counts matching lines in each file.\n\
             - Narrow it by `path` (a file or a folder), `glob` (`*.rs`, `src/**/*.ts`) or `type` (`rust`, `py`, `js`).\n\
             - At most {HEAD} entries are shown unless `head_limit` says otherwise (0: no limit but the size of the answer); go on with `offset`.\n\
             - Files that `.gitignore` leaves out and binary files are not searched. Escape braces: `interface\\{{\\}}`."
        );
        let count = |text: &str| json!({"type": "integer", "minimum": 0, "description": text});
        let on = |text: &str| json!({"type": "boolean", "description": text});
        let input_schema = json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "The regular expression"},
                "path": {"type": "string", "description": "The file or folder to search; your working directory if left out"},
                "glob": {"type": "string", "description": "Only files that match; with `!` before it only others; several are separated by blanks"},
                "type": {"type": "string", "description": "Only files of this type, by ripgrep's names"},
                "output_mode": {"type": "string", "enum": ["content", "files_with_matches", "count"], "description": "What to show"},
                "-A": count("Lines to show after each match"),
                "-B": count("Lines to show before each match"),
                "-C": count("Lines to show around each match"),
                "context": count("The same as -C"),
                "-n": on("Show line numbers (default true)"),
                "-i": on("Ignore case"),
                "-o": on("Show only the matching parts of the lines"),
                "head_limit": count("How many entries to show"),
                "offset": count("How many entries to leave out first"),
                "multiline": on("Let the pattern go over line breaks, and `.` match them")
            },
            "required": ["pattern"],
            "additionalProperties": false
        });
        Grep(ToolSpec { name: "Grep".to_owned(), description, input_schema })
    }
}

#[async_trait]
impl Tool for Grep {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn effect(&self, _input: &Value, _cx: &ToolContext) -> Effect {
        Effect::Reads(Vec::new())
    }

    async fn call(&self, input: &Value, cx: &ToolContext) -> Result<ToolOutput, ToolError> {
        let wish = Wish { secrets: cx.secrets.clone(), ..Wish::read(input)? };
        let input = input.clone();
        on_files(cx, move |cx| {
            let search = narrowed(cx, &input)?;
            let found = search.run(cx)?;
            let mut hits = Hits::default();
            let opener = search.opener()?;
            for file in &found.files {
                if cx.cancel.is_cancelled() {
                    return Err(ToolError::Model("the search was cancelled".to_owned()));
                }
                if hits.lines.len() >= LINES_MAX {
                    hits.is_partial = true;
                    break;
                }
                let name = search::show(cx, search.place(), file);
                wish.search(&opener, file, &name, &mut hits);
            }
            hits.is_partial |= found.is_partial;
            Ok(wish.answer(hits))
        })
        .await
    }
}

fn narrowed(cx: &ToolContext, input: &Value) -> Result<Search, ToolError> {
    let mut search = Search::new(cx, optional_text(input, "path"))?;
    for pattern in optional_text(input, "glob").unwrap_or_default().split_whitespace() {
        search = search.glob(pattern)?;
    }
    if let Some(name) = optional_text(input, "type") {
        let mut types = TypesBuilder::new();
        let types = types.add_defaults().select(name).build();
        search = search.types(types.map_err(|_| ToolError::Model(format!("there is no file type `{name}`: use `glob` instead, such as `*.{name}`")))?);
    }
    Ok(search)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Content,
    Files,
    Count,
}

/// What the model asked for.
struct Wish {
    matcher: RegexMatcher,
    searcher: Searcher,
    mode: Mode,
    numbers: bool,
    only_matching: bool,
    limit: usize,
    offset: usize,
    secrets: Secrets,
}

impl Wish {
    fn read(input: &Value) -> Result<Wish, ToolError> {
        let multiline = flag(input, "multiline");
        let mut matcher = RegexMatcherBuilder::new();
        matcher.case_insensitive(flag(input, "-i")).multi_line(true).dot_matches_new_line(multiline).size_limit(10 << 20).dfa_size_limit(10 << 20);
        if !multiline {
            matcher.crlf(true);
        }
        let pattern = text_of(input, "pattern")?;
        if !multiline && pattern.contains("\\n") {
            return Err(ToolError::Model("the pattern holds a line break: set `multiline` to true to search over lines".to_owned()));
        }
        let matcher = matcher.build(pattern).map_err(|error| ToolError::Model(format!("the pattern is no regular expression that can be used: {error}")))?;
        let mode = match optional_text(input, "output_mode") {
            Some("content") => Mode::Content,
            Some("count") => Mode::Count,
            _ => Mode::Files,
        };
        let around = number(input, "-C").or_else(|| number(input, "context")).unwrap_or(0);
        let context = |field: &str| if mode == Mode::Content { number(input, field).unwrap_or(around).min(CONTEXT_MAX) } else { 0 };
        let mut searcher = SearcherBuilder::new();
        if !multiline {
            searcher.line_terminator(LineTerminator::crlf());
        }
        searcher.line_number(true).multi_line(multiline).before_context(context("-B")).after_context(context("-A"));
        searcher.binary_detection(BinaryDetection::quit(0)).max_matches((mode == Mode::Files).then_some(1));
        Ok(Wish {
            matcher,
            searcher: searcher.build(),
            mode,
            numbers: input.get("-n").and_then(Value::as_bool).unwrap_or(true),
            only_matching: flag(input, "-o"),
            limit: match number(input, "head_limit") {
                None => HEAD,
                Some(0) => usize::MAX,
                Some(limit) => limit,
            },
            offset: number(input, "offset").unwrap_or(0),
            secrets: Secrets::default(),
        })
    }

    /// Searches one file. One that vanished or is binary is passed over; one that cannot be searched is counted.
    fn search(&self, opener: &Opener, file: &Path, name: &str, hits: &mut Hits) {
        let Some(content) = opener.open(file, FILE_MAX) else {
            hits.unsearched += 1;
            return;
        };
        let mut one = OneFile { wish: self, name, lines: Vec::new(), matches: 0, is_binary: false };
        let searched = self.searcher.clone().search_file(&self.matcher, &content, &mut one);
        if searched.is_err() {
            hits.unsearched += 1;
            return;
        }
        if one.is_binary || one.matches == 0 {
            return;
        }
        hits.files.push(name.to_owned());
        hits.matches += one.matches;
        match self.mode {
            Mode::Content => hits.lines.append(&mut one.lines),
            Mode::Files => hits.lines.push(name.to_owned()),
            Mode::Count => hits.lines.push(format!("{name}:{}", one.matches)),
        }
    }

    fn answer(&self, hits: Hits) -> ToolOutput {
        let total = hits.lines.len();
        let shown: Vec<String> = hits.lines.into_iter().skip(self.offset).take(self.limit).collect();
        let end = self.offset.min(total) + shown.len();
        let mut note = String::new();
        if total == 0 {
            "Nothing matches.".clone_into(&mut note);
        } else if shown.is_empty() {
            note = format!("[There are only {total} entries.]");
        } else if end < total || hits.is_partial {
            let more = if hits.is_partial { " or more" } else { "" };
            note = format!("\n[Entries {} to {end} of {total}{more}. Go on with offset {end}, or narrow the search.]", self.offset + 1);
        }
        let unsearched = match hits.unsearched {
            0 => String::new(),
            files => format!("\n[{files} files could not be searched: too large, or not readable.]"),
        };
        let listed = shown.join("\n");
        let response = match self.mode {
            Mode::Content => json!({"mode": "content", "numFiles": hits.files.len(), "filenames": [], "content": listed, "numLines": shown.len()}),
            Mode::Files => json!({"mode": "files_with_matches", "numFiles": shown.len(), "filenames": shown}),
            Mode::Count => json!({"mode": "count", "numFiles": hits.files.len(), "filenames": [], "content": listed, "numMatches": hits.matches}),
        };
        let whole = (listed.len() > ANSWER_MAX).then(|| listed.clone().into_bytes());
        let text = text::cap(listed, ANSWER_MAX, "Narrow the search, or use `head_limit` and `offset`.") + &note + &unsearched;
        ToolOutput { text, response, is_error: false, whole }
    }
}

/// What was found in all files.
#[derive(Default)]
struct Hits {
    lines: Vec<String>,
    files: Vec<String>,
    matches: u64,
    /// Files that vanished, are too large or could not be read.
    unsearched: usize,
    is_partial: bool,
}

/// Gathers the matches of one file.
struct OneFile<'a> {
    wish: &'a Wish,
    name: &'a str,
    lines: Vec<String>,
    matches: u64,
    is_binary: bool,
}

impl OneFile<'_> {
    /// Takes lines as they stand in the file; `mark` is what stands between path, number and text.
    fn take(&mut self, bytes: &[u8], number: Option<u64>, mark: char) {
        let bytes = self.wish.secrets.bytes(bytes);
        let body = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        for (at, line) in body.split(|byte| *byte == b'\n').enumerate() {
            if self.lines.len() >= LINES_MAX {
                return;
            }
            let shown = text::shorten(&text::from_file(line.strip_suffix(b"\r").unwrap_or(line)));
            match number.filter(|_| self.wish.numbers) {
                Some(number) => self.lines.push(format!("{}{mark}{}{mark}{shown}", self.name, number + at as u64)),
                None => self.lines.push(format!("{}{mark}{shown}", self.name)),
            }
        }
    }
}

impl Sink for OneFile<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.matches += 1;
        match (self.wish.mode, self.wish.only_matching) {
            (Mode::Content, false) => self.take(found.bytes(), found.line_number(), ':'),
            (Mode::Content, true) => {
                // Piece by piece a secret could be read otherwise.
                let bytes = self.wish.secrets.bytes(found.bytes());
                let mut parts = Vec::new();
                let searched = self.wish.matcher.find_iter(&bytes, |part| {
                    parts.push(part);
                    parts.len() < CONTEXT_MAX
                });
                searched.map_err(io::Error::other)?;
                for part in parts {
                    self.take(&bytes[part], found.line_number(), ':');
                }
            }
            (Mode::Files | Mode::Count, _) => {}
        }
        Ok(self.lines.len() < LINES_MAX)
    }

    fn context(&mut self, _searcher: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        self.take(context.bytes(), context.line_number(), '-');
        Ok(true)
    }

    fn context_break(&mut self, _searcher: &Searcher) -> Result<bool, io::Error> {
        self.lines.push("--".to_owned());
        Ok(true)
    }

    fn finish(&mut self, _searcher: &Searcher, finish: &SinkFinish) -> Result<(), io::Error> {
        self.is_binary = finish.binary_byte_offset().is_some();
        Ok(())
    }
}
