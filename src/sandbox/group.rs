//! Process groups: ending them as a whole, and noting them so that they do not outlive this program.
//!
//! A note is a file whose name is `PID-START-SESSION-BOOT`, where the start is the kernel's tick count
//! for the process and the boot is that of the machine. A number that was given to another process since does not match.
//! It holds the command's token, by which those are known who left the group, as daemons do. Before the process is there
//! its token is noted already, so that no moment is left in which a death of this program leaves it unknown.
use super::{SandboxError, orphans};
use crate::clock::boot;
use rustix::process::{Pid, Signal, getpid, kill_process_group, test_kill_process_group};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// The variable that marks processes started for a run.
pub(super) const MARK: &str = "SPINNEY";

/// The variable that holds a command's token.
pub(super) const TOKEN: &str = "SPINNEY_COMMAND";

/// Most times that a command's strays are looked for: whoever starts new ones faster than that is left.
const SWEEPS_MAX: usize = 50;

/// What the name of a note begins with while its process is about to be started.
const COMING: &str = ".coming-";

/// Most notes that are looked at in one go.
const NOTES_MAX: usize = 10_000;

/// Where living groups are noted.
#[derive(Debug)]
pub(super) struct Registry {
    folder: PathBuf,
    boot: String,
}

impl Registry {
    pub(super) fn open(folder: PathBuf) -> Result<Registry, SandboxError> {
        match fs::create_dir_all(&folder) {
            Ok(()) => Ok(Registry { folder, boot: boot() }),
            Err(source) => Err(SandboxError::Registry { path: folder, source }),
        }
    }

    /// Notes a command that is about to be started.
    pub(super) fn announce(&self, token: &Token) -> Option<Announced> {
        let note = Announced(self.folder.join(format!("{COMING}{}-{}", token.text(), self.boot)));
        // Without it the process is unknown until its group is noted.
        fs::write(&note.0, token.text()).ok().map(|()| note)
    }
}

/// The note of a command that is about to be started. Dropping it forgets it.
#[derive(Debug)]
pub(super) struct Announced(PathBuf);

impl Drop for Announced {
    fn drop(&mut self) {
        let _become_that_of_a_group = fs::remove_file(&self.0);
    }
}

/// Reads the name of such a note: the token, where it is of this boot.
fn announced(name: &str, boot: &str) -> Option<Token> {
    let (token, of) = name.strip_prefix(COMING)?.rsplit_once('-')?;
    Token::parse(token).filter(|_| of == boot)
}

/// One command, told apart from every other since the machine was started. All processes that come of it inherit it, also
/// those that leave its group and session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token(String);

impl Token {
    /// Makes a token that no other command of this boot has.
    pub(super) fn new() -> Token {
        static PROGRAM: LazyLock<String> = LazyLock::new(|| {
            let pid = getpid().as_raw_nonzero().get();
            format!("{pid}-{}", Stat::of(pid).map_or(0, |stat| stat.start))
        });
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Token(format!("{}-{}", *PROGRAM, COUNT.fetch_add(1, Ordering::Relaxed)))
    }

    /// Reads a token back; nothing where the text is none, such as that of a note cut short.
    pub(super) fn parse(text: &str) -> Option<Token> {
        let parts: Vec<&str> = text.split('-').collect();
        (parts.len() == 3 && parts.iter().all(|part| part.parse::<u64>().is_ok())).then(|| Token(text.to_owned()))
    }

    /// Returns its text, for the environment.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Kills every process that has it, wherever it went; returns whether there were any. Only on systems with `/proc`.
    pub(super) fn kill_strays(&self) -> bool {
        let mark = format!("{TOKEN}={}", self.0);
        let mut found = false;
        for _ in 0..SWEEPS_MAX {
            let Some(numbers) = numbers() else { break };
            let killed = numbers.filter(|pid| has_variable(*pid, &mark) && kill_if(*pid, &mark)).count();
            if killed == 0 {
                break;
            }
            found = true;
        }
        found
    }
}

/// Kills a process where it still has a variable; its number cannot pass to another in between.
#[cfg(target_os = "linux")]
fn kill_if(pid: i32, variable: &str) -> bool {
    use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
    let held = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    held.is_some_and(|held| has_variable(pid, variable) && pidfd_send_signal(held, Signal::KILL).is_ok())
}

#[cfg(not(target_os = "linux"))]
fn kill_if(_pid: i32, _variable: &str) -> bool {
    false
}

/// A group that this program started and has not yet ended. Dropping it kills it, and whoever left it.
#[derive(Debug)]
pub(super) struct Group {
    leader: Pid,
    note: Option<PathBuf>,
    token: Option<Token>,
    ended: bool,
}

impl Group {
    /// Takes charge of the group that `leader` leads, and notes it. `token` is the one in its environment, and what was
    /// noted of it becomes the note of the group.
    pub(super) fn new(leader: Pid, token: Option<Token>, registry: Option<&Registry>, announced: Option<&Announced>) -> Group {
        let note = registry.and_then(|registry| {
            // Without the kernel's word on when it started nothing could be told apart later.
            let Stat { start, session, .. } = Stat::of(leader.as_raw_nonzero().get())?;
            let path = registry.folder.join(format!("{}-{start}-{session}-{}", leader.as_raw_nonzero(), registry.boot));
            let noted = match announced {
                Some(note) => fs::rename(&note.0, &path),
                None => fs::File::create_new(&path).map(drop),
            };
            noted.ok().map(|()| path)
        });
        Group { leader, note, token, ended: false }
    }

    /// Asks every process of the group to end; stopped ones are woken to hear it.
    pub(super) fn ask_to_end(&self) {
        // Errors mean that nobody is left.
        let _gone = kill_process_group(self.leader, Signal::TERM);
        let _gone = kill_process_group(self.leader, Signal::CONT);
    }

    /// Kills every process of the group. The leader must not have been waited for yet: until then its number is its own.
    pub(super) fn kill(&self) {
        let _gone = kill_process_group(self.leader, Signal::KILL);
    }

    /// Returns whether any process of the group may still run. The dead that nobody has waited for count only where the
    /// system does not tell them apart.
    pub(super) fn is_left(&self) -> bool {
        let leader = self.leader.as_raw_nonzero().get();
        test_kill_process_group(self.leader).is_ok() && processes().is_none_or(|mut all| all.any(|(_, stat)| stat.group == leader && !stat.dead))
    }

    /// Says that the group is over.
    pub(super) fn end(mut self) {
        self.ended = true;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.ended {
            self.kill();
        }
        if let Some(token) = &self.token {
            token.kill_strays();
            orphans::bury();
        }
        if let Some(note) = &self.note {
            let _already_gone = fs::remove_file(note);
        }
    }
}

/// Kills the groups that a dead program left behind and forgets them; returns how many were killed.
///
/// A group is killed where its leader still runs and started when the note says. Where the leader is gone, its group is
/// only killed if a process of it belongs to the same session, is no older than the note, and carries this program's mark in its
/// environment. Whoever left a group is known by the token in its environment. Only on systems with `/proc`; elsewhere notes are never written.
///
/// # Errors
/// `Registry` where the folder cannot be read; a missing one holds nothing.
pub fn reap(registry: &Path) -> Result<usize, SandboxError> {
    let entries = match fs::read_dir(registry) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(source) => return Err(SandboxError::Registry { path: registry.to_owned(), source }),
    };
    let boot = boot();
    let mut killed = 0;
    // Whoever opened a pipe would wait.
    let notes = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    for entry in notes.take(NOTES_MAX) {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let (note, coming) = (Note::parse(name), announced(name, &boot));
        if note.is_none() && !name.starts_with(COMING) {
            continue;
        }
        let note = note.filter(|note| note.boot == boot);
        let group =
            note.as_ref().is_some_and(|note| note.lives() && Pid::from_raw(note.leader).is_some_and(|leader| kill_process_group(leader, Signal::KILL).is_ok()));
        let token = coming.or_else(|| note.and_then(|_| Token::parse(&fs::read_to_string(entry.path()).ok()?)));
        // A process that is just starting another program shows no environment: it is seen the second time.
        let strays = token.is_some_and(|token| token.kill_strays() | token.kill_strays());
        killed += usize::from(group || strays);
        let _already_gone = fs::remove_file(entry.path());
    }
    Ok(killed)
}

/// A note, read back.
#[derive(Debug, PartialEq, Eq)]
struct Note {
    leader: i32,
    start: u64,
    session: i32,
    boot: String,
}

impl Note {
    fn parse(name: &str) -> Option<Note> {
        let mut parts = name.splitn(4, '-');
        let mut next = || parts.next();
        let note = Note { leader: next()?.parse().ok()?, start: next()?.parse().ok()?, session: next()?.parse().ok()?, boot: next()?.to_owned() };
        // Killing group 1 or below would mean everybody.
        (note.leader > 1 && Some(note.leader) != own_group()).then_some(note)
    }

    fn lives(&self) -> bool {
        match Stat::of(self.leader) {
            Some(stat) => stat.start == self.start && stat.group == self.leader,
            None => self.orphan_lives(),
        }
    }

    /// Looks for a process of the group whose leader is gone.
    fn orphan_lives(&self) -> bool {
        processes().is_some_and(|mut all| {
            all.any(|(pid, stat)| stat.group == self.leader && stat.session == self.session && stat.start >= self.start && is_marked(pid))
        })
    }
}

/// Returns the group of this program; 0 where it was made outside of the PID namespace that this program sees.
pub(super) fn own_group() -> Option<i32> {
    Stat::of(getpid().as_raw_nonzero().get()).map(|stat| stat.group)
}

/// Returns every process of the system, where it tells.
fn processes() -> Option<impl Iterator<Item = (i32, Stat)>> {
    Some(numbers()?.filter_map(|pid| Stat::of(pid).map(|stat| (pid, stat))))
}

/// Returns the number of every process of the system, where it tells.
pub(super) fn numbers() -> Option<impl Iterator<Item = i32>> {
    let entries = fs::read_dir("/proc").ok()?;
    Some(entries.flatten().filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok())))
}

/// Returns whether a process was started with our mark in its environment.
fn is_marked(pid: i32) -> bool {
    has_variable(pid, &format!("{MARK}=1"))
}

/// Returns whether any process has a variable of this value, as far as the system tells; yes where it tells nothing.
pub fn is_anybodys(name: &str, value: &str) -> bool {
    numbers().is_none_or(|mut all| all.any(|pid| has_variable(pid, &format!("{name}={value}"))))
}

/// Returns whether any process of a program stands in one of some folders, as far as the system tells; yes where it tells nothing.
pub fn is_at_work(program: &str, folders: &[&Path]) -> bool {
    let is_of = |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == program);
    let stands = |pid: i32| match fs::read_link(format!("/proc/{pid}/cwd")) {
        Ok(cwd) => folders.iter().any(|folder| cwd.starts_with(folder)),
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    };
    numbers().is_none_or(|mut all| all.any(|pid| is_of(pid) && stands(pid)))
}

/// Returns whether a process was started with a variable, written `NAME=VALUE`, in its environment.
fn has_variable(pid: i32, variable: &str) -> bool {
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|found| found == variable.as_bytes()))
}

/// What the kernel says of a process.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    pub(super) start: u64,
    pub(super) dead: bool,
}

impl Stat {
    pub(super) fn of(pid: i32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Reads `/proc/PID/stat`: after the name, which may hold anything, come the fields from the third on.
    fn parse(text: &str) -> Option<Stat> {
        let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        let number = |at: usize| field(at)?.parse::<i32>().ok();
        let dead = matches!(field(3)?, "Z" | "X");
        Some(Stat { dead, parent: number(4)?, group: number(5)?, session: number(6)?, start: field(22)?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_cannot_confuse() {
        let text = "77 (a) Z 1 (b) S 1 70 60 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9";
        assert_eq!(Stat::parse(text), Some(Stat { parent: 1, group: 70, session: 60, start: 4242, dead: false }));
        assert_eq!(Stat::parse("77 (a"), None);
    }

    #[test]
    fn notes_that_would_kill_too_much_are_none() {
        for name in ["", "1-2-3-b", "0-2-3-b", "-5-2-3-b", "x-2-3-b", "5-2", &format!("{}-1-1-b", own_group().unwrap())] {
            assert_eq!(Note::parse(name), None, "{name}");
        }
        assert_eq!(Note::parse("5-6-7-ab"), Some(Note { leader: 5, start: 6, session: 7, boot: "ab".to_owned() }));
    }
}
