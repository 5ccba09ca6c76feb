//! `demo`: a small real repository, and the library's `demo` workflow run in it with a scripted model.
//!
//! The crate it brings along is real and has no dependencies; only the model's words come from a file.
use super::{
    Context, Failed,
    args::{Demo, How},
    outlet::Outlet,
    report::put,
    run as runner,
};
use crate::{
    engine::Settings,
    sandbox::{self, Confinement, Program, Request, Sandbox},
};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// Makes the repository, then runs the demo's workflow in it with the demo's script.
pub(super) fn run(args: &Demo, context: &mut Context) -> Result<u8, Failed> {
    let dir = folder(args, context)?;
    make_repository(&dir, context)?;
    // Only what ships with the program: the user's own files must not change what the demo shows.
    context.settings = Settings { directory: dir.clone(), config: None, home: None, ..context.settings.clone() };
    if !args.json {
        put(context, &format!("A small Rust crate stands in {}\n\n", dir.display()))?;
    }
    let project = runner::open(context)?;
    let models = runner::scripted("the demo's script", script().to_owned())?;
    let plan = runner::compile(&project, "demo", &models, context)?;
    let outlet = Outlet::default();
    let prepared = project.start(plan.clone(), &serde_json::Map::new(), &models, runner::options(&How::default(), &outlet, context))?;
    let code = runner::carry_out(prepared, (&plan, &models), (outlet, args.json), context)?;
    if !args.json {
        put(context, &format!("\nThe commands above work in that folder\n  cd {}\n", dir.display()))?;
        if let Some(program) = program_off_path(context) {
            put(context, &format!("  `spinney` is not on your PATH: it is {}\n", program.display()))?;
        }
    }
    Ok(code)
}

/// Returns where this program is, where a shell would not find it: after `cargo run`.
fn program_off_path(context: &Context) -> Option<PathBuf> {
    let path = context.settings.environment.get("PATH").map(String::as_str).unwrap_or_default();
    let program = std::env::current_exe().ok().filter(|program| program.file_name().is_some_and(|name| name == "spinney"))?;
    let found = std::env::split_paths(path).any(|folder| folder.join("spinney").is_file());
    (!found).then_some(program)
}

fn folder(args: &Demo, context: &Context) -> Result<PathBuf, Failed> {
    let Some(dir) = &args.dir else {
        let made = tempfile::Builder::new().prefix("spinney-demo-").tempdir().map_err(|error| Failed::new(format!("make a temporary folder: {error}")))?;
        return Ok(made.keep());
    };
    let dir = context.settings.directory.join(dir);
    let failed = |error: std::io::Error| Failed::usage(format!("make the folder `{}`: {error}", dir.display()));
    fs::create_dir_all(&dir).map_err(failed)?;
    if fs::read_dir(&dir).map_err(failed)?.next().is_some() {
        return Err(Failed::usage(format!("use `{}`: it is not empty", dir.display())).hint("name a new folder"));
    }
    Ok(dir)
}

fn make_repository(dir: &Path, context: &Context) -> Result<(), Failed> {
    for (path, content) in files() {
        let path = dir.join(path);
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, content));
        written.map_err(|error| Failed::new(format!("write `{}`: {error}", path.display())))?;
    }
    let sandbox = Sandbox::new(sandbox::Options { path: context.settings.environment.get("PATH").map(Into::into), ..sandbox::Options::default() })
        .map_err(|error| Failed::of(&error))?;
    let mut env = sandbox::clean_env(&context.settings.environment);
    env.extend([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")].map(|(name, value)| (name.to_owned(), value.to_owned())));
    for args in [
        ["init", "-q", "-b", "main"].as_slice(),
        &["add", "-A"],
        &["-c", "user.name=Demo", "-c", "user.email=demo@localhost", "commit", "-q", "-m", "A small crate"],
    ] {
        let request = Request {
            program: Program::Exec { program: "git".into(), args: args.iter().map(Into::into).collect() },
            cwd: dir.to_owned(),
            env: env.clone(),
            stdin: Vec::new(),
            timeout: Duration::from_mins(1),
            output_cap: 64 * 1024,
            confine: Confinement::None,
        };
        let output = sandbox.run_blocking(&request).map_err(|error| Failed::of(&error).hint("Spinney needs git 2.41 or newer on the PATH"))?;
        if !output.exit.is_success() {
            return Err(Failed::new(format!("make the demo's repository: git {} said: {}", args.join(" "), output.stderr.text().trim())));
        }
    }
    Ok(())
}

/// Returns the files of the crate: path and content, sorted by path.
fn files() -> &'static [(&'static str, &'static str)] {
    &[
        (".gitignore", include_str!("demo/gitignore.txt")),
        ("Cargo.lock", include_str!("demo/Cargo.lock.txt")),
        ("Cargo.toml", include_str!("demo/Cargo.toml.txt")),
        ("README.md", include_str!("demo/README.md.txt")),
        ("data/abbreviations.txt", include_str!("demo/abbreviations.txt")),
        ("scripts/abbreviations.sh", include_str!("demo/abbreviations.sh.txt")),
        ("src/abbreviations.rs", include_str!("demo/abbreviations.rs.txt")),
        ("src/lib.rs", include_str!("demo/lib.rs.txt")),
        ("src/lines.rs", include_str!("demo/lines.rs.txt")),
        ("src/sentences.rs", include_str!("demo/sentences.rs.txt")),
        ("src/words.rs", include_str!("demo/words.rs.txt")),
    ]
}

/// Returns what stands for the model, for [`crate::llm::script::Script::parse`].
fn script() -> &'static str {
    include_str!("../../workflows/demo.script.yaml")
}

#[cfg(test)]
mod tests;
