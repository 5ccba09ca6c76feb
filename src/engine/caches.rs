//! The caches of tools inside the walls: folders of the run's own, in which every command may write and find what others of the
//! run have written, and which go when the run is over.
//!
//! The user's own are to read at most: whatever is written there is found by everybody. What they hold already is linked into
//! the run's, thing by thing where it is never changed once it is there, so that a command writes beside it.
use super::{Ended, EngineError};
use crate::{journal::remove_all, tasks};
use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// Variables that name a cache, and its folder among the run's.
const EMPTY: &[(&str, &str)] = &[
    ("GOCACHE", "go-build"),
    ("GRADLE_USER_HOME", "gradle"),
    ("PIP_CACHE_DIR", "pip"),
    ("UV_CACHE_DIR", "uv"),
    ("XDG_CACHE_HOME", "other"),
    ("npm_config_cache", "npm"),
];
/// What of the user's `CARGO_HOME` is linked as it is: what cargo reads, and never writes without a network.
const CARGO: &[&str] = &["bin", "config.toml", "git/db", "registry/cache", "registry/index"];
/// Unpacked packages that are linked at most.
const PACKAGES_MAX: usize = 20_000;

/// Makes the caches of a run below a folder; returns the variables that lead to them.
pub(super) fn make(folder: &Path, environment: &BTreeMap<String, String>) -> io::Result<BTreeMap<String, String>> {
    let below = |name: &str| folder.join(name);
    let mut set = BTreeMap::new();
    plain(folder)?;
    for (variable, name) in EMPTY {
        plain(&below(name))?;
        set.insert((*variable).to_owned(), below(name).display().to_string());
    }
    // A wrapper of the compiler (a cache that a server keeps, say) is not there inside; cargo does without where this is empty.
    set.extend(["RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"].map(|variable| (variable.to_owned(), String::new())));
    let users = |variable: &str, usual: &str| {
        let named = environment.get(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
        named.or_else(|| environment.get("HOME").map(|home| Path::new(home).join(usual))).filter(|path| path.is_absolute() && path.is_dir())
    };
    if let Some(cargo) = users("CARGO_HOME", ".cargo") {
        plain(&below("cargo"))?;
        link_cargo(&cargo, &below("cargo"))?;
        set.insert("CARGO_HOME".to_owned(), below("cargo").display().to_string());
    }
    // Go takes modules from the downloads of another cache as if they came from a server.
    let gopath = users("GOPATH", "go").map(|path| path.join("pkg/mod"));
    if let Some(downloads) = users("GOMODCACHE", "go/pkg/mod").or(gopath).map(|cache| cache.join("cache/download")).filter(|path| path.is_dir()) {
        plain(&below("go-mod"))?;
        set.insert("GOMODCACHE".to_owned(), below("go-mod").display().to_string());
        set.insert("GOPROXY".to_owned(), format!("file://{}", downloads.display()));
        // What it unpacks can be removed again.
        let flags = environment.get("GOFLAGS").map(|flags| format!("{flags} ")).unwrap_or_default();
        set.insert("GOFLAGS".to_owned(), flags + "-modcacherw");
    }
    Ok(set)
}

/// Carries out a run, and removes its caches where it is over.
pub(super) async fn until_over(folder: PathBuf, run: impl Future<Output = Result<Ended, EngineError>>) -> Result<Ended, EngineError> {
    let ended = run.await;
    if matches!(ended, Ok(Ended::Finished(_))) {
        // What is left of them takes room and does no harm.
        let _ = tasks::blocking(move || remove_all(&folder)).await;
    }
    ended
}

/// Makes a `CARGO_HOME` that has what the user's has, where cargo can unpack and lock.
fn link_cargo(users: &Path, own: &Path) -> io::Result<()> {
    for name in CARGO {
        link(&users.join(name), own, Path::new(name))?;
    }
    // One folder a registry, and in it one a package.
    let registries = entries(&users.join("registry/src"));
    let packages = registries.iter().flat_map(|registry| entries(registry).into_iter().map(move |package| (registry, package)));
    for (registry, package) in packages.take(PACKAGES_MAX) {
        let names = registry.file_name().zip(package.file_name());
        if let Some((registry, name)) = names {
            link(&package, own, &Path::new("registry/src").join(registry).join(name))?;
        }
    }
    Ok(())
}

/// Makes a folder, and puts it in the place of a link: a command of the run may have left one, and whatever is made here would
/// be made where that leads.
fn plain(folder: &Path) -> io::Result<()> {
    match fs::symlink_metadata(folder) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => fs::remove_file(folder)?,
        Err(_) => {}
    }
    fs::create_dir(folder)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Links to what is there, where nothing stands yet at a place in a folder.
fn link(to: &Path, own: &Path, at: &Path) -> io::Result<()> {
    let (Ok(to), Some(above)) = (to.canonicalize(), at.parent()) else { return Ok(()) };
    let mut folder = own.to_owned();
    for part in above {
        folder.push(part);
        plain(&folder)?;
    }
    match symlink(to, own.join(at)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_caches_are_read_through_those_of_the_run_and_nothing_is_written_there() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().canonicalize().unwrap().join(name);
        for name in ["home/.cargo/registry/src/io/a-1", "home/.cargo/registry/cache/io", "home/go/pkg/mod/cache/download"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        fs::write(at("home/.cargo/registry/src/io/a-1/lib.rs"), "a").unwrap();
        fs::write(at("home/.cargo/credentials.toml"), "key").unwrap();
        let environment = BTreeMap::from([("HOME", at("home")), ("GOFLAGS", "-x".into())].map(|(name, value)| (name.to_owned(), value.display().to_string())));
        // A run that is resumed finds them there.
        make(&at("run"), &environment).unwrap();
        // Where a command has left links in the place of folders, nothing is made where they lead.
        fs::create_dir(at("elsewhere")).unwrap();
        for name in ["run/npm", "run/cargo/registry"] {
            fs::remove_dir_all(at(name)).unwrap();
            symlink(at("elsewhere"), at(name)).unwrap();
        }
        let set = make(&at("run"), &environment).unwrap();
        assert_eq!(entries(&at("elsewhere")), [] as [PathBuf; 0]);
        assert!(at("run/npm").symlink_metadata().unwrap().is_dir());
        let cargo = Path::new(&set["CARGO_HOME"]);
        assert_eq!(fs::read_to_string(cargo.join("registry/src/io/a-1/lib.rs")).unwrap(), "a");
        assert!(!cargo.join("credentials.toml").exists(), "no key");
        fs::create_dir(cargo.join("registry/src/io/b-1")).unwrap();
        assert!(!at("home/.cargo/registry/src/io/b-1").exists());
        assert_eq!(set["GOPROXY"], format!("file://{}", at("home/go/pkg/mod/cache/download").display()));
        assert_eq!(set["GOFLAGS"], "-x -modcacherw");
        let folders = set.iter().filter(|(name, _)| !matches!(name.as_str(), "GOPROXY" | "GOFLAGS") && !name.ends_with("_WRAPPER"));
        assert!(folders.map(|(_, path)| Path::new(path)).all(|path| path.starts_with(at("run"))));
        assert_eq!(set["RUSTC_WRAPPER"], "");
    }
}
