//! The contexts that bodies enqueue through, and the streams they enqueue on.

pub(crate) mod ambient;
mod enqueue;
mod host_stage;
mod legacy;

pub use ambient::{ForeignProbe, register_foreign_probe};
pub use enqueue::Enqueue;
pub use host_stage::HostStage;
pub use legacy::{LaunchFunction, LegacyLaunch};

use std::cell::Cell;

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
    /// Whether the body took a raw stream, so that what it enqueues is not all known here.
    pub(crate) took_stream: bool,
    /// The first operation that failed, also if the body went on.
    pub(crate) failed: Option<FailedOperation>,
}

/// An operation that failed: where, and its position in its part, from 1.
pub(crate) struct FailedOperation {
    pub(crate) part: &'static str,
    pub(crate) index: usize,
    pub(crate) operation: String,
}

thread_local! {
    static ENQUEUED: Cell<usize> = const { Cell::new(0) };
}

/// Operations that this thread handed to the driver so far, on whatever stream.
pub(crate) fn enqueued() -> usize {
    ENQUEUED.get()
}

pub(crate) fn count_enqueued() {
    ENQUEUED.set(ENQUEUED.get().wrapping_add(1));
}

impl Trace {
    /// One that collects what a graph has to keep alive.
    pub(crate) fn keeping() -> Self {
        Self { keep: Some(KeepSet::default()), ..Self::default() }
    }
}
