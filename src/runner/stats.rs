//! What a runner did so far (S34).

use super::mode::{Mode, Reason};
use crate::device::Stream;

/// How one call ran (S8).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Run {
    /// The mode.
    pub mode: Mode,
    /// Why that mode.
    pub reason: Reason,
    /// The stream that the call resolved to.
    pub stream: Stream,
}

/// How a call would run, if it were made now (S8).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// The mode.
    pub mode: Mode,
    /// Why that mode.
    pub reason: Reason,
    /// The stream that the call resolves to.
    pub stream: Stream,
}

/// Counts of what a runner did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    runs: [u64; Reason::ALL.len()],
    pub(crate) graphs: u64,
    pub(crate) broken_captures: u64,
    pub(crate) failed_captures: u64,
}

impl Stats {
    /// Calls that ran for this reason.
    #[must_use]
    pub fn runs(&self, reason: Reason) -> u64 {
        self.runs[reason as usize]
    }

    /// Graphs that the runner captured and instantiated for itself.
    #[must_use]
    pub fn graphs(&self) -> u64 {
        self.graphs
    }

    /// Captures of the runner's own that other threads broke.
    #[must_use]
    pub fn broken_captures(&self) -> u64 {
        self.broken_captures
    }

    /// Captures of the runner's own that failed for another reason.
    #[must_use]
    pub fn failed_captures(&self) -> u64 {
        self.failed_captures
    }

    pub(crate) fn note(&mut self, reason: Reason) {
        self.runs[reason as usize] += 1;
    }
}
