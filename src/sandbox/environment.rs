//! The environment of commands that agents run: what builds need, and nothing that opens a door.
use std::collections::BTreeMap;

/// Names that are handed on. Where programs, tools and their caches are; no name that carries an identity.
const KEPT: &[&str] = &[
    "ANDROID_HOME",
    "BUN_INSTALL",
    "CARGO_HOME",
    "CC",
    "CFLAGS",
    "CMAKE_PREFIX_PATH",
    "COMPOSER_HOME",
    "CONDA_PREFIX",
    "CPATH",
    "CXX",
    "CXXFLAGS",
    "C_INCLUDE_PATH",
    "DENO_DIR",
    "DEVELOPER_DIR",
    "DOTNET_ROOT",
    "FLUTTER_ROOT",
    "GEM_HOME",
    "GEM_PATH",
    "GOCACHE",
    "GOFLAGS",
    "GOMODCACHE",
    "GOPATH",
    "GOPROXY",
    "GOROOT",
    "GOTOOLCHAIN",
    "GRADLE_USER_HOME",
    "HEX_HOME",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "JAVA_HOME",
    "LANG",
    "LANGUAGE",
    "LDFLAGS",
    "LD_LIBRARY_PATH",
    "LIBRARY_PATH",
    "LOGNAME",
    "M2_HOME",
    "MAVEN_HOME",
    "MIX_HOME",
    "NIX_PATH",
    "NIX_SSL_CERT_FILE",
    "NODE_PATH",
    "NO_PROXY",
    "NVM_DIR",
    "OPAMROOT",
    "PATH",
    "PKG_CONFIG_PATH",
    "PNPM_HOME",
    "PYENV_ROOT",
    "PYTHONPATH",
    "RBENV_ROOT",
    "RUSTFLAGS",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "SDKROOT",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "STACK_ROOT",
    "TMPDIR",
    "TZ",
    "USER",
    "UV_CACHE_DIR",
    "VIRTUAL_ENV",
    "VOLTA_HOME",
    "XDG_CACHE_HOME",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "npm_config_cache",
];

/// Set for every command: no pager, no colours, no question, and a mark by which [`super::reap`] knows its own.
const SET: &[(&str, &str)] = &[("GIT_PAGER", "cat"), ("GIT_TERMINAL_PROMPT", "0"), ("PAGER", "cat"), (super::group::MARK, "1"), ("TERM", "dumb")];

/// Makes the environment for an agent's commands from the user's.
///
/// Kept are the names of a fixed list and `LC_*`; a value that holds a password (`https://user:word@proxy`) is dropped
/// with its name. `CI` is deliberately not set: it changes what tools do, not only how they print (warnings become errors,
/// snapshots are not written), so that an agent's result would not be the developer's.
pub fn clean_env(from: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let kept = from.iter().filter(|(name, value)| (KEPT.contains(&name.as_str()) || name.starts_with("LC_")) && !looks_secret(name) && !holds_password(value));
    let set = SET.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    kept.map(|(name, value)| (name.clone(), value.clone())).chain(set).collect()
}

/// Returns whether a variable's name says that its value is secret.
pub fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "AUTH", "COOKIE", "SESSION"].iter().any(|word| name.contains(word))
}

/// Returns whether a value is an address with a password in it.
fn holds_password(value: &str) -> bool {
    value.split("://").skip(1).any(|rest| rest.split(['/', '?', '#', ' ', ',']).next().is_some_and(|authority| authority.contains('@')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_builds_need_is_kept() {
        let from = [
            ("PATH", "/bin"),
            ("HOME", "/home/a"),
            ("LC_ALL", "C"),
            ("LC_API_KEY", "x"),
            ("CARGO_HOME", "/c"),
            ("AWS_PROFILE", "x"),
            ("ANTHROPIC_API_KEY", "x"),
            ("GIT_DIR", "/x"),
            ("SSH_AUTH_SOCK", "/x"),
            ("LD_PRELOAD", "/x"),
            ("BASH_ENV", "/x"),
            ("BASH_FUNC_ls%%", "() { rm; }"),
            ("HTTPS_PROXY", "http://me:word@proxy:1"),
            ("HTTP_PROXY", "http://proxy:1"),
            ("GOPROXY", "https://proxy.example,https://me:word@other,direct"),
            ("TERM", "xterm"),
        ];
        let from = from.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let clean = clean_env(&from);
        let names: Vec<&str> = clean.keys().map(String::as_str).collect();
        assert_eq!(names, ["CARGO_HOME", "GIT_PAGER", "GIT_TERMINAL_PROMPT", "HOME", "HTTP_PROXY", "LC_ALL", "PAGER", "PATH", "SPINNEY", "TERM"]);
        assert_eq!(clean["TERM"], "dumb");
    }
}
