//! Diagnostics as SARIF 2.1.0, for code hosts and editors.
use super::{Diagnostic, Severity, Span, pages::Page};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt::Write as _};

/// Writes diagnostics as one run of a SARIF log: rules with their pages, places in bytes, lines and columns, and fixes.
pub fn to_sarif(diagnostics: &[Diagnostic]) -> Value {
    let raised: BTreeMap<&str, Severity> = diagnostics.iter().map(|found| (found.code, found.severity)).collect();
    let index = |code: &str| raised.keys().position(|raised| *raised == code);
    let results: Vec<Value> = diagnostics.iter().map(|found| result(found, index(found.code))).collect();
    let rules: Vec<Value> = raised.iter().filter_map(|(code, severity)| Page::of(code).map(|page| rule(&page, *severity))).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": env!("CARGO_PKG_NAME"),
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": env!("CARGO_PKG_REPOSITORY"),
                "rules": rules,
            } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn rule(page: &Page, severity: Severity) -> Value {
    json!({
        "id": page.code,
        "shortDescription": { "text": page.what },
        "fullDescription": { "text": page.prose() },
        "help": { "text": page.text, "markdown": page.text },
        "helpUri": page.url(),
        "defaultConfiguration": { "level": level(severity) },
    })
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

fn result(found: &Diagnostic, rule: Option<usize>) -> Value {
    let file = json!({ "uri": uri(&found.source.name) });
    let position = found.source.positions();
    let place = |span: Span| json!({ "artifactLocation": file, "region": region(&position, span) });
    let help = found.help.as_ref().map(|help| format!("\nhelp: {help}")).unwrap_or_default();
    let mut result = json!({
        "ruleId": found.code,
        "ruleIndex": rule,
        "level": level(found.severity),
        "message": { "text": format!("{}{help}", found.message) },
        "locations": found.labels.iter().take(1).map(|label| json!({ "physicalLocation": place(label.span) })).collect::<Vec<_>>(),
    });
    let related = found.labels.iter().enumerate().skip(1);
    let related: Vec<Value> =
        related.map(|(id, label)| json!({ "id": id, "message": { "text": label.text }, "physicalLocation": place(label.span) })).collect();
    if !related.is_empty() {
        result["relatedLocations"] = related.into();
    }
    if let Some(edit) = &found.fix {
        let replacement = json!({ "deletedRegion": region(&position, edit.span), "insertedContent": { "text": edit.text } });
        result["fixes"] = json!([{
            "description": { "text": found.help.as_deref().unwrap_or(&found.message) },
            "artifactChanges": [{ "artifactLocation": file, "replacements": [replacement] }],
        }]);
    }
    result
}

fn region(position: &impl Fn(usize) -> (usize, usize), span: Span) -> Value {
    let ((line, column), (end_line, end_column)) = (position(span.start), position(span.end));
    json!({
        "startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column,
        "byteOffset": span.start, "byteLength": span.end.saturating_sub(span.start),
    })
}

/// Returns a path as a reference of a URI: what is not plain in one is escaped byte by byte.
fn uri(path: &str) -> String {
    let mut uri = if path.starts_with('/') { "file://".to_owned() } else { String::new() };
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use std::sync::Arc;

    #[test]
    fn a_log_has_rules_places_and_fixes() {
        let source = Arc::new(Source { name: "a b/é.yaml".to_owned(), text: "näme: x\nsteps:\n  a: {nedes: []}\n".to_owned() });
        let found = Diagnostic::error("E010", &source, Span { start: 22, end: 27 }, "a step has no key `nedes`");
        let found = found.also(Span { start: 0, end: 5 }, "and this").meant("nedes", "needs");
        let log = to_sarif(&[found]);
        let run = &log["runs"][0];
        assert_eq!(run["tool"]["driver"]["rules"][0]["id"], "E010");
        let result = &run["results"][0];
        assert_eq!((&result["ruleIndex"], &result["level"]), (&json!(0), &json!("error")));
        let place = json!({
            "artifactLocation": {"uri": "a%20b/%C3%A9.yaml"},
            "region": {"startLine": 3, "startColumn": 7, "endLine": 3, "endColumn": 12, "byteOffset": 22, "byteLength": 5},
        });
        assert_eq!(result["locations"][0]["physicalLocation"], place);
        assert_eq!(result["relatedLocations"][0]["physicalLocation"]["region"]["endColumn"], 5);
        let change = &result["fixes"][0]["artifactChanges"][0];
        assert_eq!((&change["replacements"][0]["insertedContent"]["text"], &change["artifactLocation"]), (&json!("needs"), &place["artifactLocation"]));
        assert_eq!(to_sarif(&[])["runs"][0]["results"], json!([]));
    }
}
