//! What people read of a run whose steps have steps inside of them, and of one that failed.
use crate::fixture::Bench;
use spinney::event::Event;

const SHOWN: &str = r#"
version: 1
name: shown
agents: { reader: { system: "You read." } }
steps:
  each: { matrix: { a: [x], b: [1] }, run: "true" }
  polish:
    loop: { max: 2, until: "steps.fix.output == 2" }
    steps: { fix: { run: "echo {{ loop.iteration | sh }}", output: { parse: json } } }
  call: { workflow: part }
  broken:
    needs: [each, polish, call]
    output: { parse: json }
    run: |
      echo first
      exit 0
on_failure: { explain: { agent: reader, prompt: "Explain." } }
finally: { tidy: { run: "exit 3" } }
"#;
const PART: &str = "version: 1\nname: part\nsteps: { part: { run: \"true\" } }\n";

#[test]
fn steps_inside_of_steps_are_shown_below_them_by_the_names_that_they_go_by() {
    let bench = Bench::new().workflow("shown", SHOWN).workflow("part", PART);
    let said = bench.run("shown", "conversations: [{ turns: [{ say: It broke. }] }]", &[]).0.code(1).out;
    for line in [
        "`echo first …` is not JSON: ",
        "; it begins with `first`\n",
        "\non_failure#1.explain says\n  It broke.\n",
        "\nfinally#1.tidy failed\n  `exit 3` exited with 3\n",
        "  call                      called\n",
        "  polish                    round 2\n",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    let run = bench.newest();
    let shown = bench.spinney(&["show", &run.0]).code(0).out;
    let table = shown.lines().skip_while(|line| !line.starts_with("STEP")).skip(1).take_while(|line| !line.is_empty());
    let rows: Vec<String> = table
        .map(|line| {
            let depth = line.len() - line.trim_start().len();
            let words: Vec<&str> = line.split_whitespace().take(2).collect();
            format!("{}{}", &line[..depth], words.join(" "))
        })
        .collect();
    assert_eq!(
        rows,
        [
            "each succeeded",
            "  each/x,1 succeeded",
            "polish succeeded",
            "  polish#1.fix succeeded",
            "  polish#2.fix succeeded",
            "call succeeded",
            "  call#1.part succeeded",
            "broken failed",
            "on_failure succeeded",
            "  on_failure#1.explain succeeded",
            "finally failed",
            "  finally#1.tidy failed",
        ],
        "{shown}"
    );
    assert!(bench.spinney(&["runs"]).code(0).out.contains(" 4/4 "), "the steps of the workflow are counted, and nothing inside of them");
    for name in ["each/x,1", "polish#2.fix", "on_failure#1.explain", "finally"] {
        bench.spinney(&["show", &run.0, name]).code(0);
    }
    let broken = bench.spinney(&["show", &run.0, "broken"]).code(0).out;
    assert!(broken.contains("said last") && broken.contains("\n              first\n"), "{broken}");
}

#[test]
fn the_command_of_a_step_is_recorded_as_it_ran() {
    for place in ["", ", workspace: none"] {
        the_command_is_recorded(place);
    }
}

fn the_command_is_recorded(place: &str) {
    let workflow =
        &"version: 1\nname: one\ninputs: { word: { type: string, default: \"a b\" } }\nsteps: { say: { run: \"echo {{ inputs.word | sh }}\"PLACE } }\n"
            .replace("PLACE", place);
    let bench = Bench::new().workflow("one", workflow);
    let (said, records) = bench.run("one", "conversations: []", &[]);
    said.code(0);
    let recorded = records.iter().find_map(|record| if let Event::WorkspaceMade { command, .. } = &record.event { command.clone() } else { None });
    assert_eq!(recorded.as_deref(), Some("echo 'a b'"));
    let shown = bench.spinney(&["show", &bench.newest().0, "say"]).code(0).out;
    assert!(shown.contains("command     echo 'a b'"), "{shown}");
}
