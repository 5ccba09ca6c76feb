//! What conditions look at: whoever reads it behind one need not say what is to be where it is null.
//!
//! A condition is not understood, only what it is about. What it is about is marked where it is read, and in what names are bound to
//! behind it: so it goes on through `set`, comprehensions and loops, and behind an `if` that leaves the loop.
use super::Reader;
use crate::prompts::{Goes, TemplateError, gives::Gives};

/// How many variables of one condition are looked at to see what it guards.
const MAX_GUARDS: usize = 64;

impl Reader<'_> {
    /// Reads a condition of what follows in the block.
    pub(super) fn condition(&mut self) -> Result<(), TemplateError> {
        let first = self.outline.chains.len();
        self.expression(true)?;
        self.guards.extend(self.looks_since(first));
        Ok(())
    }

    /// Returns the chains of a condition that begins at a chain, with those that its names are set to look at.
    pub(super) fn looks_since(&self, first: usize) -> Vec<usize> {
        let mut guards: Vec<usize> = (first..self.outline.chains.len()).take(MAX_GUARDS).collect();
        let names = guards.iter().filter_map(|&guard| self.outline.chains[guard].parts.first().filter(|_| self.outline.chains[guard].bound));
        let behind: Vec<usize> =
            names.filter_map(|(name, _)| self.looks.iter().rev().find(|(known, _)| known == name)).flat_map(|(_, looks)| looks).copied().collect();
        guards.extend(behind);
        guards.truncate(MAX_GUARDS);
        guards
    }

    /// Returns what an expression gives, marked where one of these chains, those of conditions, looks at it.
    pub(super) fn where_asked(&self, gives: &Gives, guards: &[usize]) -> Gives {
        if guards.is_empty() { gives.clone() } else { gives.where_asked(&|path| guards.iter().any(|&guard| self.outline.chains[guard].asks_for(path))) }
    }

    /// Notes whether one of these chains, those of a condition, looks at what a chain is about.
    pub(super) fn guard(&mut self, chain: usize, guards: &[usize]) {
        let chains = &self.outline.chains;
        let guarded = guards.iter().any(|guard| chains[*guard].is_about(&chains[chain]));
        let chain = &mut self.outline.chains[chain];
        chain.guarded |= guarded;
        chain.asked |= !guards.is_empty();
        chain.guards.extend(guards.iter().rev().take(MAX_GUARDS));
    }

    /// Notes what becomes of chains as they are, where that is not known.
    pub(super) fn go(&mut self, chains: impl Iterator<Item = usize>, goes: &Goes) {
        for chain in chains {
            let chain = &mut self.outline.chains[chain];
            if chain.goes == Goes::Anywhere && !chain.optional {
                chain.goes = goes.clone();
            }
        }
    }
}
