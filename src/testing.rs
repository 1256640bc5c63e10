//! For tests, the library's own and a plugin author's: the control of simulated devices, and
//! somebody else's use of the driver.

use std::sync::Arc;

use crate::device::{
    Args, Buffer, CaptureMode, Device, Driver, DriverCode, DriverError, Element, Grid, Kernel,
    RawEvent, RawExec, RawGraph, RawPtr, Relaxed, StrayCalls, Stream, StreamFlags, StreamState,
};

pub use crate::device::{DriverCall, Live, Simulation};

/// The result of one driver call.
pub type CallResult<T> = std::result::Result<T, DriverError>;

/// Somebody else in the process who uses the driver, carefully or not: an application that captures
/// by itself, a plugin that synchronises in its body, a thread that allocates.
///
/// Each method is one plain driver call in the calling thread, without the precautions that this
/// crate takes around its own. On a simulated device that is always safe to play; on a GPU it may
/// break captures, as the call would.
///
/// ```
/// use graph_runner::testing::Foreign;
/// use graph_runner::{CaptureMode, Device};
/// let device = Device::simulated(1);
/// let (foreign, stream) = (Foreign::new(&device), device.stream()?);
/// foreign.begin_capture(&stream, CaptureMode::Global)?;
/// assert!(stream.is_capturing()?);
/// assert!(foreign.stream_synchronize(&stream).is_err());
/// assert!(foreign.end_capture(&stream).is_err());
/// # Ok::<(), graph_runner::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Foreign {
    driver: Arc<dyn Driver>,
}

/// What a stream is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum State {
    /// Not capturing.
    Idle,
    /// Capturing.
    Capturing,
    /// Its capture is broken, and not yet ended.
    Invalidated,
    /// The legacy stream, while a blocking stream of the device captures.
    Implicit,
}

impl Foreign {
    /// Somebody else on `device`.
    #[must_use]
    pub fn new(device: &Device) -> Self {
        Self { driver: Arc::clone(device.driver()) }
    }

    fn stray(&self, call: &'static str) -> CallResult<&dyn StrayCalls> {
        self.driver.stray().ok_or(DriverError::new(call, DriverCode::NotSupported))
    }

    /// `cuStreamIsCapturing`.
    ///
    /// # Errors
    ///
    /// The driver's refusal, as for every call here.
    pub fn state(&self, stream: &Stream) -> CallResult<State> {
        Ok(match self.driver.stream_state(stream.raw())? {
            StreamState::Idle => State::Idle,
            StreamState::Capturing => State::Capturing,
            StreamState::Invalidated => State::Invalidated,
            StreamState::Implicit => State::Implicit,
        })
    }

    /// `cuStreamBeginCapture`.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn begin_capture(&self, stream: &Stream, mode: CaptureMode) -> CallResult<()> {
        self.driver.begin_capture(stream.raw(), mode)
    }

    /// `cuStreamEndCapture`.
    ///
    /// # Errors
    ///
    /// The driver's refusal; the capture is over then too, unless it is another stream's.
    pub fn end_capture(&self, stream: &Stream) -> CallResult<ForeignGraph> {
        let raw = self.driver.end_capture(stream.raw())?;
        Ok(ForeignGraph { foreign: self.clone(), raw })
    }

    /// `cuThreadExchangeStreamCaptureMode`.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn exchange_capture_mode(&self, mode: CaptureMode) -> CallResult<CaptureMode> {
        self.driver.exchange_capture_mode(mode)
    }

    /// Runs `body` with the calling thread's capture mode set to RELAXED.
    pub fn relaxed<T>(&self, body: impl FnOnce(&Self) -> T) -> T {
        let _relaxed = Relaxed::enter(&self.driver);
        body(self)
    }

    /// `cuStreamCreate`. The handle does not own the stream:
    /// [`stream_destroy`](Self::stream_destroy) ends it.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn stream_create(&self, blocking: bool) -> CallResult<Stream> {
        let raw = self.driver.stream_create(StreamFlags { blocking, priority: 0 })?;
        Ok(Stream::borrowed(&self.driver, raw))
    }

    /// `cuStreamDestroy` of a stream from [`stream_create`](Self::stream_create). Its work goes on.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn stream_destroy(&self, stream: &Stream) -> CallResult<()> {
        self.driver.stream_destroy(stream.raw())
    }

    /// `cuStreamSynchronize`.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn stream_synchronize(&self, stream: &Stream) -> CallResult<()> {
        self.driver.stream_synchronize(stream.raw())
    }

    /// `cuStreamQuery`; `NotReady` is an error.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn stream_query(&self, stream: &Stream) -> CallResult<()> {
        self.stray("cuStreamQuery")?.stream_query(stream.raw())
    }

    /// `cuCtxSynchronize`.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn context_synchronize(&self) -> CallResult<()> {
        self.stray("cuCtxSynchronize")?.context_synchronize()
    }

    /// `cuMemAlloc`.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn mem_alloc(&self, bytes: usize) -> CallResult<u64> {
        Ok(self.driver.mem_alloc(bytes)?.0)
    }

    /// `cuMemFree`, of memory from [`mem_alloc`](Self::mem_alloc) or
    /// [`mem_alloc_async`](Self::mem_alloc_async).
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn mem_free(&self, address: u64) -> CallResult<()> {
        self.driver.mem_free(RawPtr(address))
    }

    /// `cuMemAllocAsync`.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn mem_alloc_async(&self, bytes: usize, stream: &Stream) -> CallResult<u64> {
        Ok(self.stray("cuMemAllocAsync")?.mem_alloc_async(bytes, stream.raw())?.0)
    }

    /// `cuMemFreeAsync`.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn mem_free_async(&self, address: u64, stream: &Stream) -> CallResult<()> {
        self.stray("cuMemFreeAsync")?.mem_free_async(RawPtr(address), stream.raw())
    }

    /// Synchronous `cuMemcpyHtoD`.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn memcpy_htod<T: Element>(&self, to: &Buffer<T>, from: &[T]) -> CallResult<()> {
        let bytes: &[u8] = bytemuck::cast_slice(from);
        self.stray("cuMemcpyHtoD")?.memcpy_htod(to.ptr(), &bytes[..bytes.len().min(to.bytes())])
    }

    /// `cuMemcpyHtoDAsync` from pageable memory.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn memcpy_htod_async<T: Element>(
        &self,
        to: &Buffer<T>,
        from: &'static [T],
        stream: &Stream,
    ) -> CallResult<()> {
        let bytes: &'static [u8] = bytemuck::cast_slice(from);
        let bytes = &bytes[..bytes.len().min(to.bytes())];
        self.stray("cuMemcpyHtoDAsync")?.memcpy_htod_async(to.ptr(), bytes, stream.raw())
    }

    /// `cuLaunchKernel`.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn launch<A: Args>(
        &self,
        stream: &Stream,
        kernel: &Kernel<A>,
        grid: Grid,
        args: A::Passed<'_>,
    ) -> CallResult<()> {
        self.driver.launch(stream.raw(), kernel.core.raw, &grid, &A::raw(&args))
    }

    /// `cuMemcpyDtoDAsync` of as many elements as the shorter buffer has.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn copy<T: Element>(
        &self,
        stream: &Stream,
        from: &Buffer<T>,
        to: &Buffer<T>,
    ) -> CallResult<()> {
        let bytes = from.bytes().min(to.bytes());
        self.driver.copy(stream.raw(), to.ptr(), from.ptr(), bytes)
    }

    /// `cuLaunchHostFunc`.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn launch_host_function(
        &self,
        stream: &Stream,
        function: impl Fn() + Send + Sync + 'static,
    ) -> CallResult<()> {
        self.stray("cuLaunchHostFunc")?.launch_host_function(stream.raw(), Arc::new(function))
    }

    /// `cuEventCreate`.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn event(&self) -> CallResult<ForeignEvent> {
        Ok(ForeignEvent { foreign: self.clone(), raw: self.driver.event_create()? })
    }

    /// `cuModuleLoadData` of a small module.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn module_load(&self) -> CallResult<u64> {
        self.stray("cuModuleLoadData")?.module_load()
    }

    /// `cuModuleUnload` of a module from [`module_load`](Self::module_load).
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn module_unload(&self, module: u64) -> CallResult<()> {
        self.stray("cuModuleUnload")?.module_unload(module)
    }

    /// Adds `child` as a child graph node to `stream`'s capture and goes on behind it.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn add_child_graph(&self, stream: &Stream, child: &ForeignGraph) -> CallResult<()> {
        self.stray("cuGraphAddChildGraphNode")?.add_child_graph(stream.raw(), child.raw)
    }

    /// `cuGraphRetainUserObject` on the graph that `stream` captures: `released` is called once that
    /// graph and all that was instantiated from it are gone, and may call no driver.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn retain(
        &self,
        stream: &Stream,
        released: impl Fn() + Send + Sync + 'static,
    ) -> CallResult<()> {
        self.driver.capture_retain(stream.raw(), Vec::new(), Arc::new(move |_| released()))
    }

    /// The nodes captured so far by `stream`'s capture, if it captures.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn captured_nodes(&self, stream: &Stream) -> CallResult<Option<usize>> {
        self.stray("cuStreamGetCaptureInfo")?.captured_nodes(stream.raw())
    }
}

/// An event; destroyed when dropped.
#[derive(Debug)]
pub struct ForeignEvent {
    foreign: Foreign,
    raw: RawEvent,
}

impl ForeignEvent {
    /// `cuEventRecord`.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn record(&self, stream: &Stream) -> CallResult<()> {
        self.foreign.driver.event_record(self.raw, stream.raw())
    }

    /// `cuStreamWaitEvent`.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn make_wait(&self, stream: &Stream) -> CallResult<()> {
        self.foreign.driver.stream_wait_event(stream.raw(), self.raw)
    }

    /// `cuEventSynchronize`.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn synchronize(&self) -> CallResult<()> {
        self.foreign.stray("cuEventSynchronize")?.event_synchronize(self.raw)
    }

    /// `cuEventQuery`; `NotReady` is an error.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn query(&self) -> CallResult<()> {
        self.foreign.stray("cuEventQuery")?.event_query(self.raw)
    }
}

impl Drop for ForeignEvent {
    fn drop(&mut self) {
        // A refusal leaks it.
        let _ = self.foreign.driver.event_destroy(self.raw);
    }
}

/// A captured graph; destroyed when dropped, with the precautions that this crate takes.
#[derive(Debug)]
pub struct ForeignGraph {
    foreign: Foreign,
    raw: RawGraph,
}

impl ForeignGraph {
    /// `cuGraphInstantiate`.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn instantiate(&self) -> CallResult<ForeignExec> {
        let raw = self.foreign.driver.graph_instantiate(self.raw)?;
        Ok(ForeignExec { foreign: self.foreign.clone(), raw: Some(raw) })
    }

    /// The number of its nodes.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn nodes(&self) -> CallResult<usize> {
        self.foreign.driver.graph_node_count(self.raw)
    }
}

impl Drop for ForeignGraph {
    fn drop(&mut self) {
        let _relaxed = Relaxed::enter(&self.foreign.driver);
        // A refusal leaks it.
        let _ = self.foreign.driver.graph_destroy(self.raw);
    }
}

/// An instantiated graph; destroyed when dropped, with the precautions that this crate takes.
#[derive(Debug)]
pub struct ForeignExec {
    foreign: Foreign,
    raw: Option<RawExec>,
}

impl ForeignExec {
    /// `cuGraphLaunch`.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn launch(&self, stream: &Stream) -> CallResult<()> {
        match self.raw {
            Some(raw) => self.foreign.driver.graph_launch(raw, stream.raw()),
            None => Err(DriverError::new("cuGraphLaunch", DriverCode::InvalidHandle)),
        }
    }

    /// `cuGraphExecDestroy`, now and without precautions. A refusal leaves it for another try.
    ///
    /// # Errors
    ///
    /// The driver's refusal.
    pub fn destroy(&mut self) -> CallResult<()> {
        match self.raw {
            Some(raw) => {
                self.foreign.driver.exec_destroy(raw)?;
                self.raw = None;
                Ok(())
            }
            None => Err(DriverError::new("cuGraphExecDestroy", DriverCode::InvalidHandle)),
        }
    }
}

impl Drop for ForeignExec {
    fn drop(&mut self) {
        if let Some(raw) = self.raw {
            let _relaxed = Relaxed::enter(&self.foreign.driver);
            // A refusal leaks it.
            let _ = self.foreign.driver.exec_destroy(raw);
        }
    }
}
