//! `spinney init`: writes a first workflow and says what to do next. What is there already is never overwritten.
use super::{
    args,
    context::{Context, Failed},
    report::{line, put, repository},
};
use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// Where editors find the JSON Schema of workflow files.
const SCHEMA_URL: &str = "https://raw.githubusercontent.com/spinney-rs/spinney/main/docs/workflow.schema.json";
/// A file at the top of a repository, and the checks that such a repository usually has. The first that is there counts.
const CHECKS: &[(&str, &str)] = &[
    ("Cargo.toml", "cargo test -q"),
    ("go.mod", "go test ./..."),
    ("package.json", "npm test"),
    ("pyproject.toml", "python -m pytest -q"),
    ("Gemfile", "bundle exec rake test"),
    ("pom.xml", "mvn -q test"),
    ("Makefile", "make test"),
];
/// The check of a repository that none of these is in: no conflict markers and no trailing spaces.
const SOME_CHECK: &str = "git diff --check HEAD";
const LONGEST_NAME: usize = 64;

pub(super) fn run(args: &args::Init, context: &mut Context) -> Result<u8, Failed> {
    let name = &args.name;
    check_name(name)?;
    let repo = repository(context)?;
    let checkout = repo.main_checkout();
    let path = write(checkout, name, &workflow(name, check_for(checkout)))?;
    let below = path.strip_prefix(checkout).unwrap_or(&path).display().to_string();
    let unborn = if repo.head().is_ok() { "" } else { "There is no commit yet, and a run starts from one: make a first commit before.\n" };
    let said = format!(
        "Wrote {below}\n\n\
         Next\n  \
         1. Look at it: `verify` must say how your project is checked.\n  \
         2. spinney validate {name}\n  \
         3. spinney run {name} --input task=\"Say what is to be done\"\n     \
         It needs a model: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or add `--model ollama/MODEL`.\n\n\
         {unborn}A run touches nothing of your checkout: its result is a branch, and `spinney land RUN` takes it over.\n"
    );
    put(context, &said)?;
    Ok(0)
}

fn check_name(name: &str) -> Result<(), Failed> {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if first && plain && name.len() <= LONGEST_NAME {
        return Ok(());
    }
    Err(Failed::usage(format!("use `{}` as a workflow's name", line(name, 80)))
        .hint(format!("a name is made of lower-case letters, digits and `-`, begins with a letter, and has at most {LONGEST_NAME}")))
}

/// Returns the command that usually checks a repository like this one.
fn check_for(checkout: &Path) -> &'static str {
    CHECKS.iter().find(|(file, _)| checkout.join(file).is_file()).map_or(SOME_CHECK, |(_, check)| check)
}

fn workflow(name: &str, check: &str) -> String {
    format!(
        "\
# yaml-language-server: $schema={SCHEMA_URL}
version: 1
name: {name}
description: One agent does a task in a worktree of its own; its work counts once the checks are green.
inputs:
  task: {{ type: string, required: true, description: What to do }}
agents:
  coder:
    access: write # in its own worktree only; without this line an agent only reads
    system: Make the smallest change that does the task, in the style of the code around it, and test it.
steps:
  work:
    agent: coder
    prompt: \"{{{{ inputs.task }}}}\"
    verify: # red output goes back to the agent, at most this many times
      run: [{check}]
      attempts: 3
"
    )
}

/// Writes the file where none is. A repository may bring links, which would choose another place to write to.
fn write(checkout: &Path, name: &str, text: &str) -> Result<PathBuf, Failed> {
    let spinney = checkout.join(".spinney");
    let folder = spinney.join("workflows");
    for folder in [&spinney, &folder] {
        match fs::symlink_metadata(folder) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(Failed::usage(format!("write into `{}`: it is not a plain folder", folder.display()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir(folder).map_err(|error| unwritten(folder, &error))?,
            Err(error) => return Err(unwritten(folder, &error)),
        }
    }
    let other = folder.join(format!("{name}.yml"));
    let path = folder.join(format!("{name}.yaml"));
    if fs::symlink_metadata(&other).is_ok() {
        return Err(taken(&other));
    }
    let mut file = match File::options().write(true).create_new(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(taken(&path)),
        Err(error) => return Err(unwritten(&path, &error)),
    };
    file.write_all(text.as_bytes()).map_err(|error| unwritten(&path, &error))?;
    Ok(path)
}

fn taken(path: &Path) -> Failed {
    Failed::usage(format!("write `{}`: there is such a file", path.display())).hint("name another one: `spinney init NAME`")
}

fn unwritten(path: &Path, error: &io::Error) -> Failed {
    Failed::new(format!("write `{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::{Catalog, Plan},
        source::Source,
        workflow::Workflow,
    };
    use std::sync::Arc;

    #[test]
    fn what_is_written_is_a_workflow_without_a_finding() {
        let catalog = Catalog { default_model: Some("scripted/model".to_owned()), providers: ["scripted".to_owned()].into(), ..Catalog::default() };
        for check in CHECKS.iter().map(|(_, check)| *check).chain([SOME_CHECK]) {
            let source = Arc::new(Source { name: "first.yaml".to_owned(), text: workflow("first", check) });
            let workflow = Workflow::load(&source).unwrap_or_else(|found| panic!("{found}"));
            let (plan, warnings) = Plan::compile(&workflow, &catalog).unwrap_or_else(|found| panic!("{found}"));
            assert_eq!((plan.name.as_str(), plan.order().len(), warnings.len()), ("first", 1, 0));
            assert_eq!(plan.steps().next().and_then(|step| step.verify.as_ref()).map(|verify| verify.run[0].value.as_str()), Some(check));
        }
    }

    #[test]
    fn nothing_that_is_there_is_overwritten() {
        let checkout = tempfile::tempdir().unwrap();
        let path = write(checkout.path(), "first", "mine").unwrap();
        assert_eq!(write(checkout.path(), "first", "other").unwrap_err().code, 2);
        assert_eq!(fs::read_to_string(path).unwrap(), "mine");
        fs::write(checkout.path().join(".spinney/workflows/second.yml"), "").unwrap();
        assert!(write(checkout.path(), "second", "other").is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_does_not_choose_the_place() {
        let (checkout, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(elsewhere.path(), checkout.path().join(".spinney")).unwrap();
        assert!(write(checkout.path(), "first", "x").is_err());
        fs::remove_file(checkout.path().join(".spinney")).unwrap();
        fs::create_dir_all(checkout.path().join(".spinney/workflows")).unwrap();
        std::os::unix::fs::symlink(elsewhere.path().join("x"), checkout.path().join(".spinney/workflows/first.yaml")).unwrap();
        assert!(write(checkout.path(), "first", "x").is_err());
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }

    #[test]
    fn names_are_those_of_workflows() {
        for name in ["first", "a-1"] {
            assert!(check_name(name).is_ok());
        }
        for name in ["", "First", "1a", "../x", "a/b", "a_b", "é", "a\n", &"a".repeat(65)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }
}
