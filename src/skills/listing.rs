//! The catalogue of skills in a system prompt: a line a skill, within a budget, and nothing left out in silence.
use super::{Shelf, Skill};
use crate::source::nearest;
use std::collections::BTreeMap;

/// How many files of a skill are named.
pub(super) const MAX_FILES: usize = 50;
/// The longest description and `when_to_use` together, in characters.
const MAX_DESCRIPTION: usize = 1536;
/// The shortest description that is worth its place, in characters.
const MIN_DESCRIPTION: usize = 24;
/// Room kept for saying what was cut, in characters.
const NOTE: usize = 160;

/// A catalogue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// For the system prompt; empty where there is nothing to list.
    pub text: String,
    /// The skills whose description was shortened or left out.
    pub cut: Vec<String>,
    /// The skills that are not in the text at all, for want of room.
    pub dropped: Vec<String>,
    /// The names that no skill has, with what was probably meant.
    pub unknown: Vec<(String, Option<String>)>,
}

pub(super) fn write(shelf: &Shelf, names: &[String], budget: usize) -> Listing {
    let mut listing = Listing::default();
    let mut skills: BTreeMap<&str, &Skill> = BTreeMap::new();
    for name in names {
        match shelf.get(name) {
            Some(skill) if skill.disable_model_invocation => {}
            Some(skill) => {
                skills.insert(&skill.name, skill);
            }
            None => listing.unknown.push((name.clone(), nearest(name, shelf.all().map(|skill| skill.name.as_str())).map(str::to_owned))),
        }
    }
    listing.unknown.sort();
    listing.unknown.dedup();
    let lines: Vec<(&str, String)> = skills.values().map(|skill| (skill.name.as_str(), description(skill))).collect();
    if lines.is_empty() {
        return listing;
    }
    let all_fit = total(&lines, MAX_DESCRIPTION) <= budget;
    let mut left = if all_fit { budget } else { budget.saturating_sub(NOTE) };
    let cap = if all_fit { MAX_DESCRIPTION } else { cap(&lines, left) };
    for (name, description) in &lines {
        let (line, whole) = line(name, description, cap);
        let length = line.chars().count();
        if length > left {
            listing.dropped.push((*name).to_owned());
            continue;
        }
        left -= length;
        listing.text.push_str(&line);
        if !whole {
            listing.cut.push((*name).to_owned());
        }
    }
    let note = note(&listing, cap);
    if listing.text.chars().count() + note.chars().count() <= budget {
        listing.text.push_str(&note);
    }
    listing
}

/// Counts the characters of all lines with descriptions of at most `cap` characters.
fn total(lines: &[(&str, String)], cap: usize) -> usize {
    lines.iter().map(|(name, description)| line(name, description, cap).0.chars().count()).sum()
}

/// Finds the longest common cap on descriptions with which all lines fit; 0 where only names may.
fn cap(lines: &[(&str, String)], budget: usize) -> usize {
    let (mut low, mut high) = (0, MAX_DESCRIPTION);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if total(lines, middle) <= budget {
            low = middle;
        } else {
            high = middle;
        }
    }
    if low < MIN_DESCRIPTION { 0 } else { low }
}

/// Writes one line; says also whether the description is whole.
fn line(name: &str, description: &str, cap: usize) -> (String, bool) {
    if description.is_empty() || cap == 0 {
        return (format!("- {name}\n"), description.is_empty());
    }
    if description.chars().count() <= cap {
        return (format!("- {name}: {description}\n"), true);
    }
    let short: String = description.chars().take(cap - 1).collect();
    (format!("- {name}: {}…\n", short.trim_end()), false)
}

fn description(skill: &Skill) -> String {
    match &skill.when_to_use {
        Some(when) => format!("{} {when}", skill.description),
        None => skill.description.clone(),
    }
}

/// States what was cut; nothing where nothing was.
fn note(listing: &Listing, cap: usize) -> String {
    let what = if cap == 0 { "left out" } else { "shortened" };
    let cut = match listing.cut.len() {
        0 => String::new(),
        count => format!("(descriptions {what} for want of room: {count})\n"),
    };
    match listing.dropped.len() {
        0 => cut,
        count => format!("{cut}(skills not listed for want of room: {count})\n"),
    }
}
