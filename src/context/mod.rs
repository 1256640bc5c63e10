//! The contexts that bodies enqueue through, and the streams they enqueue on.

pub(crate) mod ambient;
mod enqueue;
mod host_stage;
mod legacy;

pub use ambient::{ForeignProbe, register_foreign_probe};
pub use enqueue::Enqueue;
pub use host_stage::HostStage;
pub use legacy::LegacyLaunch;

use crate::device::{KeepSet, Stream};

/// Where one part of a body enqueues, and what is noted about it.
pub(crate) struct Lane<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) producer: &'static str,
    pub(crate) part: &'static str,
    pub(crate) trace: &'a mut Trace,
    /// Whether the stream captures.
    pub(crate) capturing: bool,
}

/// What is noted while parts enqueue.
#[derive(Default)]
pub(crate) struct Trace {
    /// What the operations refer to, where a graph will have to keep it.
    pub(crate) keep: Option<KeepSet>,
    /// Operations handed to the driver so far.
    pub(crate) enqueued: usize,
    /// The first operation that failed, also if the body went on.
    pub(crate) failed: Option<FailedOperation>,
}

/// An operation that failed: where, and its position in its part, from 1.
pub(crate) struct FailedOperation {
    pub(crate) part: &'static str,
    pub(crate) index: usize,
    pub(crate) operation: String,
}

impl Trace {
    /// One that collects what a graph has to keep alive.
    pub(crate) fn keeping() -> Self {
        Self { keep: Some(KeepSet::default()), ..Self::default() }
    }
}
