//! `spinney schema`: the JSON Schema of workflow files, as `docs/workflow.schema.json` holds it.
use super::{
    context::{Context, Failed},
    report::put,
};
use crate::workflow;

pub(super) fn run(context: &mut Context) -> Result<u8, Failed> {
    let text = text().map_err(std::io::Error::from)?;
    put(context, &text)?;
    Ok(0)
}

fn text() -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(&workflow::json_schema())? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_in_the_documentation_is_what_the_program_says() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/workflow.schema.json");
        let kept = std::fs::read_to_string(path).unwrap();
        assert!(kept == text().unwrap(), "the language has changed; write the file anew: cargo run -- schema > docs/workflow.schema.json");
    }
}
