//! The sandbox of an agent, judged: what its commands reach besides its workspace.
//!
//! Nobody's files are opened by the way: not the system's to write, not a home as a whole or what holds keys in it. A path is
//! judged here as it is written; where it leads is known when a run begins, and is judged then by the same rules.
use super::{
    destinations::{Destination, NetworkSpec, NoDestination},
    findings::Findings,
};
use crate::{
    source::{Spanned, codes},
    workflow::{Access, AgentSandbox, Network, Require},
};

/// What an agent's commands reach besides its workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxSpec {
    /// The network.
    pub network: NetworkSpec,
    /// Folders and files to read, `~/` for the home.
    pub read: Vec<String>,
    /// Folders and files to write.
    pub write: Vec<String>,
    /// What must hold them.
    pub require: Require,
    /// Whether it was to open something, and whoever wrote it is not trusted.
    pub is_shut: bool,
}

/// Why a path is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Objection {
    /// What is wrong, after the path.
    pub wrong: &'static str,
    /// What to write instead.
    pub help: &'static str,
}

/// What holds keys in a home, and nothing in it is opened.
pub(crate) const KEYS: &[&str] = &[
    ".aws",
    ".azure",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config",
    ".docker",
    ".gem/credentials",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".local/share/keyrings",
    ".m2/settings.xml",
    ".mozilla",
    ".netrc",
    ".npmrc",
    ".password-store",
    ".pypirc",
    ".ssh",
    ".thunderbird",
];
/// What programs of the user read or run by themselves: whoever writes it acts as the user, outside of any sandbox, the next time.
const STARTS: &[&str] = &[".bash_profile", ".bashrc", ".cargo/bin", ".gitconfig", ".local/bin", ".profile", ".zprofile", ".zshenv", ".zshrc", "bin"];
/// What is the kernel's, or where the sockets of services stand: never opened.
const MACHINE: &[&str] = &["boot", "dev", "proc", "run", "sys", "var/run"];
/// What holds everybody's files: not opened as a whole.
const SHARED: &[&str] = &["etc", "home", "media", "mnt", "opt", "root", "srv", "tmp", "usr", "usr/local", "var"];
/// The system's: not opened to write.
const SYSTEM: &[&str] = &["bin", "etc", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "sbin", "usr"];

impl SandboxSpec {
    /// Resolves what is written of an agent of this access.
    pub(super) fn judged(written: Option<&Spanned<AgentSandbox>>, access: Access, findings: &mut Findings<'_>) -> SandboxSpec {
        let Some(written) = written else { return SandboxSpec::default() };
        for (path, writes) in written.read.iter().map(|path| (path, false)).chain(written.write.iter().map(|path| (path, true))) {
            if let Some(Objection { wrong, help }) = objection(path, writes) {
                findings.report(findings.error(codes::OPENED, path.span, format!("`{}` {wrong}", path.value)).help(help));
            }
        }
        if let (Access::Read, Some(first)) = (access, written.write.first()) {
            let error = findings.error(codes::OPENED, first.span, "this agent only reads: its commands write nothing");
            findings.report(error.help("give it `access: write`, or take `write` out"));
        }
        let texts = |paths: &[Spanned<String>]| paths.iter().map(|path| path.value.clone()).collect();
        SandboxSpec {
            network: network(&written.network, findings),
            read: texts(&written.read),
            write: texts(&written.write),
            require: written.require.unwrap_or(Require::Full),
            is_shut: written.is_shut,
        }
    }

    /// Returns what of it an agent has that somebody with another one has started: what is open to both, and what each demands.
    #[must_use]
    pub fn within(&self, around: &SandboxSpec) -> SandboxSpec {
        let readable: Vec<&String> = around.read.iter().chain(&around.write).collect();
        SandboxSpec {
            network: self.network.within(&around.network),
            read: common(&self.read.iter().collect::<Vec<_>>(), &readable),
            write: common(&self.write.iter().collect::<Vec<_>>(), &around.write.iter().collect::<Vec<_>>()),
            require: self.require.max(around.require),
            is_shut: self.is_shut,
        }
    }

    /// Returns what of it an agent has that only reads.
    #[must_use]
    pub fn to_read(&self) -> SandboxSpec {
        SandboxSpec { write: Vec::new(), ..self.clone() }
    }

    /// Returns whether what a command does may stay beyond its worktree.
    pub fn reaches_out(&self) -> bool {
        self.network != NetworkSpec::None || !self.write.is_empty()
    }
}

/// Resolves the network that is written. Of a list with an entry that is wrong the others count.
fn network(written: &Network, findings: &mut Findings<'_>) -> NetworkSpec {
    let written = match written {
        Network::None => return NetworkSpec::None,
        Network::Full => return NetworkSpec::Full,
        Network::Only(hosts) => hosts,
    };
    let mut hosts: Vec<Destination> = Vec::new();
    for text in written {
        match Destination::parse(&text.value) {
            Ok(host) => {
                if let Some(other) = hosts.iter().find(|other| other.covers(&host)) {
                    let warning = findings.warning(codes::DESTINATION, text.span, format!("`{}` is in the list already: `{other}`", text.value));
                    findings.report(warning.help("take it out"));
                }
                hosts.push(host);
            }
            Err(NoDestination { wrong, help }) => {
                let error = findings.error(codes::DESTINATION, text.span, format!("`{}` {wrong}", text.value));
                findings.report(error.help(help));
            }
        }
    }
    if hosts.is_empty() { NetworkSpec::None } else { NetworkSpec::Only(hosts) }
}

/// Returns what is inside a path of both lists.
fn common(own: &[&String], others: &[&String]) -> Vec<String> {
    let mut all = Vec::new();
    for path in own {
        for other in others {
            let (a, b) = (parts(path), parts(other));
            if a.starts_with(&b) {
                all.push((*path).clone());
            } else if b.starts_with(&a) {
                all.push((*other).clone());
            }
        }
    }
    all.sort();
    all.dedup();
    all
}

/// Splits a path; the first part of one that is absolute is empty.
fn parts(path: &str) -> Vec<&str> {
    let first = path.split('/').next();
    first.into_iter().chain(path.split('/').skip(1).filter(|part| !matches!(*part, "" | "."))).collect()
}

/// Says why a path is opened to nobody's commands; `~` at its beginning stands for the home.
pub fn objection(path: &str, writes: bool) -> Option<Objection> {
    let no = |wrong, help| Some(Objection { wrong, help });
    let parts = parts(path);
    let (root, below) = parts.split_first()?;
    let is_home = *root == "~";
    if !is_home && !root.is_empty() {
        return no("is not absolute", "begin it with `/` or with `~/`; what stands in the workspace is there anyway, and `scope` says what of it is written");
    }
    if below.contains(&"..") {
        return no("climbs by `..`", "write where it leads to");
    }
    if path.contains(['*', '?']) {
        return no("is a pattern, and a path is taken as it is", "name the folder: all that is in it is open, too");
    }
    let below = below.join("/");
    let is_in = |places: &[&str]| places.iter().any(|place| below.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
    let is_around = |places: &[&str]| places.iter().any(|place| place.strip_prefix(below.as_str()).is_some_and(|rest| rest.starts_with('/')));
    match is_home {
        _ if below.is_empty() => no("is everything that is there", "name the one folder that is needed"),
        true if is_in(KEYS) || is_around(KEYS) => no("holds keys, or is around what does", "name a folder without any, or put what is needed into one"),
        true if writes && (is_in(STARTS) || is_around(STARTS)) => {
            no("is run by the user's own programs, outside of the sandbox", "name a folder that nothing but the work needs")
        }
        false if is_in(MACHINE) => no("is the machine's own", "name a folder of files"),
        false if SHARED.contains(&below.as_str()) => no("holds the files of many", "name the one folder that is needed"),
        false if writes && is_in(SYSTEM) => no("is the system's, to read only", "name a folder that nothing but the work needs"),
        true | false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobodys_files_are_opened_by_the_way() {
        let wrong = |path: &str, writes| objection(path, writes).map(|objection| objection.wrong);
        for open in [
            "/data",
            "/data/./x/",
            "~/data",
            "/opt/licence",
            "/usr/share/x",
            "/etc/x.conf",
            "/tmp/x",
            "~/.cache/x",
            "/home/other/x",
            "/running",
            "~/.configured",
            "~/.cargo/registry",
            "~/bin",
        ] {
            assert_eq!(wrong(open, false), None, "{open}");
        }
        let closed = [
            "/",
            "~",
            "~/",
            "//",
            "/.",
            "/proc/self",
            "/dev",
            "/run/user/1",
            "/var/run/docker.sock",
            "/etc",
            "/home/",
            "~/.ssh/id",
            "~/.config",
            "~/.local",
            "~/.local/share",
            "~/.netrc",
            "~/.cargo",
            "~/.cargo/credentials.toml",
            "~/.m2",
            "data",
            "",
            "./x",
            "~x",
            "~/a/../b",
            "/x/..",
            "/data/*",
        ];
        for closed in closed {
            assert!(wrong(closed, false).is_some(), "{closed}");
        }
        let kept = ["/usr/share/x", "/etc/x.conf", "/nix/store", "/bin", "~/bin", "~/.local/bin/x", "~/.bashrc", "~/.gitconfig"];
        assert!(kept.iter().all(|path| wrong(path, true).is_some()));
    }

    #[test]
    fn whoever_is_started_has_what_is_open_to_both() {
        let spec = |network, read: &[&str], write: &[&str], require| {
            let texts = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
            SandboxSpec { network, read: texts(read), write: texts(write), require, is_shut: false }
        };
        let chief = spec(NetworkSpec::None, &["/data", "~/a/b"], &["/out/x"], Require::Landlock);
        let own = spec(NetworkSpec::Full, &["/data/x", "~/a", "/database", "/out/x/y"], &["/out", "/data"], Require::None);
        assert_eq!(own.within(&chief), spec(NetworkSpec::None, &["/data/x", "/out/x/y", "~/a/b"], &["/out/x"], Require::Landlock));
        assert_eq!(own.within(&SandboxSpec::default()), SandboxSpec::default());
    }
}
