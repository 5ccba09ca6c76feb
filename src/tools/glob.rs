//! Glob: files by their names.
use super::{
    Effect, Tool, ToolContext, ToolError, ToolOutput, on_files, optional_text,
    search::{self, Search},
    text::{self, ANSWER_MAX},
    text_of,
};
use crate::{
    clock::{Clock, millis},
    message::ToolSpec,
};
use async_trait::async_trait;
use serde_json::{Value, json};

/// Most files that are named.
const FILES_MAX: usize = 500;

pub(super) struct Glob(ToolSpec);

impl Glob {
    pub(super) fn new() -> Glob {
        let description = format!(
            "Finds files by a pattern of their names, sorted by path.\n\
             - `*` stays within a folder, `**` does not, `{{a,b}}` is a choice. A pattern without `/` is about names in any folder: `*.rs`. With one it is about paths below the searched folder: `src/**/*.rs`.\n\
             - Files that `.gitignore` leaves out are not found, unless their folder is given as `path`.\n\
             - At most {FILES_MAX} files are named."
        );
        let input_schema = json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "minLength": 1, "description": "The pattern"},
                "path": {"type": "string", "description": "The folder to search; your working directory if left out"}
            },
            "required": ["pattern"],
            "additionalProperties": false
        });
        Glob(ToolSpec { name: "Glob".to_owned(), description, input_schema })
    }
}

#[async_trait]
impl Tool for Glob {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn effect(&self, _input: &Value, _cx: &ToolContext) -> Effect {
        Effect::Reads(Vec::new())
    }

    async fn call(&self, input: &Value, cx: &ToolContext) -> Result<ToolOutput, ToolError> {
        let (pattern, path) = (text_of(input, "pattern")?.to_owned(), optional_text(input, "path").map(str::to_owned));
        on_files(cx, move |cx| {
            let clock = Clock::system();
            let search = Search::new(cx, path.as_deref())?;
            // An absolute pattern names its folder itself.
            let below = search.place().path();
            let pattern = std::path::Path::new(&pattern).strip_prefix(&below).map_or(pattern.clone(), |rest| format!("/{}", rest.display()));
            let search = search.glob(&pattern)?;
            let found = search.run(cx)?;
            let names: Vec<String> = found.files.iter().take(FILES_MAX).map(|file| search::show(cx, search.place(), file)).collect();
            let is_cut = found.is_partial || names.len() < found.files.len();
            let note = match (names.is_empty(), is_cut) {
                (true, _) => format!("No file below `{}` matches `{pattern}`.", below.display()),
                (false, true) => format!("\n[{} of {} files. Use a narrower pattern.]", names.len(), found.files.len()),
                (false, false) => String::new(),
            };
            let duration_ms = millis(clock.elapsed());
            let response = json!({"durationMs": duration_ms, "numFiles": names.len(), "filenames": names, "truncated": is_cut});
            let listed = text::from_terminal(names.join("\n").as_bytes());
            Ok(ToolOutput { text: text::cap(listed + &note, ANSWER_MAX, "Use a narrower pattern."), response, is_error: false, whole: None })
        })
        .await
    }
}
