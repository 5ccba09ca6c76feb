//! Every folder under `tests/scenarios/` is a run: a repository, a workflow, a script, and the screen a person reads. A new
//! scenario is a new folder. `UPDATE_SCENARIOS=1` writes the screens anew, to be read before they are committed.
use crate::fixture::Bench;
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

#[test]
fn every_scenario_reads_as_it_should() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut scenarios: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    scenarios.sort();
    assert!(scenarios.len() >= 6, "where are the scenarios?");
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let runs: Vec<_> = scenarios.iter().map(|scenario| scope.spawn(move || play(scenario))).collect();
        runs.into_iter().filter_map(|run| run.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Plays one scenario; returns what is wrong with it.
fn play(scenario: &Path) -> Option<String> {
    let name = scenario.file_name().unwrap().to_string_lossy().into_owned();
    let read = |file: &str| fs::read_to_string(scenario.join(file));
    let mut bench = Bench::new();
    let repo = files(&scenario.join("repo"));
    for (path, text) in &repo {
        bench = bench.file(path, text);
    }
    let bench = if repo.is_empty() { bench } else { bench.commit("the scenario's files") };
    let bench = bench.workflow(&name, &read("workflow.yaml").unwrap());
    let words = read("arguments").unwrap_or_default();
    let more: Vec<&str> = words.lines().collect();
    let (said, _) = bench.run(&name, &read("script.yaml").unwrap(), &more);
    let mut screen = normal(&said.out, &bench);
    let _ = writeln!(screen, "{}exit code {}", normal(&said.err, &bench), said.code);
    let run = bench.newest();
    let branch = format!("spinney/{run}");
    if !bench.git(&["branch", "--list", &branch]).is_empty() {
        let diff = bench.git(&["diff", "main", &branch]);
        let _ = write!(screen, "\n{}", diff.lines().filter(|line| !line.starts_with("index ")).collect::<Vec<_>>().join("\n") + "\n");
    }
    let expected = scenario.join("screen.txt");
    if std::env::var_os("UPDATE_SCENARIOS").is_some() {
        fs::write(&expected, &screen).unwrap();
        return None;
    }
    let wanted = read("screen.txt").unwrap_or_default();
    (wanted != screen).then(|| format!("{name}: wanted\n{wanted}\n{name}: got\n{screen}"))
}

/// Takes out what differs from run to run: the run's id, commits, folders, token counts.
fn normal(text: &str, bench: &Bench) -> String {
    let run = bench.newest().0;
    let text = text.replace(&run, "RUN").replace(&bench.path("").display().to_string(), "TMP/");
    // Tokens are counted from the text of tools and prompts, whose wording is nobody's promise.
    let tokens = regress::Regex::new(r"\d+k?(?= tokens)|\d+k?(?=  -$)").unwrap();
    let text: String = text.lines().map(|line| tokens.replace_all(line, "N") + "\n").collect();
    let mut normal = String::new();
    let mut word = String::new();
    for c in text.chars().chain(std::iter::once('\0')) {
        if c.is_ascii_hexdigit() {
            word.push(c);
            continue;
        }
        let is_commit = word.len() >= 8 && word.chars().any(|c| c.is_ascii_digit());
        normal.push_str(if is_commit { "COMMIT" } else { &word });
        word.clear();
        if c != '\0' {
            normal.push(c);
        }
    }
    normal
}

fn files(folder: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push((path.strip_prefix(folder).unwrap().display().to_string(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}
