//! The seam between the policy and a device: the few CUDA driver calls that the crate makes, by
//! their CUDA meaning, over plain handles.
//!
//! Everything above this trait (buffers, streams, graphs, the runner) is written once. Below it
//! stand the software engine and the CUDA driver, which must answer alike, refusals included.

use std::fmt;
use std::sync::Arc;

use super::kernel::{Grid, KernelDecl, RawArg};

/// The result of one driver call.
pub(crate) type DriverResult<T> = std::result::Result<T, DriverError>;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub(crate) struct $name(pub(crate) u64);
    )*};
}

handles! {
    /// A stream.
    RawStream,
    /// An event.
    RawEvent,
    /// A graph template.
    RawGraph,
    /// An instantiated graph.
    RawExec,
    /// A loaded kernel.
    RawKernel,
    /// A device address; arithmetic in bytes is allowed inside one allocation.
    RawPtr
}

impl RawStream {
    /// The legacy default stream (`CU_STREAM_LEGACY`), on every device.
    pub(crate) const LEGACY: Self = Self(1);
}

/// What a stream is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StreamFlags {
    /// Whether it synchronises with the legacy default stream.
    pub(crate) blocking: bool,
    /// As CUDA counts: lower is more urgent, 0 the default.
    pub(crate) priority: i32,
}

/// Which unsafe calls of which threads a capture forbids, as `CUstreamCaptureMode`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum CaptureMode {
    /// Unsafe calls of any thread are refused and break the capture.
    Global,
    /// Unsafe calls of the capturing thread alone are refused.
    #[default]
    ThreadLocal,
    /// No call is refused for being unsafe.
    Relaxed,
}

/// What a stream is doing, asked by a query that cannot harm a capture.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(
    not(any(feature = "cuda", feature = "simulate")),
    allow(dead_code, reason = "a host device has no such state")
)]
pub(crate) enum StreamState {
    /// Not capturing.
    Idle,
    /// Capturing.
    Capturing,
    /// Its capture is broken, and not yet ended.
    Invalidated,
    /// The legacy stream, while a blocking stream of the device captures.
    Implicit,
}

/// Which device is meant; unique in the process and never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct DeviceId(pub(crate) u64);

impl DeviceId {
    pub(crate) fn next() -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The kind of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum DeviceKind {
    /// This machine's cores; work runs as it is enqueued.
    Host,
    /// A software CUDA that enforces CUDA's rules.
    Simulated,
    /// A GPU, by the CUDA driver.
    Cuda,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Host => "host",
            Self::Simulated => "simulated",
            Self::Cuda => "cuda",
        })
    }
}

/// What is fixed about a device.
#[derive(Clone, Debug)]
pub(crate) struct DeviceInfo {
    pub(crate) id: DeviceId,
    pub(crate) kind: DeviceKind,
    /// For people: "host", "simulated:0", "cuda:0 NVIDIA H200".
    pub(crate) name: String,
}

/// Something that a graph must keep alive. Dropping it may call the driver, so a CUDA user
/// object's destructor must hand it on (see [`Driver::capture_retain`]) and never drop it.
pub(crate) type Keep = Arc<dyn std::any::Any + Send + Sync>;

/// The CUDA driver calls that the crate makes.
///
/// Each method is one driver call unless it says otherwise, in the calling thread, and keeps CUDA's
/// meaning: asynchronous work is ordered by its stream alone, a capturing stream records, and a
/// call that a capture forbids is refused and breaks the capture just as the driver would. Nothing
/// here brackets, retries or defers: that is the caller's part.
///
/// A handle that was destroyed is answered by `InvalidHandle`, not by undefined behaviour, on the
/// software devices; on CUDA the owners above this trait keep handles alive while they are used.
pub(crate) trait Driver: Send + Sync + fmt::Debug {
    fn info(&self) -> &DeviceInfo;

    /// The software device's control, if this is a simulated device.
    #[cfg(feature = "simulate")]
    fn simulation(&self) -> Option<&super::soft::Simulation> {
        None
    }

    // Streams and events.
    fn stream_create(&self, flags: StreamFlags) -> DriverResult<RawStream>;
    fn stream_destroy(&self, stream: RawStream) -> DriverResult<()>;
    fn stream_synchronize(&self, stream: RawStream) -> DriverResult<()>;
    /// As it was clamped when the stream was made.
    fn stream_priority(&self, stream: RawStream) -> DriverResult<i32>;
    /// `cuStreamIsCapturing`; the errors that describe a state (IMPLICIT) come back as one.
    fn stream_state(&self, stream: RawStream) -> DriverResult<StreamState>;
    /// An event without timing.
    fn event_create(&self) -> DriverResult<RawEvent>;
    fn event_destroy(&self, event: RawEvent) -> DriverResult<()>;
    fn event_record(&self, event: RawEvent, stream: RawStream) -> DriverResult<()>;
    fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> DriverResult<()>;

    // Memory. `copy`, `fill` and `upload` are asynchronous and in stream order.
    fn mem_alloc(&self, bytes: usize) -> DriverResult<RawPtr>;
    /// `cuMemFree`: waits for the work that may use the memory.
    fn mem_free(&self, ptr: RawPtr) -> DriverResult<()>;
    fn copy(&self, stream: RawStream, dst: RawPtr, src: RawPtr, bytes: usize) -> DriverResult<()>;
    /// Writes `pattern` (1, 2, 4 or a multiple of 4 bytes) `count` times; may be several nodes.
    fn fill(
        &self,
        stream: RawStream,
        dst: RawPtr,
        pattern: &[u8],
        count: usize,
    ) -> DriverResult<()>;
    /// Host to device through memory that the device owns: `bytes` may be reused on return. Never
    /// called on a capturing stream. May be several driver calls.
    fn upload(&self, stream: RawStream, dst: RawPtr, bytes: &[u8]) -> DriverResult<()>;
    /// Device to host after the stream's work so far; waits for it. Never called on a capturing
    /// stream. May be several driver calls.
    fn download(&self, stream: RawStream, src: RawPtr, bytes: &mut [u8]) -> DriverResult<()>;

    // Kernels.
    /// Loads a kernel for this device; the caller has checked that it has code for it.
    fn kernel_load(&self, decl: &KernelDecl) -> Result<RawKernel, crate::Error>;
    fn kernel_unload(&self, kernel: RawKernel) -> DriverResult<()>;
    fn launch(
        &self,
        stream: RawStream,
        kernel: RawKernel,
        grid: &Grid,
        args: &[RawArg<'_>],
    ) -> DriverResult<()>;

    // Capture.
    fn begin_capture(&self, stream: RawStream, mode: CaptureMode) -> DriverResult<()>;
    /// Always ends the capture; an invalidated one gives `CaptureInvalidated` and no graph.
    fn end_capture(&self, stream: RawStream) -> DriverResult<RawGraph>;
    /// `cuThreadExchangeStreamCaptureMode`: sets the calling thread's mode, returns the old one.
    fn exchange_capture_mode(&self, mode: CaptureMode) -> DriverResult<CaptureMode>;
    /// Ties `keep` to the graph that `stream` is capturing, as a CUDA user object: `release` gets
    /// it once that graph and all that was instantiated from it are gone, on any thread, and calls
    /// no CUDA.
    fn capture_retain(
        &self,
        stream: RawStream,
        keep: Vec<Keep>,
        release: Arc<dyn Fn(Vec<Keep>) + Send + Sync>,
    ) -> DriverResult<()>;

    // Graphs.
    fn graph_node_count(&self, graph: RawGraph) -> DriverResult<usize>;
    fn graph_instantiate(&self, graph: RawGraph) -> DriverResult<RawExec>;
    fn graph_launch(&self, exec: RawExec, stream: RawStream) -> DriverResult<()>;
    fn exec_destroy(&self, exec: RawExec) -> DriverResult<()>;
    fn graph_destroy(&self, graph: RawGraph) -> DriverResult<()>;

    /// What the crate never calls by itself: for tests that play an application's, or a careless
    /// plugin's, own use of the driver. A host device has no such calls.
    #[cfg(feature = "simulate")]
    fn stray(&self) -> Option<&dyn StrayCalls>;
}

/// Driver calls of somebody else, harmful ones included, for tests (see [`crate::testing`]).
#[cfg(feature = "simulate")]
pub(crate) trait StrayCalls {
    fn stream_query(&self, stream: RawStream) -> DriverResult<()>;
    fn context_synchronize(&self) -> DriverResult<()>;
    fn event_synchronize(&self, event: RawEvent) -> DriverResult<()>;
    fn event_query(&self, event: RawEvent) -> DriverResult<()>;
    fn mem_alloc_async(&self, bytes: usize, stream: RawStream) -> DriverResult<RawPtr>;
    fn mem_free_async(&self, ptr: RawPtr, stream: RawStream) -> DriverResult<()>;
    /// Synchronous `cuMemcpyHtoD`: runs now, on no stream of ours.
    fn memcpy_htod(&self, dst: RawPtr, bytes: &[u8]) -> DriverResult<()>;
    /// `cuMemcpyHtoDAsync` from pageable memory. Recorded by address on CUDA: the test keeps
    /// `bytes` alive.
    fn memcpy_htod_async(
        &self,
        dst: RawPtr,
        bytes: &'static [u8],
        stream: RawStream,
    ) -> DriverResult<()>;
    fn launch_host_function(
        &self,
        stream: RawStream,
        function: Arc<dyn Fn() + Send + Sync>,
    ) -> DriverResult<()>;
    /// A module of no interest.
    fn module_load(&self) -> DriverResult<u64>;
    fn module_unload(&self, module: u64) -> DriverResult<()>;
    /// Adds `child` as a node behind what `stream` captured so far and goes on after it.
    fn add_child_graph(&self, stream: RawStream, child: RawGraph) -> DriverResult<()>;
    /// The nodes captured so far by `stream`'s capture, if it captures.
    fn captured_nodes(&self, stream: RawStream) -> DriverResult<Option<usize>>;
}

/// A driver's refusal: the call, and what it answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriverError {
    call: &'static str,
    code: DriverCode,
}

impl DriverError {
    pub(crate) fn new(call: &'static str, code: DriverCode) -> Self {
        Self { call, code }
    }

    /// The driver call by its CUDA name, such as `cuGraphLaunch`.
    #[must_use]
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// What the driver answered.
    #[must_use]
    pub fn code(&self) -> DriverCode {
        self.code
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answered {}", self.call, self.code)
    }
}

impl std::error::Error for DriverError {}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $cuda:literal;)*) => {
        /// A CUDA result code; the software devices answer with the same ones.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum DriverCode {
            $($(#[$doc])* $name,)*
            /// Any other code.
            Other(i32),
        }

        impl DriverCode {
            /// The number that CUDA gives this code.
            #[must_use]
            pub fn number(self) -> i32 {
                match self {
                    $(Self::$name => $number,)*
                    Self::Other(number) => number,
                }
            }

            /// The code with this number.
            #[must_use]
            pub fn from_number(number: i32) -> Self {
                match number {
                    $($number => Self::$name,)*
                    other => Self::Other(other),
                }
            }

            /// CUDA's name for this code, if the crate knows it.
            #[must_use]
            pub fn cuda_name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($cuda),)*
                    Self::Other(_) => None,
                }
            }
        }
    };
}

codes! {
    /// An argument is out of its range.
    InvalidValue = 1, "CUDA_ERROR_INVALID_VALUE";
    /// No memory left.
    OutOfMemory = 2, "CUDA_ERROR_OUT_OF_MEMORY";
    /// The driver was not initialised.
    NotInitialized = 3, "CUDA_ERROR_NOT_INITIALIZED";
    /// The driver is shutting down.
    Deinitialized = 4, "CUDA_ERROR_DEINITIALIZED";
    /// The machine has no GPU that the driver can use.
    NoDevice = 100, "CUDA_ERROR_NO_DEVICE";
    /// There is no device with this ordinal.
    InvalidDevice = 101, "CUDA_ERROR_INVALID_DEVICE";
    /// Device code that the driver cannot read.
    InvalidImage = 200, "CUDA_ERROR_INVALID_IMAGE";
    /// No context, or one that is gone.
    InvalidContext = 201, "CUDA_ERROR_INVALID_CONTEXT";
    /// Device code for another GPU.
    NoBinaryForGpu = 209, "CUDA_ERROR_NO_BINARY_FOR_GPU";
    /// PTX that does not compile.
    InvalidPtx = 218, "CUDA_ERROR_INVALID_PTX";
    /// PTX of a version that this driver is too old for.
    UnsupportedPtxVersion = 222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION";
    /// A handle that is not, or no longer, valid.
    InvalidHandle = 400, "CUDA_ERROR_INVALID_HANDLE";
    /// The object is in no state for this call.
    IllegalState = 401, "CUDA_ERROR_ILLEGAL_STATE";
    /// A name that the module does not have.
    NotFound = 500, "CUDA_ERROR_NOT_FOUND";
    /// Not done yet.
    NotReady = 600, "CUDA_ERROR_NOT_READY";
    /// A kernel touched memory that it may not; the context is lost.
    IllegalAddress = 700, "CUDA_ERROR_ILLEGAL_ADDRESS";
    /// More registers, shared memory or threads than a launch can have.
    LaunchOutOfResources = 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES";
    /// A kernel failed; the context is lost.
    LaunchFailed = 719, "CUDA_ERROR_LAUNCH_FAILED";
    /// The cooperative grid does not fit on the device at once.
    CooperativeLaunchTooLarge = 720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE";
    /// The driver refuses this here.
    NotPermitted = 800, "CUDA_ERROR_NOT_PERMITTED";
    /// The driver, or the device, cannot do this.
    NotSupported = 801, "CUDA_ERROR_NOT_SUPPORTED";
    /// Forbidden while a stream captures.
    CaptureUnsupported = 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
    /// The capture is broken.
    CaptureInvalidated = 901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
    /// Two captures would become one.
    CaptureMerge = 902, "CUDA_ERROR_STREAM_CAPTURE_MERGE";
    /// The capture did not begin on this stream.
    CaptureUnmatched = 903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED";
    /// A stream that was forked into the capture was never joined.
    CaptureUnjoined = 904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED";
    /// A captured stream would depend on work outside the capture.
    CaptureIsolation = 905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION";
    /// The legacy default stream would depend on a capture.
    CaptureImplicit = 906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT";
    /// An event of a capture was used outside it.
    CapturedEvent = 907, "CUDA_ERROR_CAPTURED_EVENT";
    /// The capture began on another thread.
    CaptureWrongThread = 908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD";
    /// The instantiated graph cannot take this change.
    GraphExecUpdateFailure = 910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE";
    /// The driver does not know why.
    Unknown = 999, "CUDA_ERROR_UNKNOWN";
}

impl fmt::Display for DriverCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cuda_name() {
            Some(name) => write!(f, "{name} ({})", self.number()),
            None => write!(f, "CUDA error {}", self.number()),
        }
    }
}
