//! Captures: what a stream records, which streams take part, and what breaks it.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::ThreadId;

use super::flow::{Flow, Work};
use crate::device::driver::{CaptureMode, RawPtr, RawStream};

/// A capture of one device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct CaptureId(pub(super) u64);

pub(super) struct Capture {
    pub(super) mode: CaptureMode,
    pub(super) origin: RawStream,
    pub(super) thread: ThreadId,
    /// Whether something that it forbids was done; it then gives no graph.
    pub(super) broken: bool,
    pub(super) flow: Flow,
    /// The streams that take part, the origin among them.
    pub(super) branches: BTreeMap<RawStream, Branch>,
    /// What its memory nodes allocate.
    pub(super) allocated: BTreeSet<RawPtr>,
}

/// A stream's position in a capture.
#[derive(Clone, Default)]
pub(super) struct Branch {
    /// The nodes that the stream's next one comes after.
    frontier: Vec<usize>,
    /// How much of each stream's work this position comes after, by count.
    seen: BTreeMap<RawStream, u64>,
}

impl Capture {
    pub(super) fn new(origin: RawStream, mode: CaptureMode, thread: ThreadId) -> Self {
        Self {
            mode,
            origin,
            thread,
            broken: false,
            flow: Flow::default(),
            branches: BTreeMap::from([(origin, Branch::default())]),
            allocated: BTreeSet::new(),
        }
    }

    /// Adds a node to a stream that takes part.
    pub(super) fn record(&mut self, stream: RawStream, work: Work) {
        let branch = self.branches.entry(stream).or_default();
        let node = self.flow.push(stream, work, std::mem::take(&mut branch.frontier));
        branch.frontier.push(node);
        *branch.seen.entry(stream).or_default() += 1;
    }

    /// Where `stream` is now, for an event.
    pub(super) fn position(&self, stream: RawStream) -> Branch {
        self.branches.get(&stream).cloned().unwrap_or_default()
    }

    /// Makes `stream` go on after `event`; it takes part from now on.
    pub(super) fn join(&mut self, stream: RawStream, event: &Branch) {
        let forked = !self.branches.contains_key(&stream);
        let branch = self.branches.entry(stream).or_default();
        for &node in &event.frontier {
            if !branch.frontier.contains(&node) {
                branch.frontier.push(node);
            }
        }
        for (&other, &count) in &event.seen {
            let seen = branch.seen.entry(other).or_default();
            *seen = count.max(*seen);
        }
        if forked {
            *branch.seen.entry(stream).or_default() += 1;
        }
    }

    /// Whether the origin comes after all that every other stream did.
    pub(super) fn is_joined(&self) -> bool {
        let seen = &self.branches[&self.origin].seen;
        self.branches.iter().all(|(stream, branch)| {
            seen.get(stream).copied().unwrap_or(0) >= branch.seen.get(stream).copied().unwrap_or(0)
        })
    }
}
