//! The toolchains that commands inside the walls may read: those that the environment names, and those that the programs of
//! `PATH` belong to.
//!
//! Never a home as a whole, nor a folder in it that holds keys, settings or papers: a version manager's folder of one
//! version is a toolchain, the folder that somebody put a `bin` into is not.
use crate::plan::KEYS;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

/// Folders that are looked through for links to programs, and entries of each that are looked at.
const FOLDERS_MAX: usize = 64;
const ENTRIES_MAX: usize = 8192;

/// A variable that names folders of tools.
struct Named {
    variable: &'static str,
    /// Where they are below the home when it is not set.
    usual: Option<&'static str>,
    /// What of them holds tools; everything where this is empty.
    parts: &'static [&'static str],
}

const fn whole(variable: &'static str) -> Named {
    Named { variable, usual: None, parts: &[] }
}

const fn below(variable: &'static str, usual: &'static str) -> Named {
    Named { variable, usual: Some(usual), parts: &[] }
}

const GEMS: &[&str] = &["bin", "build_info", "bundler", "doc", "extensions", "gems", "plugins", "specifications"];
const NAMED: &[Named] = &[
    // Beside these lie the keys of registries.
    Named { variable: "CARGO_HOME", usual: Some(".cargo"), parts: &["bin", "registry", "git", "config.toml", "env"] },
    Named { variable: "GEM_HOME", usual: None, parts: GEMS },
    Named { variable: "GEM_PATH", usual: None, parts: GEMS },
    Named { variable: "GOPATH", usual: Some("go"), parts: &["bin", "pkg", "src"] },
    Named { variable: "HEX_HOME", usual: None, parts: &["packages"] },
    below("BUN_INSTALL", ".bun"),
    below("MIX_HOME", ".mix"),
    below("NVM_DIR", ".nvm"),
    below("OPAMROOT", ".opam"),
    below("PYENV_ROOT", ".pyenv"),
    below("RBENV_ROOT", ".rbenv"),
    below("RUSTUP_HOME", ".rustup"),
    below("VOLTA_HOME", ".volta"),
    whole("ANDROID_HOME"),
    whole("CMAKE_PREFIX_PATH"),
    whole("CONDA_PREFIX"),
    whole("CPATH"),
    whole("C_INCLUDE_PATH"),
    whole("DENO_DIR"),
    whole("DOTNET_ROOT"),
    whole("FLUTTER_ROOT"),
    whole("GOMODCACHE"),
    whole("GOROOT"),
    whole("JAVA_HOME"),
    whole("LD_LIBRARY_PATH"),
    whole("LIBRARY_PATH"),
    whole("M2_HOME"),
    whole("MAVEN_HOME"),
    whole("NIX_SSL_CERT_FILE"),
    whole("NODE_PATH"),
    whole("PKG_CONFIG_PATH"),
    whole("PNPM_HOME"),
    whole("PYTHONPATH"),
    whole("SDKROOT"),
    whole("SSL_CERT_DIR"),
    whole("SSL_CERT_FILE"),
    whole("STACK_ROOT"),
    whole("VIRTUAL_ENV"),
];

/// Folders of a home that are nobody's toolchain, whatever names them, beside those that hold keys; nothing in them is.
const PAPERS: &[&str] = &["Desktop", "Documents", "Downloads", "Mail"];
/// Folders of a home that hold toolchains beside much else.
const MIXED: &[&str] = &[".cache", ".local", ".local/lib", ".local/share", ".local/state", ".var", "Library", "snap"];
/// Folders of the system that are never shown as a whole.
const SYSTEM: &[&str] = &["/boot", "/dev", "/etc", "/home", "/media", "/mnt", "/proc", "/root", "/run", "/srv", "/sys", "/tmp", "/usr", "/usr/local", "/var"];
/// What a folder has that programs were installed into; two of them are no chance.
const INSTALLED: &[&str] = &["bin", "include", "jmods", "lib", "lib64", "libexec", "pkg", "pyvenv.cfg", "share"];
/// What a folder has that is more than that.
const MORE: &[&str] = &[".env", ".git", ".netrc", ".npmrc", ".ssh", "auth.json", "credentials", "credentials.toml"];

/// Returns the folders and files of toolchains, none inside another.
pub(super) fn toolchains(environment: &BTreeMap<String, String>) -> Vec<PathBuf> {
    let home = environment.get("HOME").filter(|home| Path::new(home).is_absolute()).map(PathBuf::from);
    let mut found = Found { home: home.clone(), ..Found::default() };
    for named in NAMED {
        let set = environment.get(named.variable).filter(|value| !value.is_empty());
        let usual = || home.as_ref().zip(named.usual).map(|(home, usual)| home.join(usual));
        let folders: Vec<PathBuf> = set.map_or_else(|| usual().into_iter().collect(), |value| std::env::split_paths(value).collect());
        for folder in folders {
            if named.parts.is_empty() {
                found.add(&folder);
            }
            for part in named.parts {
                found.add(&folder.join(part));
            }
            found.programs.push((folder.join("bin"), false));
        }
    }
    let path = environment.get("PATH").into_iter().flat_map(std::env::split_paths);
    found.programs.extend(path.map(|folder| (folder, true)));
    found.follow();
    found.outermost()
}

#[derive(Default)]
struct Found {
    home: Option<PathBuf>,
    paths: BTreeSet<PathBuf>,
    /// Folders of programs that are still to be looked through, and whether they are to be shown themselves.
    programs: Vec<(PathBuf, bool)>,
}

impl Found {
    /// Takes a folder or file where it may be shown: by this path, and by the one that links in it lead to.
    fn add(&mut self, path: &Path) {
        let Ok(real) = path.canonicalize() else { return };
        for path in [path, &real] {
            if self.may_be_shown(path) && self.may_be_shown(&real) {
                self.paths.insert(path.to_owned());
            }
        }
    }

    /// Follows the programs of `PATH`, and what they are links to, to the installations that they belong to.
    fn follow(&mut self) {
        let mut seen = BTreeSet::new();
        while let Some((folder, is_shown)) = self.programs.pop() {
            if seen.len() == FOLDERS_MAX || !folder.is_absolute() || !seen.insert((folder.clone(), is_shown)) {
                continue;
            }
            if is_shown && !is_of_the_system(&folder) {
                self.add_programs(&folder);
            }
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten().take(ENTRIES_MAX);
            let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
            for target in links.filter_map(|entry| entry.path().canonicalize().ok()).collect::<BTreeSet<_>>() {
                let Some(folder) = target.parent().filter(|_| !is_of_the_system(&target)) else { continue };
                if folder.ends_with("bin") {
                    self.programs.push((folder.to_owned(), true));
                } else {
                    self.add(&target);
                }
            }
        }
    }

    /// Takes a folder of programs, and the installation around it, where it is one.
    fn add_programs(&mut self, folder: &Path) {
        let around = folder.parent().filter(|around| folder.ends_with("bin") && is_installation(around) && self.may_be_shown(around));
        match around {
            Some(around) => self.add(around),
            // Whoever put a folder of programs onto `PATH` has named it, wherever it is.
            None if folder.ends_with("bin") && !self.is_around_home(folder) => drop(self.paths.insert(folder.to_owned())),
            None => self.add(folder),
        }
    }

    fn is_around_home(&self, path: &Path) -> bool {
        self.home.as_ref().is_some_and(|home| home.starts_with(path) || home.canonicalize().is_ok_and(|home| home.starts_with(path)))
    }

    fn may_be_shown(&self, path: &Path) -> bool {
        let is_plain = path.is_absolute() && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        let Some(home) = &self.home else { return is_plain && !SYSTEM.iter().any(|system| path == Path::new(system)) };
        let homes = [Some(home.clone()), home.canonicalize().ok()];
        is_plain
            && path.parent().is_some()
            && !SYSTEM.iter().any(|system| path == Path::new(system))
            && homes.iter().flatten().all(|home| {
                !home.starts_with(path)
                    && !KEYS.iter().chain(PAPERS).any(|private| path.starts_with(home.join(private)))
                    && !MIXED.iter().any(|mixed| path == home.join(mixed))
            })
    }

    fn outermost(self) -> Vec<PathBuf> {
        let mut outermost: Vec<PathBuf> = Vec::new();
        // Sorted, so that what is inside of a folder follows it.
        for path in self.paths {
            if !outermost.iter().any(|outer| path.starts_with(outer)) {
                outermost.push(path);
            }
        }
        outermost
    }
}

/// Returns whether what is there is shown anyway.
fn is_of_the_system(path: &Path) -> bool {
    ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/nix/store", "/gnu/store"].iter().any(|system| path.starts_with(system))
}

/// Returns whether a folder looks as if programs had been installed into it, and nothing else were there.
fn is_installation(folder: &Path) -> bool {
    let has = |name: &&&str| folder.join(name).symlink_metadata().is_ok();
    INSTALLED.iter().filter(has).count() >= 2 && !MORE.iter().any(|name| has(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn folders(home: &Path, names: &[&str]) {
        for name in names {
            fs::create_dir_all(home.join(name)).unwrap();
        }
    }

    fn shown(home: &Path, variables: &[(&str, &str)]) -> Vec<String> {
        let at = |text: &str| text.replace('~', &home.display().to_string());
        let environment = variables.iter().chain(&[("HOME", "~")]).map(|(name, value)| ((*name).to_owned(), at(value))).collect();
        toolchains(&environment).iter().map(|path| path.strip_prefix(home).unwrap_or(path).display().to_string()).collect()
    }

    #[test]
    fn what_variables_name_is_shown_and_what_holds_keys_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        folders(
            &home,
            &["go/bin", "go/pkg", ".cargo/registry", "jdk/bin", "venv/bin", ".nvm/versions", ".pyenv/shims", ".ssh/tools", ".gem/gems", ".local/bin"],
        );
        fs::write(home.join(".cargo/credentials.toml"), "").unwrap();
        let variables = [("JAVA_HOME", "~/jdk"), ("VIRTUAL_ENV", "~/venv"), ("GEM_HOME", "~/.gem"), ("PYTHONPATH", "~:~/.local:~/.ssh/tools:relative")];
        assert_eq!(shown(&home, &variables), [".cargo/registry", ".gem/gems", ".nvm", ".pyenv", "go/bin", "go/pkg", "jdk", "venv"]);
    }

    #[test]
    fn programs_are_shown_with_the_installation_that_they_belong_to() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        folders(
            &home,
            &[
                ".nvm2/v20/bin",
                ".nvm2/v20/lib",
                ".local/bin",
                ".local/lib",
                ".local/share/uv/py/bin",
                ".local/share/uv/py/lib",
                "code/bin",
                "work/lib",
                "work/.git",
                "papers/bin",
            ],
        );
        fs::write(home.join(".local/share/uv/py/bin/python"), "").unwrap();
        fs::create_dir_all(home.join(".local/share/tool")).unwrap();
        fs::write(home.join(".local/share/tool/1.2"), "").unwrap();
        symlink(home.join(".local/share/uv/py/bin/python"), home.join(".local/bin/python")).unwrap();
        symlink("../share/tool/1.2", home.join(".local/bin/tool")).unwrap();
        symlink("v20", home.join(".nvm2/current")).unwrap();
        let path = "~/.local/bin:~/.config/tool/bin:~/.nvm2/current/bin:~/code/bin:~/papers/bin:/usr/bin:~";
        assert_eq!(
            shown(&home, &[("PATH", path)]),
            [".config/tool/bin", ".local/bin", ".local/share/tool/1.2", ".local/share/uv/py", ".nvm2/current", ".nvm2/v20", "code/bin", "papers/bin"]
        );
    }
}
