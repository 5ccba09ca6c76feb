//! A page for every code: `docs/errors.md`, which is the one source of them.
//!
//! A page is a section of that file. Its example is a whole workflow as a `diff`: with the lines after `-` it gives the code,
//! with those after `+` instead it does not. A test compiles both.
use super::{codes, nearest};

const TEXT: &str = include_str!("../../docs/errors.md");
/// Where the pages are published.
const URL: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/errors.md");

/// What is to be said of one code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// `E001`…
    pub code: &'static str,
    /// What it stands for: a fragment.
    pub what: &'static str,
    /// What it means and an example, in Markdown.
    pub text: &'static str,
}

impl Page {
    /// Returns the page of a code.
    pub fn of(code: &str) -> Option<Page> {
        let (code, what) = codes::ALL.iter().find(|(known, _)| *known == code)?;
        let (_, rest) = TEXT.split_once(&format!("\n## {code}: "))?;
        let (_, rest) = rest.split_once('\n')?;
        let text = rest.split_once("\n## ").map_or(rest, |(text, _)| text);
        Some(Page { code, what, text: text.trim() })
    }

    /// Finds a page by its code or its name, in any case, words joined in any way; or says what was probably meant.
    pub fn find(word: &str) -> Result<Page, Option<&'static str>> {
        let wanted: String = word.trim().to_uppercase().chars().map(|c| if c == '-' || c == ' ' { '_' } else { c }).collect();
        let named = codes::NAMES.iter().position(|name| *name == wanted).map(|at| codes::ALL[at].0);
        let near = || nearest(&wanted, codes::ALL.iter().map(|(code, _)| *code).chain(codes::NAMES.iter().copied()));
        Page::of(named.unwrap_or(&wanted)).ok_or_else(near)
    }

    /// Returns what the page says before its example.
    pub fn prose(&self) -> &'static str {
        self.text.split_once("```").map_or(self.text, |(prose, _)| prose).trim()
    }

    /// Returns the example as two whole workflows: wrong, and put right.
    pub fn example(&self) -> Option<(String, String)> {
        let (_, rest) = self.text.split_once("```diff\n")?;
        let (example, _) = rest.split_once("```")?;
        let pick = |not: char| example.lines().filter(|line| !line.starts_with(not)).map(|line| format!("{}\n", line.get(1..).unwrap_or_default())).collect();
        Some((pick('+'), pick('-')))
    }

    /// Returns where the page is published.
    pub fn url(&self) -> String {
        let heading = format!("{}: {}", self.code, self.what).to_lowercase();
        let anchor: String = heading.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-').map(|c| if c == ' ' { '-' } else { c }).collect();
        format!("{URL}#{anchor}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_page_with_an_example_and_no_page_is_left_over() {
        let headings: Vec<&str> = TEXT.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        let expected: Vec<String> = codes::ALL.iter().map(|(code, what)| format!("{code}: {what}")).collect();
        assert_eq!(headings, expected, "docs/errors.md has one section for each code of src/source/codes.rs, in the same order");
        for (code, _) in codes::ALL {
            let page = Page::of(code).expect("it has a page");
            assert!(page.prose().len() > 40 && page.example().is_some_and(|(wrong, right)| wrong != right), "{page:?}");
        }
        for line in TEXT.lines() {
            assert!(line.chars().count() <= 100, "too long for a screen: {line}");
        }
    }

    #[test]
    fn a_page_is_found_by_code_and_by_name() {
        let code = |word: &str| Page::find(word).map(|page| page.code);
        assert_eq!(code("E012"), Ok("E012"));
        assert_eq!(code(" e012"), Ok("E012"));
        assert_eq!(code("missing-key"), Ok("E012"));
        assert_eq!(code("Missing Key"), Ok("E012"));
        assert_eq!(code("mising_key"), Err(Some("MISSING_KEY")));
        assert_eq!(code("nothing of the kind"), Err(None));
        assert!(Page::of("E012").is_some_and(|page| page.url().ends_with("/docs/errors.md#e012-a-key-that-must-be-there-is-missing")));
    }
}
