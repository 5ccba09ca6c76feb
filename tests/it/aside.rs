//! Work that was put aside, or not chosen, goes no further: not to the next step, and not to the branch.
use crate::{
    fixture::{Bench, outcome},
    invariants,
};

const SCRIPT: &str = r#"
conversations:
  - agent: coder
    told: "file (?<file>\\S+)"
    turns:
      - calls: [{ tool: Write, input: { file_path: "${file}.txt", content: "made\n" } }]
      - say: done
"#;

/// Runs two writers, what joins them, and a step after it; returns the files that the last step saw and those of the branch.
fn ends(join: &str) -> (String, String) {
    let workflow = format!(
        "version: 1\nname: aside\nagents: {{ coder: {{ system: You code., access: write }} }}\nsteps:\n  first: {{ agent: coder, prompt: file first }}\n  left: {{ needs: [first], agent: coder, prompt: file left }}\n  right: {{ needs: [first], agent: coder, prompt: file right }}\n  land: {{ needs: [left, right], {join}, allow_failure: true }}\n  after: {{ needs: [land], run: ls }}\noutputs: {{ seen: \"{{{{ steps.after.stdout }}}}\" }}\n"
    );
    let bench = Bench::new().file(".gitignore", ".spinney/\n").commit("files").workflow("aside", &workflow);
    let (said, records) = bench.run("aside", SCRIPT, &[]);
    said.code(0);
    invariants::check(&records, &bench.repo());
    let seen = outcome(&records, "run")["succeeded"]["output"]["seen"].as_str().unwrap().trim_end().to_owned();
    let files = bench.git(&["ls-tree", "--name-only", &format!("spinney/{}", bench.newest())]);
    (seen, files)
}

#[test]
fn what_a_merge_puts_aside_goes_no_further() {
    for verify in
        ["merge: { from: [left, right], verify: [\"false\"], mode: each, on_red: { then: eject } }", "merge: { from: [left, right], verify: [\"false\"] }"]
    {
        let (seen, files) = ends(verify);
        assert_eq!(seen, "README.md\nfirst.txt", "{verify}");
        assert_eq!(files, ".gitignore\nREADME.md\nfirst.txt\n", "{verify}");
    }
    let (_, files) = ends("merge: { from: [left, right], verify: [\"! ls right.txt\"], mode: each, on_red: { then: eject } }");
    assert_eq!(files, ".gitignore\nREADME.md\nfirst.txt\nleft.txt\n");
}

#[test]
fn what_no_gate_let_pass_is_not_taken() {
    let (seen, files) = ends("select: { from: [left, right], gates: [\"false\"] }");
    assert_eq!(seen, "README.md\nfirst.txt");
    assert_eq!(files, ".gitignore\nREADME.md\nfirst.txt\n");
}

#[test]
fn a_merge_of_what_was_chosen_or_joined_brings_nothing_of_the_rest() {
    let workflow = r#"version: 1
name: nested
agents: { coder: { system: You code., access: write } }
steps:
  other: { run: "echo o > o.txt", scope: ["**"] }
  q: { matrix: { w: [a, b] }, run: "echo {{ matrix.w | sh }} > same.txt; echo q > q-{{ matrix.w | sh }}", scope: ["**"] }
  pick: { needs: [q], select: { from: q, gates: ["test ! -e q-b"] } }
  l: { run: "echo l > both.txt", scope: ["**"] }
  m: { run: "echo m > both.txt; echo m > m.txt", scope: ["**"] }
  some: { needs: [l, m], merge: { from: [l, m], mode: each, verify: ["test ! -e m.txt"], on_red: { then: eject } } }
  land: { needs: [other, pick, some], merge: { from: [other, pick, some], verify: ["test ! -e q-b"] } }
outputs: { commit: "{{ steps.land.commit }}" }
"#;
    let bench = Bench::new().file(".gitignore", ".spinney/\n").commit("files").workflow("nested", workflow);
    let (said, records) = bench.run("nested", SCRIPT, &[]);
    said.code(0);
    invariants::check(&records, &bench.repo());
    let files = bench.git(&["ls-tree", "--name-only", &format!("spinney/{}", bench.newest())]);
    assert_eq!(files, ".gitignore\nREADME.md\nboth.txt\no.txt\nq-a\nsame.txt\n");
}
