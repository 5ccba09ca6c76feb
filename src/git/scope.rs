//! The scope of a step: the globs that it may write, asked before its tools write and again when its work is committed.
use crate::workflow::{Misread, misread};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::path::Path;

/// Globs relative to the top folder. `*` and `?` stop at slashes, `**` does not; a leading `./` or `/` says nothing more, `.` is
/// the top folder, and what names a folder stands for all that is in it.
#[derive(Debug, Clone)]
pub struct Scope {
    patterns: Vec<String>,
    set: GlobSet,
}

/// A scope that cannot be used. Fits after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum ScopeError {
    /// Not a glob.
    #[error("read the glob `{pattern}` of a scope")]
    Glob {
        /// As written.
        pattern: String,
        /// The reason.
        source: globset::Error,
    },
    /// A glob that says nothing, or something else than it seems to.
    #[error("use the glob `{pattern}`: it {wrong}")]
    Misread {
        /// As written, or as it was rendered.
        pattern: String,
        /// What is wrong with it.
        wrong: &'static str,
        /// What to write instead.
        help: &'static str,
    },
    /// All globs together are too large.
    #[error("compile a scope of {0} globs")]
    Size(usize, #[source] globset::Error),
}

impl ScopeError {
    /// Returns what to write instead, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        if let ScopeError::Misread { help, .. } = self { Some(help) } else { None }
    }
}

impl Scope {
    /// Compiles a scope. No pattern at all means that nothing may be written.
    ///
    /// # Errors
    /// `Glob` or `Misread` for the first pattern that is none, or is misread.
    pub fn compile(patterns: &[String]) -> Result<Scope, ScopeError> {
        let mut set = GlobSetBuilder::new();
        for pattern in patterns {
            if let Some(Misread { wrong, help }) = misread(pattern) {
                return Err(ScopeError::Misread { pattern: pattern.clone(), wrong, help });
            }
            let plain = pattern.split('/').filter(|part| !matches!(*part, "" | ".")).collect::<Vec<_>>().join("/");
            let below = if plain.is_empty() { "**".to_owned() } else { format!("{plain}/**") };
            for glob in [&plain, &below] {
                let glob = GlobBuilder::new(glob).literal_separator(true).build();
                set.add(glob.map_err(|source| ScopeError::Glob { pattern: pattern.clone(), source })?);
            }
        }
        let set = set.build().map_err(|source| ScopeError::Size(patterns.len(), source))?;
        Ok(Scope { patterns: patterns.to_vec(), set })
    }

    /// Returns whether a file, named relative to the top folder, may be written.
    pub fn contains(&self, path: impl AsRef<Path>) -> bool {
        self.set.is_match(path)
    }

    /// Returns whether a glob names this very file or folder, and not only what it stands in.
    pub(super) fn names(&self, path: &str) -> bool {
        // Of each glob the first form is itself, the second what is below it.
        self.set.matches(path).iter().any(|form| form % 2 == 0)
    }

    /// Returns the globs as they were written.
    pub fn patterns(&self) -> &[String] {
        &self.patterns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_stay_in_their_folder_and_a_folder_is_all_of_it() {
        let scope = ["src/**", "./docs/*.md", "Cargo.toml", "gen/", "/lib", "a[b]"].map(str::to_owned);
        let scope = Scope::compile(&scope).unwrap();
        for path in ["src/a", "src/a/b.rs", "docs/a.md", "Cargo.toml", "gen/x/y", "lib/x/y", "ab"] {
            assert!(scope.contains(path), "{path}");
        }
        for path in ["docs/a/b.md", "a/Cargo.toml", "src2/a", "a/gen/x", "libs", "a/lib/x", "README.md"] {
            assert!(!scope.contains(path), "{path}");
        }
        for whole in ["./", ".", "**"] {
            assert!(Scope::compile(&[whole.to_owned()]).unwrap().contains("any/thing"), "{whole}");
        }
        for nothing in ["", " ", "/", "//", "/**", "/*", "!q.txt", "../x", "a/../b"] {
            let refused = Scope::compile(&["src".to_owned(), nothing.to_owned()]).unwrap_err();
            assert!(matches!(&refused, ScopeError::Misread { pattern, .. } if pattern == nothing), "{nothing}: {refused}");
        }
        let literal = Scope::compile(&["\\!q.txt".to_owned(), "a/./b//c".to_owned()]).unwrap();
        assert!(literal.contains("!q.txt") && literal.contains("a/b/c"));
        assert!(!Scope::compile(&[]).unwrap().contains("a"));
        assert!(matches!(Scope::compile(&["a[".to_owned()]), Err(ScopeError::Glob { pattern, .. }) if pattern == "a["));
    }
}
