//! Processes that commands leave behind, and that hide by whom they were started: daemons begun by `env -i setsid`, say.
//!
//! The program makes itself the one to whom the system hands processes whose parent has ended. So it knows at its own end what is left of
//! all that it has started, whatever group, session or environment that has, and waits for those that end before. Where it is
//! killed they go to the system's first process, and only those that have kept their command's token are found.
use super::group::{Stat, numbers, own_group};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};
use std::{collections::BTreeSet, fs};

/// Most times that orphans are looked for: whoever starts new ones faster than that is left.
const SWEEPS_MAX: usize = 50;

/// The orphans that this process takes over. Dropping it kills them.
#[derive(Debug)]
pub struct Orphans {
    /// Children that were there before, of which a shell became this program.
    before: BTreeSet<(i32, u64)>,
}

impl Orphans {
    /// Takes over whatever loses its parent from now on and comes of this process. For the program alone: who is one part of a process
    /// cannot tell its orphans from children of the others.
    pub fn take_over() -> Orphans {
        let before = children().into_iter().map(|(pid, stat)| (pid, stat.start)).collect();
        // Elsewhere than on Linux they stay the system's.
        #[cfg(target_os = "linux")]
        let _unsupported = rustix::process::set_child_subreaper(Some(getpid()));
        Orphans { before }
    }
}

impl Drop for Orphans {
    fn drop(&mut self) {
        for _ in 0..SWEEPS_MAX {
            // Whoever is in this program's own group belongs to the same command line of the user.
            let is_left = |(pid, stat): &(i32, Stat)| !stat.dead && Some(stat.group) != own_group() && !self.before.contains(&(*pid, stat.start));
            let left: Vec<Pid> = children().into_iter().filter(is_left).filter_map(|(pid, _)| Pid::from_raw(pid)).collect();
            if left.is_empty() {
                return;
            }
            for pid in left {
                let _gone = kill_process(pid, Signal::KILL);
                // What it has started itself is this program's once it is gone.
                let _gone = waitpid(Some(pid), WaitOptions::empty());
            }
        }
    }
}

/// Waits for the orphans that have ended, so that they take no room in the system's table.
///
/// A process that this program has started itself leads a group and cannot leave this program's session; it is waited for elsewhere.
pub(super) fn bury() {
    let Some(own) = Stat::of(getpid().as_raw_nonzero().get()) else { return };
    let is_orphan = |(pid, stat): &(i32, Stat)| stat.dead && stat.group != own.group && (stat.session != own.session || stat.group != *pid);
    for (pid, _) in children().into_iter().filter(is_orphan) {
        let _gone = Pid::from_raw(pid).map(|pid| waitpid(Some(pid), WaitOptions::NOHANG));
    }
}

/// Returns the children of this process, where the system tells.
fn children() -> Vec<(i32, Stat)> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let lists: Option<Vec<String>> = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("children")).ok()).collect();
    let of = |pid: i32| Stat::of(pid).map(|stat| (pid, stat));
    if let Some(lists) = lists {
        return lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|pid| of(pid.parse().ok()?)).collect();
    }
    // Not every kernel keeps such lists.
    let own = getpid().as_raw_nonzero().get();
    numbers().into_iter().flatten().filter_map(of).filter(|(_, stat)| stat.parent == own).collect()
}
