//! What a command did not find inside the walls although it is there outside of them.
use super::{Confinement, Exit, Request, confine::SYSTEM};
use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

/// Bytes of the end of what was said that are looked at, and of a script's first line.
const SAID_MAX: usize = 8 * 1024;
const FIRST_LINE_MAX: u64 = 256;
/// How shells and `env` say that there is no such program; its name stands before that.
const NOT_THERE: &[&str] = &["bad interpreter", "cannot execute", "command not found", "not found", "No such file or directory"];

/// Finds the program that a command which ended like this could not start for want of it.
pub(super) fn find(request: &Request, exit: Exit, said: &str) -> Option<PathBuf> {
    let Confinement::Bubblewrap(walls) = &request.confine else { return None };
    if !matches!(exit, Exit::Code(126 | 127)) {
        return None;
    }
    let shown = |path: &Path| {
        let open = walls.readable.iter().chain(&walls.writable).map(PathBuf::as_path).chain(SYSTEM.iter().map(Path::new));
        open.into_iter().any(|open| path.starts_with(open))
    };
    let left_out = |path: PathBuf| {
        let real = path.canonicalize().ok()?;
        if !shown(&path) || !shown(&real) {
            return Some(real);
        }
        let interpreter = place(request, &interpreter(&real)?)?.canonicalize().ok()?;
        (!shown(&interpreter)).then_some(interpreter)
    };
    let end = &said[said.ceil_char_boundary(said.len().saturating_sub(SAID_MAX))..];
    end.lines().rev().find_map(|line| left_out(place(request, missing(line)?)?))
}

/// Returns the name of the program that a line says is not there.
fn missing(line: &str) -> Option<&str> {
    let parts: Vec<&str> = line.split(": ").collect();
    let at = parts.iter().position(|part| NOT_THERE.iter().any(|words| part.starts_with(words)))?;
    let name = parts.get(at.checked_sub(1)?)?.trim().trim_matches(|c| matches!(c, '\'' | '"' | '`' | '‘' | '’'));
    (!name.is_empty()).then_some(name)
}

/// Finds a program as a shell outside of the walls would.
fn place(request: &Request, name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(request.cwd.join(name));
    }
    let folders = std::env::split_paths(request.env.get("PATH")?);
    folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Returns the program that a script is for, by its first line.
fn interpreter(script: &Path) -> Option<String> {
    let mut first = Vec::new();
    File::open(script).ok()?.take(FIRST_LINE_MAX).read_to_end(&mut first).ok()?;
    let text = String::from_utf8_lossy(&first);
    let mut words = text.strip_prefix("#!")?.lines().next()?.split_whitespace();
    let program = words.next()?;
    if program.ends_with("/env") { words.find(|word| !word.starts_with('-')).map(str::to_owned) } else { Some(program.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::missing;

    #[test]
    fn the_name_is_what_stands_before_the_words() {
        for (line, name) in [
            ("bash: line 1: tool: command not found", "tool"),
            ("sh: 1: tool: not found", "tool"),
            ("/usr/bin/env: ‘node’: No such file or directory", "node"),
            ("bash: line 3: /home/a/run: cannot execute: required file not found", "/home/a/run"),
            ("bash: ./run: /home/a/python: bad interpreter: No such file or directory", "/home/a/python"),
        ] {
            assert_eq!(missing(line), Some(name));
        }
        assert_eq!(missing("not found: x"), None);
    }
}
