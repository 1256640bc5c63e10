//! What can go wrong, and the way out of each.

use crate::device::DeviceKind;
use crate::device::DriverError;

/// The result of the crate's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that a call can refuse or fail with.
///
/// A refusal comes before anything was launched, allocated or changed (S6); a failure leaves the
/// runner, the stream and the caller's capture usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Constructing or preparing a producer, or a host synchronisation, was asked for while a
    /// capture is open (S18).
    #[error(
        "{subject} is not possible while {open}: it allocates, runs or waits, which a capture \
         forbids; do it before the capture begins or after it has ended"
    )]
    Capture {
        /// What was asked for, and for which producer.
        subject: String,
        /// Where the capture is.
        open: OpenCapture,
    },

    /// A producer that cannot be captured was run on a capturing stream (S13).
    #[error(
        "`{producer}` cannot be recorded into the capture that is open on this stream{}; run it \
         outside the capture, or move that work out of the producer",
        listed(.host_stages)
    )]
    NotCapturable {
        /// The producer.
        producer: &'static str,
        /// Its HOST stages, and legacy members that cannot be captured, in order.
        host_stages: Vec<String>,
    },

    /// A legacy producer met a capture that its own launches would escape, or land in by mistake
    /// (S13, S25).
    #[error("`{producer}` launches on the device's current stream by itself, {detail}")]
    LegacyStream {
        /// The producer.
        producer: &'static str,
        /// Which of the two, and what to do.
        detail: &'static str,
    },

    /// A variant other than the default was run before the producer was prepared (S19).
    #[error(
        "`{producer}` was not prepared, so variant {variant} cannot be captured: call \
         `GraphRunner::prepare`, or run the default variant, once before it"
    )]
    NotPrepared {
        /// The producer.
        producer: &'static str,
        /// The variant, by its `Debug`.
        variant: String,
    },

    /// The stream's capture was already broken when the call came (S7). Nothing ran, and the
    /// capture is still for its owner to end.
    #[error(
        "{subject}: the capture on this stream is already invalid, because of an earlier call that \
         captures forbid; end that capture (it gives no graph) and begin a new one"
    )]
    Invalidated {
        /// The call and the producer.
        subject: String,
    },

    /// The legacy default stream was named while a blocking stream of the device captures.
    #[error(
        "{subject}: the legacy default stream cannot be used while a blocking stream of this device \
         captures; use a stream of your own, or wait for that capture to end"
    )]
    ImplicitCapture {
        /// The call and the producer.
        subject: String,
    },

    /// Something of one device was used with another (S16).
    #[error("{subject} belongs to device {found}, not to {expected}")]
    WrongDevice {
        /// What was used.
        subject: String,
        /// The device it was used with.
        expected: String,
        /// The device it belongs to.
        found: String,
    },

    /// The runner's last call went to a stream that has begun to capture since, so this call, on
    /// another stream, cannot be ordered after it (S17).
    #[error(
        "`{producer}` ran last on a stream that is being captured now, and this call is on another \
         one: they cannot be ordered. Run it on the same stream, or synchronise the earlier run \
         before that capture begins"
    )]
    PreviousStreamCapturing {
        /// The producer.
        producer: &'static str,
    },

    /// One launch was given the same memory twice, once of them to write.
    #[error(
        "kernel `{kernel}`: arguments {first} and {second} overlap in memory, and one of them is \
         written; pass it once, as `Out` or `Shared`"
    )]
    Aliased {
        /// The kernel.
        kernel: String,
        /// The position of one argument, from 0.
        first: usize,
        /// The position of the other.
        second: usize,
    },

    /// An `Out` buffer cannot be divided among the threads of the launch.
    #[error(
        "kernel `{kernel}`: argument {argument} has {elements} elements, which {groups} threads or \
         blocks cannot share evenly; launch a grid that divides it, slice the buffer, or declare it \
         `Shared`"
    )]
    UnevenShare {
        /// The kernel.
        kernel: String,
        /// The position of the argument, from 0.
        argument: usize,
        /// The buffer's length in elements.
        elements: usize,
        /// Threads (or blocks, for a kernel by blocks) of the launch.
        groups: usize,
    },

    /// Lengths that should agree do not.
    #[error("{operation} needs {expected} elements and got {found}")]
    Length {
        /// The operation.
        operation: &'static str,
        /// Elements needed.
        expected: usize,
        /// Elements found.
        found: usize,
    },

    /// A range that leaves the buffer.
    #[error("range {start}..{end} is outside a buffer of {len} elements")]
    Range {
        /// The range's start.
        start: usize,
        /// The range's end.
        end: usize,
        /// The buffer's length.
        len: usize,
    },

    /// A copy between two parts of a buffer that overlap.
    #[error("a copy's source and destination overlap in memory; copy through a third buffer")]
    OverlappingCopy,

    /// A kernel has no code for the device it is loaded on.
    #[error(
        "kernel `{kernel}` has no code for a {device} device; declare it with {}",
        if matches!(.device, DeviceKind::Cuda) { "`KernelSpec::cuda_source` or another `cuda_…`" }
        else { "a host function (`KernelSpec::per_thread` or `per_block`)" }
    )]
    NoKernelCode {
        /// The kernel.
        kernel: String,
        /// The device.
        device: DeviceKind,
    },

    /// A kernel's device code does not compile or load.
    #[error("kernel `{kernel}` does not compile:\n{log}")]
    KernelCompile {
        /// The kernel.
        kernel: String,
        /// The compiler's own words.
        log: String,
    },

    /// A device cannot be had on this machine or in this build (S35).
    #[error("no {device} device: {why}")]
    Unavailable {
        /// The kind of device asked for.
        device: DeviceKind,
        /// Why, and what to do.
        why: String,
    },

    /// The body broke the runner's own capture (S21): something in it did what captures forbid,
    /// such as a synchronisation, behind the context's back.
    #[error(
        "`{producer}`, part `{part}`: its body breaks the capture {place}; it does something there \
         that a capture forbids (a synchronisation, a query, an allocation, or a launch on the legacy \
         default stream) without going through its context. Move that out of the body, or into a HOST \
         part"
    )]
    BodyBrokeCapture {
        /// The producer.
        producer: &'static str,
        /// The part of its body.
        part: String,
        /// Between which operations.
        place: String,
        /// What the driver answered.
        #[source]
        source: DriverError,
    },

    /// A legacy body launched on the legacy default stream instead of the current stream (S24). CUDA
    /// refuses that while a blocking stream captures; on a non-blocking one it would run at once and be
    /// missing from the graph.
    #[error(
        "`{producer}`, part `{part}`: it launches on the legacy default stream (stream 0) instead of the \
         device's current stream; pass it `LegacyLaunch::stream`, or declare `const CAPTURABLE: bool = \
         false`"
    )]
    LegacyDefaultStream {
        /// The producer.
        producer: &'static str,
        /// The part of its body.
        part: String,
    },

    /// A capture has fewer nodes than its body enqueued: the work went to another stream.
    #[error(
        "`{producer}`, part `{part}`: the body enqueued {enqueued} operations, not counting those of \
         other libraries, and its capture has {nodes} nodes: work went to another stream (the legacy \
         default stream, if none was named), where it ran at once and would not be replayed. Launch on \
         the context's stream alone"
    )]
    EmptyCapture {
        /// The producer.
        producer: &'static str,
        /// The part of its body.
        part: String,
        /// Operations that the body enqueued through this crate, on whatever stream.
        enqueued: usize,
        /// Nodes in the captured graph.
        nodes: usize,
    },

    /// An operation of a body failed.
    #[error("`{producer}`, part `{part}`, operation {index} ({operation}) failed: {source}")]
    Operation {
        /// The producer.
        producer: &'static str,
        /// The part of its body.
        part: String,
        /// The operation's position in the part, from 1.
        index: usize,
        /// The operation.
        operation: String,
        /// Why.
        source: Box<Error>,
    },

    /// A step of the runner itself failed, for this producer.
    #[error("`{producer}`: {step} failed: {source}")]
    Step {
        /// The producer.
        producer: &'static str,
        /// What the runner was doing.
        step: &'static str,
        /// Why.
        source: Box<Error>,
    },

    /// The driver refused a call.
    #[error(transparent)]
    Driver(#[from] DriverError),

    /// An error of the body's own.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Wraps an error of a body's own, or a message.
    ///
    /// ```
    /// use graph_runner::Error;
    /// assert_eq!(Error::other("no gates on this track").to_string(), "no gates on this track");
    /// ```
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }

    /// The driver's refusal at the root of this error, if there is one.
    #[must_use]
    pub fn driver(&self) -> Option<&DriverError> {
        match self {
            Self::Driver(error) | Self::BodyBrokeCapture { source: error, .. } => Some(error),
            Self::Operation { source, .. } | Self::Step { source, .. } => source.driver(),
            _ => None,
        }
    }

    /// The error itself, without the operations and steps that it passed through.
    #[must_use]
    pub fn root(&self) -> &Error {
        match self {
            Self::Operation { source, .. } | Self::Step { source, .. } => source.root(),
            _ => self,
        }
    }
}

/// Where an open capture was found (S18).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenCapture {
    /// On the stream that the call resolves to.
    #[error("the stream of this call is capturing")]
    Resolved,
    /// On the device's current stream.
    #[error("the device's current stream is capturing")]
    Current,
    /// A foreign framework captures in this thread.
    #[error("a foreign framework is capturing in this thread")]
    Foreign,
    /// A host device captures in this thread.
    #[error("a capture is open on the host device in this thread")]
    Host,
}

fn listed(stages: &[String]) -> String {
    if stages.is_empty() {
        String::new()
    } else {
        format!(": its HOST stages ({}) need the host", stages.join(", "))
    }
}
