//! The reference of the language says what is so: each of its examples is compiled, planned and simulated, and every
//! key is in it.
use crate::fixture::Bench;
use serde_json::{Map, Value};
use spinney::prompts;

const PAGE: &str = include_str!("../../docs/language.md");

/// The YAML examples of the page, in order.
fn examples() -> Vec<&'static str> {
    PAGE.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

fn map(yaml: &str) -> Map<String, Value> {
    serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{yaml}\n{error}"))
}

/// Puts an example into the page's whole file: names are added to its maps, and `defaults` and the like take their places.
fn within(frame: &Map<String, Value>, example: Map<String, Value>) -> Value {
    let mut whole = frame.clone();
    for (key, value) in example {
        match (whole.get_mut(&key), value) {
            (Some(Value::Object(there)), Value::Object(more)) if ["inputs", "models", "agents", "schemas", "steps"].contains(&key.as_str()) => {
                there.extend(more);
            }
            (_, value) => drop(whole.insert(key, value)),
        }
    }
    Value::Object(whole)
}

#[test]
fn every_example_is_compiled_planned_and_simulated() {
    let examples = examples();
    assert!(examples.len() >= 20, "where are the examples?");
    let frame = map(examples[0]);
    let mut bench = Bench::new().env("REGISTRY_TOKEN", "not to be seen");
    let mut names = Vec::new();
    for (at, example) in examples.iter().enumerate() {
        let whole = if at == 0 { (*example).to_owned() } else { within(&frame, map(example)).to_string() };
        let name = format!("example-{at}.yaml");
        bench = bench.file(&name, &whole);
        names.push(name);
    }
    let stub = bench.script("{}");
    for (name, example) in names.iter().zip(&examples) {
        let valid = bench.spinney(&["validate", name]);
        assert_eq!(valid.code, 0, "{example}\n{}", valid.out);
        let given: &[&str] = if example.contains("ticket:") { &["--input", "ticket=AB-1"] } else { &[] };
        for simulated in [&[] as &[&str], &["--stub", &stub]] {
            let planned = bench.spinney(&[&["plan", name.as_str()], given, simulated].concat());
            assert_eq!(planned.code, 0, "{example}\n{}\n{}", planned.out, planned.err);
        }
    }
}

#[test]
fn every_key_and_word_of_the_language_is_described() {
    let schema: Value = serde_json::from_str(&Bench::new().spinney(&["schema"]).code(0).out).unwrap();
    let is_said = |word: &str| ["`", ": "].iter().any(|end| PAGE.contains(&format!("`{word}{end}"))) || PAGE.contains(&format!("`{word}:"));
    let mut missing = Vec::new();
    for (object, definition) in schema["$defs"].as_object().unwrap() {
        missing.extend(definition["properties"].as_object().unwrap().keys().filter(|key| !is_said(key)).map(|key| format!("{object}.{key}")));
    }
    let mut words = Vec::new();
    collect(&schema, &mut words);
    missing.extend(words.into_iter().filter(|word| !is_said(word)));
    assert_eq!(missing, Vec::<String>::new(), "docs/language.md says nothing of these");
}

/// Gathers the words of every closed set.
fn collect(value: &Value, words: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            words.extend(fields.get("enum").and_then(Value::as_array).into_iter().flatten().filter_map(|word| word.as_str().map(str::to_owned)));
            fields.values().for_each(|value| collect(value, words));
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, words)),
        _ => {}
    }
}

#[test]
fn every_filter_that_is_named_exists() {
    let table = PAGE.split("| filter | gives |").nth(1).unwrap().split("\n\n").next().unwrap();
    let filters: Vec<&str> = table.lines().skip(2).flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2)).collect();
    assert!(filters.len() > 35, "{filters:?}");
    for filter in filters {
        let call = filter.replace('N', "9").replace('…', "1");
        assert_eq!(prompts::check(&format!("{{{{ x | {call} }}}}")).map(|_| ()), Ok(()), "{filter}");
    }
}
