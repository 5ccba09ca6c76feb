//! What a SARIF 2.1.0 log must be, object by object: the properties that each kind may have, which of them it must have,
//! and what is in them. Every finding of the broken files is told as such a log.
use crate::fixture::Bench;
use serde_json::Value;
use std::{fs, path::PathBuf};

/// A kind of object: its properties with what is in them; `!` marks those that must be there, `[]` a list.
type Kind = (&'static str, &'static [(&'static str, &'static str)]);

/// Section 3 of the standard, as far as this program uses it.
const KINDS: &[Kind] = &[
    ("log", &[("$schema", "uri"), ("version", "2.1.0!"), ("runs", "run[]!")]),
    ("run", &[("tool", "tool!"), ("columnKind", "columns"), ("results", "result[]")]),
    ("tool", &[("driver", "driver!")]),
    ("driver", &[("name", "text!"), ("version", "text"), ("informationUri", "uri"), ("rules", "rule[]")]),
    (
        "rule",
        &[
            ("id", "text!"),
            ("shortDescription", "words"),
            ("fullDescription", "words"),
            ("help", "words"),
            ("helpUri", "uri"),
            ("defaultConfiguration", "configuration"),
        ],
    ),
    ("words", &[("text", "text!"), ("markdown", "text")]),
    ("configuration", &[("level", "level")]),
    (
        "result",
        &[
            ("ruleId", "text"),
            ("ruleIndex", "0"),
            ("level", "level"),
            ("message", "words!"),
            ("locations", "location[]"),
            ("relatedLocations", "location[]"),
            ("fixes", "fix[]"),
        ],
    ),
    ("location", &[("id", "0"), ("message", "words"), ("physicalLocation", "physical")]),
    ("physical", &[("artifactLocation", "artifact!"), ("region", "region")]),
    ("artifact", &[("uri", "reference!")]),
    ("region", &[("startLine", "1!"), ("startColumn", "1"), ("endLine", "1"), ("endColumn", "1"), ("byteOffset", "0"), ("byteLength", "0")]),
    ("fix", &[("description", "words"), ("artifactChanges", "change[1]!")]),
    ("change", &[("artifactLocation", "artifact!"), ("replacements", "replacement[1]!")]),
    ("replacement", &[("deletedRegion", "region!"), ("insertedContent", "content")]),
    ("content", &[("text", "any text")]),
];

/// Says what is wrong with a value that is to be of this kind.
fn wrong(kind: &str, value: &Value, at: &str) -> Vec<String> {
    if let Some((of, least)) = kind.split_once('[') {
        let Some(list) = value.as_array() else { return vec![format!("{at} is no list")] };
        let few = (list.len() < usize::from(least.starts_with('1'))).then(|| format!("{at} is empty"));
        return few.into_iter().chain(list.iter().enumerate().flat_map(|(n, value)| wrong(of, value, &format!("{at}/{n}")))).collect();
    }
    let text = value.as_str();
    let is_uri_like = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte));
    let fine = match kind {
        "text" => text.is_some_and(|text| !text.is_empty()),
        "any text" => text.is_some(),
        "2.1.0" => text == Some(kind),
        "uri" => text.is_some_and(|text| text.starts_with("https://") && is_uri_like(text)),
        "reference" => text.is_some_and(is_uri_like),
        "level" => matches!(text, Some("none" | "note" | "warning" | "error")),
        "columns" => matches!(text, Some("utf16CodeUnits" | "unicodeCodePoints")),
        "0" | "1" => value.as_u64().is_some_and(|number| number >= kind.parse().unwrap()),
        _ => {
            let (_, properties) = KINDS.iter().find(|(name, _)| *name == kind).unwrap_or_else(|| panic!("there is no kind {kind}"));
            let Some(object) = value.as_object() else { return vec![format!("{at} is no object")] };
            let known = |name: &str| properties.iter().find(|(known, _)| *known == name);
            let missing =
                properties.iter().filter(|(name, of)| of.ends_with('!') && !object.contains_key(*name)).map(|(name, _)| format!("{at} has no {name}"));
            let inside = object.iter().flat_map(|(name, value)| match known(name) {
                Some((_, of)) => wrong(of.trim_end_matches('!'), value, &format!("{at}/{name}")),
                None => vec![format!("{at} has a property {name}")],
            });
            return missing.chain(inside).collect();
        }
    };
    if fine { Vec::new() } else { vec![format!("{at} is no {kind}: {value}")] }
}

#[test]
fn every_finding_is_told_as_the_standard_asks() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/diagnostics/broken");
    let mut bench = Bench::new();
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let Ok(text) = fs::read_to_string(&path) else { continue };
        names.push(format!("a folder/{}", path.file_name().unwrap().to_str().unwrap()));
        bench = bench.file(names.last().unwrap(), &text);
    }
    names.sort();
    let arguments: Vec<&str> = ["validate", "--format", "sarif"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let log: Value = serde_json::from_str(&bench.spinney(&arguments).code(2).out).unwrap();
    assert_eq!(wrong("log", &log, ""), Vec::<String>::new());
    let run = &log["runs"][0];
    let (rules, results) = (run["tool"]["driver"]["rules"].as_array().unwrap(), run["results"].as_array().unwrap());
    assert!(rules.len() > 40 && results.len() > 80 && results.iter().any(|result| result["fixes"].is_array()), "{} {}", rules.len(), results.len());
    for result in results {
        let rule = &rules[usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap()];
        assert_eq!(rule["id"], result["ruleId"]);
        let ids: Vec<&Value> = result["relatedLocations"].as_array().into_iter().flatten().map(|location| &location["id"]).collect();
        assert!(ids.iter().enumerate().all(|(at, id)| !ids[..at].contains(id)), "numbers of places are distinct: {result}");
        for place in result["locations"].as_array().unwrap() {
            let region = &place["physicalLocation"]["region"];
            let at = |line: &str, column: &str| (region[line].as_u64(), region[column].as_u64());
            assert!(at("startLine", "startColumn") <= at("endLine", "endColumn"), "{result}");
        }
    }
}

#[test]
fn the_check_itself_finds_what_is_wrong() {
    let log = serde_json::json!({"version": "2.0", "runs": [{"results": [{"level": "bad", "extra": 1, "locations": [{"physicalLocation": {"artifactLocation": {"uri": "a b"}, "region": {"startLine": 0}}}], "fixes": [{"artifactChanges": []}]}]}]});
    assert_eq!(wrong("log", &log, "").len(), 8, "{:?}", wrong("log", &log, ""));
}
