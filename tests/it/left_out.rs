//! What a merge or a choice goes without, and what is told of work that nothing joined.
use crate::fixture::Bench;
use serde_json::{Value, json};

/// A writer, one that `more` is said of, and what joins the two.
fn two(more: &str, joins: &str) -> Bench {
    let flow = format!(
        r#"
version: 1
name: two
inputs: {{ docs: {{ type: boolean, default: false }} }}
steps:
  red: {{ run: "exit 1", allow_failure: false, if: "{{{{ inputs.docs }}}}" }}
  code: {{ run: "echo c > code.txt", scope: code.txt }}
  docs: {{ run: "echo d > docs.txt", scope: docs.txt{more} }}
  land: {joins}
  after: {{ needs: [land], run: "ls" }}
outputs: {{ land: "{{{{ steps.land.output }}}}", files: "{{{{ steps.after.stdout }}}}" }}
"#
    );
    Bench::new().workflow("two", &flow)
}

const OPTIONAL: &str = ", if: \"{{ inputs.docs }}\"";
const MERGE: &str = "{ needs: [code, docs], merge: { from: [code, docs] } }";

/// How the simulation ends, and whose work would stand on no branch.
fn simulated(bench: &Bench, inputs: &[&str]) -> (Value, Value) {
    let stub = bench.script("{}");
    let said = bench.spinney(&[&["plan", "two", "--stub", &stub, "--json"], inputs].concat());
    let run: Value = serde_json::from_str(&said.out).unwrap();
    (run["outcome"]["succeeded"]["output"]["land"]["landed"].clone(), run["left_over"].clone())
}

#[test]
fn a_merge_joins_what_there_is_where_a_source_was_skipped() {
    for joins in [MERGE, "{ needs: [code, { step: docs, on: done }], merge: { from: [code, docs] } }"] {
        let bench = two(OPTIONAL, joins);
        assert_eq!(simulated(&bench, &[]), (json!(["code"]), json!([])));
        let said = bench.spinney(&["run", "two", "--unconfined"]).code(0);
        assert!(said.all().contains("The result stands on branch") && !said.all().contains("no branch"), "{}", said.all());
        let branch = format!("spinney/{}", bench.newest());
        assert_eq!(bench.git(&["show", &format!("{branch}:code.txt")]), "c\n");
    }
}

#[test]
fn a_choice_is_made_of_the_candidates_that_there_are() {
    let bench = two(OPTIONAL, "{ needs: [code, docs], select: { from: [code, docs] } }");
    let said = bench.spinney(&["run", "two", "--unconfined"]).code(0);
    assert!(said.all().contains("it is the only candidate"), "{}", said.all());
    assert!(said.all().contains("code.txt"), "{}", said.all());
}

#[test]
fn what_joins_is_skipped_where_none_of_its_sources_is_there() {
    let flow = "version: 1\nname: two\nsteps:\n  a: { if: \"false\", run: \"echo a > a\", scope: a }\n  b: { if: \"false\", run: \"echo b > b\", scope: b }\n  land: { needs: [a, b], merge: { from: [a, b] } }\n";
    let bench = Bench::new().workflow("two", flow);
    let said = bench.spinney(&["run", "two", "--unconfined"]).code(0);
    assert!(said.all().contains("skipped: because of how b ended"), "{}", said.all());
    assert!(said.all().contains("Nothing differs from the commit the run started from"), "{}", said.all());
}

#[test]
fn what_follows_a_failure_is_no_source_that_a_merge_goes_without() {
    // `docs` is skipped since `red` has failed: what comes after the merge must not go on as if all were well.
    let after = two(", needs: [red]", MERGE);
    let said = after.spinney(&["run", "two", "--unconfined", "--input", "docs=true"]).code(1);
    assert!(said.all().contains("land") && said.all().contains("skipped: because of how docs ended"), "{}", said.all());
    // Where it was said that its end does not matter, it is gone without.
    let whatever = two(", needs: [red]", "{ needs: [code, { step: docs, on: done }], merge: { from: [code, docs] } }");
    let said = whatever.spinney(&["run", "two", "--unconfined", "--input", "docs=true"]).code(1);
    assert!(said.all().contains("joined code"), "{}", said.all());
    // And where nothing had failed before it, too: the step that it needs was skipped itself.
    assert_eq!(simulated(&after, &[]).0, json!(["code"]));
}

#[test]
fn a_run_at_the_end_of_its_budget_joins_what_there_is() {
    let flow = r"
version: 1
name: two
budget: { turns: 2, on_exceed: finish }
defaults: { max_parallel: 1 }
agents: { w: { access: write, system: w } }
steps:
  code: { agent: w, prompt: quick, scope: code.txt }
  docs: { agent: w, prompt: slow, scope: docs.txt }
  land: { needs: [code, docs], merge: { from: [code, docs] } }
";
    let script = r#"
conversations:
  - agent: w
    turns:
      - calls: [{ tool: Write, input: { file_path: code.txt, content: "c\n" } }]
      - say: "Written."
"#;
    let bench = Bench::new().workflow("two", flow);
    let script = bench.script(script);
    let said = bench.spinney(&["run", "two", "--unconfined", "--script", &script]).code(0);
    assert!(said.all().contains("docs") && said.all().contains("skipped: the run was ending"), "{}", said.all());
    assert!(said.all().contains("succeeded, in part") && said.all().contains("The result stands on branch"), "{}", said.all());
}

#[test]
fn work_that_nothing_joined_is_named_with_its_ref() {
    let bench = two("", "{ needs: [code, docs], if: \"{{ inputs.docs }}\", merge: { from: [code, docs] } }");
    assert_eq!(simulated(&bench, &[]), (Value::Null, json!(["code", "docs"])));
    let said = bench.spinney(&["run", "two", "--unconfined"]).code(0);
    let run = bench.newest();
    let told = format!("Work that stands on no branch, since what was to join it did not:\n  code                     refs/spinney/{run}/code/result\n");
    assert!(said.all().contains(&told) && !said.all().contains("Nothing differs"), "{}", said.all());
    assert_eq!(bench.git(&["show", &format!("refs/spinney/{run}/docs/result:docs.txt")]), "d\n");
    let land = bench.spinney(&["land", &run.0]).code(0);
    assert!(land.out.contains(&format!("kept under refs/spinney/{run}/")), "{}", land.out);
}

#[test]
fn what_a_choice_passed_over_or_a_merge_put_aside_is_not_told_as_left() {
    let flow = r#"
version: 1
name: two
steps:
  a: { run: "echo a > x", scope: x }
  b: { run: "echo b > x", scope: x }
  pick: { needs: [a, b], select: { from: [a, b], tie: first } }
  c: { needs: [pick], run: "echo c > c", scope: c }
  d: { needs: [pick], run: "echo d > c", scope: c }
  land: { needs: [c, d], merge: { from: [c, d], on_conflict: { then: eject } } }
"#;
    let bench = Bench::new().workflow("two", flow);
    let said = bench.spinney(&["run", "two", "--unconfined"]).code(0);
    assert!(said.all().contains("The result stands on branch") && !said.all().contains("no branch"), "{}", said.all());
}
