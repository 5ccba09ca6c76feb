//! What is found in workflows: explained, mended, and told to programs.
use crate::fixture::Bench;
use serde_json::{Value, json};
use std::{fs, path::PathBuf};

fn broken() -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/diagnostics/broken");
    let mut files: Vec<(String, String)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter_map(|path| Some((path.file_name()?.to_str()?.to_owned(), fs::read_to_string(&path).ok()?)))
        .collect();
    files.sort();
    files
}

fn json_of(bench: &Bench, arguments: &[&str]) -> Value {
    serde_json::from_str(&bench.spinney(arguments).out).unwrap()
}

/// The findings of one file: code, message, and whether it carries a change.
fn findings(verdict: &Value) -> Vec<(String, String, bool)> {
    let found = verdict["diagnostics"].as_array().unwrap().iter();
    found.map(|found| (found["code"].as_str().unwrap().to_owned(), found["message"].as_str().unwrap().to_owned(), !found["fix"].is_null())).collect()
}

#[test]
fn a_code_is_explained_by_its_code_and_its_name() {
    let bench = Bench::new();
    let page = bench.spinney(&["explain", "E014"]).code(0).out;
    assert!(page.starts_with("E014: a duration that cannot be read\n\n"), "{page}");
    assert!(page.contains("    -  test: { run: cargo test, timeout: 10 minutes }\n    +  test: { run: cargo test, timeout: 10m }\n"), "{page}");
    assert!(!page.contains("```"), "{page}");
    for word in ["e014", "bad_duration", "bad-duration"] {
        assert_eq!(bench.spinney(&["explain", word]).code(0).out, page);
    }
    let refused = bench.spinney(&["explain", "E0144"]).code(2);
    assert!(refused.err.starts_with("error: failed to find the code `E0144`\nhint: did you mean `E014`?"), "{refused:?}");
    assert!(bench.spinney(&["explain", "nonsense"]).code(2).err.contains("`spinney explain` lists them all"));
    let all = bench.spinney(&["explain"]).code(0).out;
    assert!(all.starts_with("E001  the file is not YAML\n") && all.contains("\nW001  "), "{all}");
}

const TYPOS: &str = r#"version: 1
name: typos
inputs: { level: { type: string, default: patch, required: "false" } }
steps:
  test:
    run: cargo test
  lint: { nedes: [test], run: cargo clippy }
  bump: { run: "cargo release {{ inputs.lvel }}" }
  say:
    needs:
      - test
    run: "echo {{ steps.lint.stdout | sh }} {{ steps.bump.exit_cod | sh }} {{ steps.test.stdout | sh }}"
  tell: { needs: tset, run: "echo {{ steps.lint.stdout | sh }}" }
  last:
    run: "echo {{ steps.say.stdout | sh }}"
"#;

const MENDED: &str = r#"version: 1
name: typos
inputs: { level: { type: string, default: patch, required: false } }
steps:
  test:
    run: cargo test
  lint: { needs: [test], run: cargo clippy }
  bump: { run: "cargo release {{ inputs.level | sh }}" }
  say:
    needs:
      - lint
      - bump
      - test
    run: "echo {{ steps.lint.stdout | sh }} {{ steps.bump.exit_code | sh }} {{ steps.test.stdout | sh }}"
  tell: { needs: [test, lint], run: "echo {{ steps.lint.stdout | sh }}" }
  last:
    needs: [say]
    run: "echo {{ steps.say.stdout | sh }}"
"#;

#[test]
fn what_a_machine_can_mend_is_mended_in_the_file() {
    for crlf in [false, true] {
        let ends = |text: &str| if crlf { text.replace('\n', "\r\n") } else { text.to_owned() };
        let bench = Bench::new().workflow("typos", &ends(TYPOS));
        let file = bench.repo().join(".spinney/workflows/typos.yaml");
        let told = bench.spinney(&["validate", "typos"]).code(2).out;
        assert!(told.contains("`spinney validate --fix` mends what a machine can"), "{told}");
        assert_eq!(fs::read_to_string(&file).unwrap(), ends(TYPOS), "nothing is written that was not asked for");
        let said = bench.spinney(&["validate", "typos", "--fix"]).code(0).out;
        assert!(said.starts_with("typos: ok, 6 steps, 10 changes made\n  .spinney/workflows/typos.yaml:"), "{said}");
        assert!(said.lines().count() == 11 && said.contains(" is now `needs`\n"), "{said}");
        assert_eq!(fs::read_to_string(&file).unwrap(), ends(MENDED));
        assert_eq!(bench.spinney(&["validate", "--fix"]).code(0).out, "typos: ok, 6 steps\n");
    }
}

const LISTS: &str = r#"version: 1
name: lists
inputs: { level: { type: string, default: patch } }
steps:
  first: { run: ls }
  second: { run: ls }
  third:
    needs:
    - first
    run: "echo {{ steps.first.stdout | sh }} {{ steps.second.stdout | sh }}"
  fourth:
    needs:
    -   step: first
        on: done
    run: "echo {{ steps.second.stdout | sh }}"
  bump: { run: "cargo {{ inputs.level }} {{ inputs.level }} {{ inputs.levl | sh }}" }
"#;

/// A list may be indented like its key. And what is wrong with a command is told in one go.
#[test]
fn lists_are_mended_as_they_are_written_and_one_finding_hides_no_other() {
    let bench = Bench::new().workflow("lists", LISTS);
    let told = json_of(&bench, &["validate", "lists", "--format", "json"]);
    let codes: Vec<&str> = told[0]["diagnostics"].as_array().unwrap().iter().map(|found| found["code"].as_str().unwrap()).collect();
    assert_eq!(codes.iter().filter(|code| **code == "E057").count(), 2, "{told:#}");
    assert_eq!(codes.len(), 5, "two reads without a wait, two values without quotes, one name: {told:#}");
    let said = bench.spinney(&["validate", "lists", "--fix"]).code(0).out;
    assert!(said.starts_with("lists: ok, 5 steps, 5 changes made\n"), "{said}");
    let mended = LISTS
        .replace("    - first\n", "    - second\n    - first\n")
        .replace("    -   step", "    - second\n    -   step")
        .replace("inputs.level }}", "inputs.level | sh }}")
        .replace("levl", "level");
    assert_eq!(fs::read_to_string(bench.repo().join(".spinney/workflows/lists.yaml")).unwrap(), mended);
}

#[test]
fn a_template_that_is_not_quoted_is_called_by_its_name() {
    for line in ["prompt: {{ inputs.s }}", "prompt: {{ inputs.s }} and more", "prompt: Do it., skills: [{{ inputs.s }}]"] {
        let bench = Bench::new().workflow("bare", &format!("version: 1\nname: bare\nsteps:\n  a:\n    agent: x\n    {}\n", line.replace("., ", ".\n    ")));
        let said = bench.spinney(&["validate", "bare"]).code(2).out;
        assert!(said.contains("E001") && said.contains("quote a value that begins so"), "{said}");
    }
}

/// Opening a pipe waits for its other end, and a device need not have one.
#[test]
fn only_plain_files_are_read() {
    let bench = Bench::new().workflow("one", "version: 1\nname: one\nsteps: { a: { run: ls } }\n");
    let pipe = bench.repo().join("pipe.yaml");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let pipe = pipe.display().to_string();
    for arguments in [
        ["validate", pipe.as_str()].as_slice(),
        &["run", "one", "--script", "/dev/zero"],
        &["run", "one", "--script", &pipe],
        &["run", "one", "--replay", &pipe],
        &["plan", "one", "--stub", &pipe],
    ] {
        let said = bench.spinney(arguments).code(2);
        assert!((said.err + &said.out).contains("it is not a plain file"), "{arguments:?}");
    }
}

#[test]
fn outputs_name_the_steps_that_they_read() {
    let bench = Bench::new().workflow("all", "version: 1\nname: all\nsteps: { a: { run: ls } }\noutputs: { o: \"{{ steps }}\" }\n");
    let said = bench.spinney(&["validate", "all"]).code(2).out;
    assert!(said.contains("E055") && said.contains("`steps` as a whole cannot be read"), "{said}");
}

#[test]
fn after_mending_no_finding_of_a_broken_file_can_be_mended_any_more() {
    let files = broken();
    let bench = files.iter().fold(Bench::new(), |bench, (name, text)| bench.file(name, text));
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let after = json_of(&bench, &[&["validate", "--fix", "--format", "json"], names.as_slice()].concat());
    let again = json_of(&bench, &[&["validate", "--format", "json"], names.as_slice()].concat());
    let mut mended = 0;
    for ((name, text), (after, again)) in files.iter().zip(after.as_array().unwrap().iter().zip(again.as_array().unwrap())) {
        assert_eq!(findings(after), findings(again), "{name}: what is told is what is there");
        assert_eq!(findings(again).iter().filter(|(.., fix)| *fix).collect::<Vec<_>>(), Vec::<&(String, String, bool)>::new(), "{name}");
        assert_eq!(after["fixed"] != 0, fs::read_to_string(bench.repo().join(name)).unwrap() != *text, "{name}");
        assert!(findings(again).iter().all(|(code, ..)| code != "E001") || after["fixed"] == 0, "{name}: what was YAML still is");
        mended += after["fixed"].as_u64().unwrap();
    }
    assert!(mended > 20, "{mended}");
}

#[test]
fn a_file_with_links_is_mended_where_it_is_and_what_is_built_in_is_not() {
    let bench = Bench::new().file("real/flow.yaml", "version: 1\nname: flow\nsteps: { a: { rnu: ls } }\n");
    std::os::unix::fs::symlink("real/flow.yaml", bench.repo().join("flow.yaml")).unwrap();
    bench.spinney(&["validate", "--fix", "flow.yaml"]).code(0);
    assert!(fs::symlink_metadata(bench.repo().join("flow.yaml")).unwrap().is_symlink());
    assert!(fs::read_to_string(bench.repo().join("real/flow.yaml")).unwrap().contains("run: ls"));
    bench.spinney(&["validate", "--fix", "demo"]).code(0);
}

#[test]
fn several_files_become_one_log_for_code_hosts() {
    let bench = Bench::new()
        .file("ok.yaml", "version: 1\nname: ok\nsteps: { a: { run: ls } }\n")
        .file("typos.yaml", TYPOS)
        .file("race.yaml", "version: 1\nname: race\nsteps:\n  a: { run: ls, scope: [x] }\n  b: { run: ls, scope: [y] }\n");
    let log: Value = serde_json::from_str(&bench.spinney(&["validate", "--format", "sarif", "ok.yaml", "typos.yaml", "race.yaml"]).code(2).out).unwrap();
    assert_eq!((&log["version"], &log["runs"].as_array().unwrap().len()), (&json!("2.1.0"), &1));
    let run = &log["runs"][0];
    let rules: Vec<&str> = run["tool"]["driver"]["rules"].as_array().unwrap().iter().map(|rule| rule["id"].as_str().unwrap()).collect();
    assert_eq!(rules, ["E010", "E013", "E030", "E052", "E054", "E055", "E057", "E061"]);
    for rule in run["tool"]["driver"]["rules"].as_array().unwrap() {
        assert!(rule["help"]["markdown"].as_str().unwrap().contains("```diff") && rule["helpUri"].as_str().unwrap().contains("/docs/errors.md#e0"), "{rule}");
    }
    for result in run["results"].as_array().unwrap() {
        let id = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[id], result["ruleId"]);
        let place = &result["locations"][0]["physicalLocation"];
        let (file, region) = (place["artifactLocation"]["uri"].as_str().unwrap(), &place["region"]);
        let text = fs::read_to_string(bench.repo().join(file)).unwrap();
        let number = |key: &str| usize::try_from(region[key].as_u64().unwrap()).unwrap();
        let bytes = &text[number("byteOffset")..number("byteOffset") + number("byteLength")];
        let line = text.lines().nth(number("startLine") - 1).unwrap();
        let columns: String = line.chars().skip(number("startColumn") - 1).take(number("endColumn") - number("startColumn")).collect();
        assert_eq!(bytes, columns, "both say the same place");
    }
    let race = run["results"].as_array().unwrap().iter().find(|result| result["ruleId"] == "E061").unwrap();
    assert_eq!(race["relatedLocations"].as_array().unwrap().len(), 1);
    let fixed = run["results"].as_array().unwrap().iter().find(|result| result["ruleId"] == "E010").unwrap();
    assert_eq!(fixed["fixes"][0]["artifactChanges"][0]["replacements"][0]["insertedContent"]["text"], "needs");
}

/// What the schema of a value says is held against what the place wants, before the run.
#[test]
fn what_must_be_a_list_or_a_number_is_known_by_its_schema() {
    let yaml = |steps: &str| {
        format!(
            "version: 1\nname: w\ninputs: {{ n: {{ type: integer, default: 2 }}, many: {{ type: array, default: [] }}, text: {{ type: string, default: x }} }}\nagents: {{ a: {{ system: A. }} }}\nschemas: {{ s: {{ type: object, properties: {{ tasks: {{ $ref: \"#/schemas/list\" }}, n: {{ type: integer }}, flag: {{ type: boolean }} }} }}, list: {{ type: array, items: {{ type: object, properties: {{ id: {{ type: string }} }} }} }} }}\nsteps:\n  p: {{ agent: a, prompt: x, output: {{ schema: s }} }}\n  t: {{ agent: a, prompt: x }}\n  k: {{ needs: [p], for_each: {{ items: [x] }}, agent: a, prompt: x, output: {{ schema: s }} }}\n{steps}"
        )
    };
    let found = |steps: &str| {
        let bench = Bench::new().workflow("w", &yaml(steps));
        findings(&json_of(&bench, &["validate", "w", "--format", "json"])[0])
    };
    let each = |fan: &str| format!("  x: {{ needs: [p, t, k], {fan}, run: \"true\" }}\n");
    for (fan, message) in [
        ("for_each: { items: \"{{ steps.p.output }}\" }", "`for_each.items` must give a list, but this gives a map"),
        ("for_each: { items: \"{{ steps.p.output.n }}\" }", "`for_each.items` must give a list, but this gives a number"),
        ("for_each: { items: \"{{ steps.t.output }}\" }", "`for_each.items` must give a list, but this gives text or a number"),
        ("for_each: { items: \"{{ inputs.text }}\" }", "`for_each.items` must give a list, but this gives text"),
        ("matrix: { axis: \"{{ inputs.n }}\" }", "`matrix.axis` must give a list, but this gives a number"),
        ("matrix: { axis: [1, 2], max_parallel: \"{{ steps.p.output.flag }}\" }", "`max_parallel` must give a whole number, but this gives true or false"),
        ("for_each: { items: [1, 2], max_parallel: \"{{ inputs.many }}\" }", "`max_parallel` must give a whole number, but this gives a list"),
    ] {
        let all = found(&each(fan));
        assert_eq!(all.iter().map(|(code, said, _)| (code.as_str(), said.as_str())).collect::<Vec<_>>(), [("E013", message)], "{fan}");
    }
    for fan in [
        "for_each: { items: \"{{ steps.p.output.tasks }}\", max_parallel: \"{{ inputs.n }}\" }",
        "for_each: { items: \"{{ steps.k.results }}\" }",
        "for_each: { items: \"{{ inputs.text | split(pat=',') }}\" }",
        "matrix: { axis: \"{{ inputs.many }}\" }",
    ] {
        assert_eq!(found(&each(fan)), [], "{fan}");
    }
    let read = |text: &str| found(&format!("  x: {{ needs: [p, t, k], run: \"echo {{{{ {text} | sh }}}}\" }}\n"));
    for (text, message) in [
        ("steps.k.results[0].ouput", "an entry of the results of step `k` has no `ouput`"),
        ("steps.k.results[1].output.falg", "no field `falg`"),
        ("steps.p.output.tasks[0].ide", "no field `ide`"),
        ("steps.p.output['tasks'][0]['ide']", "no field `ide`"),
    ] {
        let all = read(text);
        assert!(all.len() == 1 && all[0].1.contains(message), "{text}: {all:?}");
    }
    for text in ["steps.k.results[0].output.flag", "steps.p.output.tasks[0].id", "steps.p.output.tasks[inputs.n].ide", "steps.t.output[0]"] {
        assert_eq!(read(text), [], "{text}");
    }
}

/// A file that cannot be read, or is not there, is told like any other finding and ends nothing.
#[test]
fn files_that_cannot_be_read_are_findings_among_the_others() {
    let bench = Bench::new().workflow("good", "version: 1\nname: good\nsteps: { a: { run: ls } }\n").file("bom.yaml", "version: 1\nname: x\nstpes: {}\n");
    fs::write(bench.repo().join(".spinney/workflows/latin.yaml"), b"version: 1\nname: latin\ndescription: caf\xe9\nsteps: { a: { run: ls } }\n").unwrap();
    fs::write(bench.repo().join("wide.yaml"), b"\xff\xfev\x00e\x00").unwrap();
    let said = bench.spinney(&["validate"]).code(2);
    assert!(said.out.contains("good: ok, 1 step\n"), "{}", said.out);
    assert!(said.out.contains("E004") && said.out.contains(".spinney/workflows/latin.yaml:3:17") && said.out.contains("latin: 1 error"), "{}", said.out);
    let all = ["validate", "wide.yaml", "bom.yaml", "gone.yaml", "nobody", "good", "--format", "json"];
    let told: Value = serde_json::from_str(&bench.spinney(&all).code(2).out).unwrap();
    let codes: Vec<(Value, Vec<String>)> =
        told.as_array().unwrap().iter().map(|verdict| (verdict["ok"].clone(), findings(verdict).into_iter().map(|(code, ..)| code).collect())).collect();
    let expected = [(false, vec!["E004"]), (false, vec!["E010"]), (false, vec!["E004"]), (false, vec!["E070"]), (true, vec![])];
    assert_eq!(codes, expected.map(|(ok, codes)| (json!(ok), codes.into_iter().map(str::to_owned).collect())));
    assert!(told[0]["diagnostics"][0]["message"].as_str().unwrap().contains("UTF-16"), "{told:#}");
    let log: Value = serde_json::from_str(&bench.spinney(&["validate", "--format", "sarif"]).code(2).out).unwrap();
    assert_eq!(log["runs"][0]["results"][0]["ruleId"], "E004", "{log:#}");
    let refused = bench.spinney(&["run", "latin"]).code(2);
    assert!(refused.err.contains("latin.yaml") && refused.err.contains("UTF-8"), "{}", refused.err);
}

const WANTS: &str = "version: 1\nname: wants\ninputs:\n  n: { type: integer, minimum: 2 }\n  l: { type: array }\n  e: { type: string, enum: [a, b] }\n  b: { type: boolean }\n  must: { type: string, required: true }\nsteps: { a: { run: ls } }\n";

/// Like the errors of a file.
#[test]
fn all_that_is_wrong_with_inputs_is_told_at_once() {
    let bench = Bench::new().workflow("wants", WANTS);
    let given = ["--input", "n=1", "--input", "l=1,2", "--input", "e=c", "--input", "b=yes", "--input", "zz=1", "--input", "plain", "--input", "n=3"];
    let said = bench.spinney(&[&["run", "wants"], given.as_slice()].concat()).code(2).err;
    for words in [
        "`n` is given twice",
        "`l` must be a list",
        "`e` does not fit",
        "`b` must be `true` or `false`",
        "no input `zz`",
        "`plain` has no `=`",
        "`must` must be given",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let planned = bench.spinney(&["plan", "wants", "--input", "b=yes", "--input", "n=1"]).code(2).err;
    assert!(planned.contains("`n` does not fit") && !planned.contains("must be given"), "{planned}");
    assert!(
        bench.spinney(&["run", "wants", "--input", "must=x", "--input", "b=yes"]).code(2).err.starts_with("error: failed to use the inputs: the input `b`")
    );
}

/// Nobody is to get another file than the one that is there, be it the built-in one.
#[test]
fn a_file_that_cannot_be_read_hides_what_lies_behind_it() {
    let bench = Bench::new();
    let workflows = bench.repo().join(".spinney/workflows");
    fs::create_dir_all(&workflows).unwrap();
    fs::write(workflows.join("feature.yaml"), b"version: 1\nname: feature\ndescription: caf\xe9\nsteps: { a: { run: ls } }\n").unwrap();
    let hooks = bench.repo().join(".spinney/hooks");
    fs::create_dir_all(&hooks).unwrap();
    fs::write(hooks.join("protect-files.json"), b"\xff").unwrap();
    let said = bench.spinney(&["validate"]).code(2);
    assert!(said.out.contains("E004") && said.out.contains("feature: 1 error"), "{}", said.out);
    let refused = bench.spinney(&["run", "feature", "--input", "goal=x"]).code(2);
    assert!(refused.err.contains("feature.yaml") && refused.err.contains("UTF-8"), "{}", refused.err);
    let flow = "version: 1\nname: flow\nhooks: [protect-files]\nsteps: { a: { run: ls } }\n";
    let bench = bench.workflow("flow", flow);
    let verdict = json_of(&bench, &["validate", "flow", "--format", "json"]);
    assert!(findings(&verdict[0]).iter().any(|(code, message, _)| code == "E033" && message.contains("protect-files")), "{verdict:#}");
}

#[test]
fn a_base_that_names_nothing_is_told_before_anything_is_begun() {
    let flow = "version: 1\nname: flow\ninputs: { from: { type: string, default: main } }\nsteps:\n  a: { run: ls }\n  b: { needs: [a], run: ls, workspace: { kind: shared, base: BASE } }\n";
    for (base, names) in [("nope", "nope"), ("\"{{ inputs.from }}x\"", "mainx")] {
        let bench = Bench::new().workflow("flow", &flow.replace("BASE", base));
        for verb in ["run", "plan"] {
            let refused = bench.spinney(&[verb, "flow"]).code(2);
            assert!(refused.err.starts_with(&format!("error: failed to start the step `b` from `{names}`")), "{}", refused.err);
        }
        assert!(bench.spinney(&["runs"]).code(0).out.lines().count() <= 1, "nothing was begun");
    }
    let bench = Bench::new().workflow("flow", &flow.replace("BASE", "\"{{ inputs.from }}\""));
    bench.spinney(&["plan", "flow"]).code(0);
}
