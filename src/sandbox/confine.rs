//! Walls by the kernel, put up by the `bwrap` program: a root of its own in which only what is named exists.
//!
//! Inside there are the system's programs and libraries (read-only), a few files of `/etc` that programs need to run,
//! fresh `/proc`, `/dev`, `/tmp` and home, and the named folders. Processes, shared memory, host name and, unless all of it is asked for,
//! the network are the sandbox's own; capabilities are dropped; the terminal is out of reach; everything dies with the
//! process that was started, and that one with this program's thread.
use super::{Exit, Inner, Program, Request, SandboxError, door::Entrance, proxy::Network};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// The walls around a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Confinement {
    /// Only the process group.
    #[default]
    None,
    /// A root, a process table and a network of its own.
    Bubblewrap(Walls),
}

/// What is inside the walls besides the system's programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walls {
    /// Folders and files that can be written; they must exist.
    pub writable: Vec<PathBuf>,
    /// Folders and files that can be read, such as toolchains; missing ones are left out. Inside a writable folder
    /// they are held read-only.
    pub readable: Vec<PathBuf>,
    /// The network that is there.
    pub network: Network,
    /// Variables that have another value inside.
    pub set: BTreeMap<String, String>,
}

/// Folders of programs and libraries; some are links into `/usr` on most systems.
pub(super) const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store", "/run/current-system"];

/// What programs need of `/etc`. No host names, no keys, no service's configuration.
const ETC: &[&str] = &[
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "group",
    "host.conf",
    "hosts",
    "java",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "lsb-release",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pki",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
];

/// Files that are only useful with a network.
const ETC_NETWORK: &[&str] = &["gai.conf", "resolv.conf"];

/// The program, and whether it knows how to forbid further user namespaces.
#[derive(Debug)]
pub(super) struct Bubblewrap {
    program: PathBuf,
    strict: bool,
}

impl Bubblewrap {
    /// Finds the program and tries it, with and without what only newer versions know.
    pub(super) fn probe(inner: &Inner) -> Option<Bubblewrap> {
        let program = super::find_program(OsStr::new("bwrap"), &inner.path)?;
        [true, false].into_iter().find_map(|strict| {
            let candidate = Bubblewrap { program: program.clone(), strict };
            candidate.works(inner).then_some(candidate)
        })
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    fn works(&self, inner: &Inner) -> bool {
        let root = Path::new("/");
        let Ok(mut args) = self.arguments(&Walls::default(), root, &BTreeMap::new(), None) else { return false };
        args.push(inner.shell.clone().into());
        args.extend(["-c".into(), "exit 0".into()]);
        let request = Request {
            program: Program::Exec { program: self.program.clone().into(), args },
            cwd: root.to_owned(),
            env: BTreeMap::new(),
            stdin: Vec::new(),
            timeout: Duration::from_secs(5),
            output_cap: 1024,
            confine: Confinement::None,
        };
        super::driver::run(inner, &request, super::Watch::default()).is_ok_and(|output| output.exit == Exit::Code(0))
    }

    /// Returns the arguments that stand before the program to be confined.
    pub(super) fn arguments(
        &self,
        walls: &Walls,
        cwd: &Path,
        env: &BTreeMap<String, String>,
        entrance: Option<&Entrance>,
    ) -> Result<Vec<OsString>, SandboxError> {
        if let Some(missing) = walls.writable.iter().find(|path| !path.exists()) {
            return Err(SandboxError::NoWritable(missing.clone()));
        }
        let mut args = Args::default();
        args.flags(&["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent", "--new-session"]);
        args.flags(&["--hostname", "sandbox", "--cap-drop", "ALL"]);
        if self.strict {
            args.flags(&["--disable-userns"]);
        }
        let has_all = walls.network == Network::Full;
        if !has_all {
            args.flags(&["--unshare-net"]);
        }
        for path in SYSTEM {
            args.system(Path::new(path));
        }
        let network: &[&str] = if has_all { ETC_NETWORK } else { &[] };
        for name in ETC.iter().chain(network) {
            args.bind("--ro-bind-try", &Path::new("/etc").join(name));
        }
        args.flags(&["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]);
        // A home of its own: what stands in the real one (keys, histories, settings) is not there.
        if let Some(home) = env.get("HOME").filter(|home| is_private(home)) {
            args.flags(&["--tmpfs", home]);
        }
        for (path, option) in mounts(walls) {
            args.bind(option, path);
        }
        for (name, value) in &walls.set {
            args.flags(&["--setenv", name, value]);
        }
        if let Network::Only(allowed) = &walls.network {
            for (outside, inside) in entrance.ok_or(SandboxError::NoEntrance)?.binds() {
                args.0.extend(["--ro-bind".into(), outside.into(), inside.into()]);
            }
            for (name, value) in allowed.variables() {
                args.flags(&["--setenv", name, &value]);
            }
        }
        args.flags(&["--setenv", "TMPDIR", "/tmp", "--chdir"]);
        args.0.push(cwd.into());
        args.flags(&["--"]);
        if matches!(walls.network, Network::Only(_)) {
            args.flags(&Entrance::arguments());
        }
        Ok(args.0)
    }
}

/// Returns what to mount, outer folders first, so that none hides another; of two on one place the read-only one is last.
fn mounts(walls: &Walls) -> Vec<(&Path, &'static str)> {
    let writable = walls.writable.iter().map(|path| (path.as_path(), "--bind"));
    let readable = walls.readable.iter().map(|path| (path.as_path(), "--ro-bind-try"));
    let mut mounts: Vec<_> = writable.chain(readable).collect();
    mounts.sort();
    mounts.dedup();
    mounts
}

/// Returns whether a home can be replaced without hiding the system.
fn is_private(home: &str) -> bool {
    let home = Path::new(home);
    home.is_absolute()
        && home.parent().is_some()
        && !SYSTEM.iter().chain(&["/etc", "/proc", "/dev"]).any(|system| home.starts_with(system) || Path::new(system).starts_with(home))
}

/// Arguments while they are gathered.
#[derive(Default)]
struct Args(Vec<OsString>);

impl Args {
    fn flags(&mut self, flags: &[&str]) {
        self.0.extend(flags.iter().map(OsString::from));
    }

    fn bind(&mut self, option: &str, path: &Path) {
        self.0.extend([option.into(), path.into(), path.into()]);
    }

    /// Shows a folder of the system as it is outside: as a folder, as a link, or not at all.
    fn system(&mut self, path: &Path) {
        match fs::read_link(path) {
            Ok(target) => self.0.extend(["--symlink".into(), target.into(), path.into()]),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => self.bind("--ro-bind", path),
            Err(_missing) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outer_mounts_come_first_and_read_only_wins() {
        let path = |text: &str| PathBuf::from(text);
        let walls = Walls { writable: vec![path("/w/a/b"), path("/w"), path("/x")], readable: vec![path("/w/a"), path("/x")], ..Walls::default() };
        let expected = [("/w", "--bind"), ("/w/a", "--ro-bind-try"), ("/w/a/b", "--bind"), ("/x", "--bind"), ("/x", "--ro-bind-try")];
        assert_eq!(mounts(&walls), expected.map(|(path, option)| (Path::new(path), option)));
    }

    #[test]
    fn a_home_never_hides_the_system() {
        assert!(["/root", "/home/a"].iter().all(|home| is_private(home)));
        assert!(["/", "", "x", "/usr", "/usr/x", "/run", "/nix", "/etc"].iter().all(|home| !is_private(home)));
    }
}
