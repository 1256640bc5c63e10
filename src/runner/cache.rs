//! A runner's graphs, by variant (S20, S21).

use std::collections::HashMap;

use super::mode::Cached;
use crate::device::Graph;
use crate::producer::Variant;

/// The graphs of one variant.
#[derive(Debug)]
pub(crate) enum Graphs {
    /// One for the whole body.
    Whole(Graph),
    /// One for each part, `None` for a HOST part.
    Parts(Vec<Option<Graph>>),
}

/// The graphs of a runner; keys are compared in full.
pub(crate) struct Cache<V> {
    default: Option<Graphs>,
    others: HashMap<V, Graphs>,
    /// Calls whose captures other threads broke; as many entries as there may be graphs.
    broken: HashMap<V, u32>,
    limit: usize,
}

impl<V: Variant> Cache<V> {
    /// Calls with broken captures after which a variant stays eager (S21).
    pub(crate) const PATIENCE: u32 = 3;

    pub(crate) fn new(limit: usize) -> Self {
        Self { default: None, others: HashMap::new(), broken: HashMap::new(), limit }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    pub(crate) fn get(&self, variant: &V, default: bool) -> Option<&Graphs> {
        if default { self.default.as_ref() } else { self.others.get(variant) }
    }

    pub(crate) fn state(&self, variant: &V, default: bool) -> Cached {
        if self.get(variant, default).is_some() {
            Cached::Yes
        } else if self.broken.get(variant).is_some_and(|&calls| calls >= Self::PATIENCE) {
            Cached::GivenUp
        } else {
            Cached::No
        }
    }

    /// Whether a further variant may get graphs.
    pub(crate) fn room(&self) -> bool {
        self.others.len() < self.limit
    }

    pub(crate) fn insert(&mut self, variant: &V, default: bool, graphs: Graphs) {
        self.broken.remove(variant);
        if default {
            self.default = Some(graphs);
        } else {
            self.others.insert(variant.clone(), graphs);
        }
    }

    /// Notes a call whose captures were broken; whether that was one too many.
    pub(crate) fn note_broken(&mut self, variant: &V) -> bool {
        if !self.broken.contains_key(variant) && self.broken.len() > self.limit {
            return false;
        }
        let calls = self.broken.entry(variant.clone()).or_insert(0);
        *calls += 1;
        *calls == Self::PATIENCE
    }

    /// The variants that have graphs, the default first.
    pub(crate) fn variants<'c>(&'c self, default: &'c V) -> impl Iterator<Item = &'c V> {
        self.default.iter().map(move |_| default).chain(self.others.keys())
    }

    pub(crate) fn clear(&mut self) {
        self.default = None;
        self.others.clear();
        self.broken.clear();
    }
}
