//! GPUs, by the CUDA driver.

#![allow(unsafe_code)]

mod api;
mod context;
mod kernel;
mod nvrtc;
mod staging;
#[cfg(feature = "simulate")]
mod stray;

use std::ffi::{c_int, c_void};
use std::fmt;
use std::sync::Arc;

use api::{Api, Handle};
use context::Context;
use staging::Staging;

use super::driver::{
    CaptureMode, DeviceInfo, Driver, DriverCode, DriverError, DriverResult, Keep, RawEvent,
    RawExec, RawGraph, RawKernel, RawPtr, RawStream, StreamFlags, StreamState,
};
use super::kernel::{Grid, KernelDecl, RawArg};

/// One context on one GPU.
pub(crate) struct Cuda {
    info: DeviceInfo,
    api: &'static Api,
    context: Context,
    staging: Staging,
    /// Compute capability, 90 for 9.0.
    arch: c_int,
}

// SAFETY: driver handles may be used from any thread; the driver is thread-safe, and whatever this
// type changes itself is behind a lock.
unsafe impl Send for Cuda {}
// SAFETY: as above.
unsafe impl Sync for Cuda {}

/// The driver's answer to one call.
fn check(call: &'static str, code: c_int) -> DriverResult<()> {
    match code {
        0 => Ok(()),
        code => Err(DriverError::new(call, DriverCode::from_number(code))),
    }
}

/// `CUstreamCaptureMode`.
fn mode_number(mode: CaptureMode) -> c_int {
    match mode {
        CaptureMode::Global => 0,
        CaptureMode::ThreadLocal => 1,
        CaptureMode::Relaxed => api::RELAXED,
    }
}

impl Cuda {
    fn new(info: DeviceInfo, context: Context) -> DriverResult<Self> {
        const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
        const COMPUTE_CAPABILITY_MINOR: c_int = 76;
        let api = context.api;
        let arch = context.attribute(COMPUTE_CAPABILITY_MAJOR)? * 10
            + context.attribute(COMPUTE_CAPABILITY_MINOR)?;
        Ok(Self { info, api, context, staging: Staging::new(api), arch })
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cuda({})", self.info.name)
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // The last handle may go anywhere, also while somebody captures.
        let _relaxed = self.api.relaxed();
        if let Ok(_current) = self.context.enter() {
            self.staging.clear();
        }
    }
}

// Safety, for every block below: handles come from the driver and are destroyed by their one owner
// above this seam, which keeps them alive while they are used; results are local and valid for
// writing; the context is current.
impl Driver for Cuda {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn stream_create(&self, flags: StreamFlags) -> DriverResult<RawStream> {
        const NON_BLOCKING: u32 = 1;
        let _current = self.context.enter()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: see above.
        check("cuCtxGetStreamPriorityRange", unsafe {
            (self.api.ctx_get_stream_priority_range)(&raw mut least, &raw mut greatest)
        })?;
        let priority = flags.priority.max(greatest).min(least);
        let flags = if flags.blocking { 0 } else { NON_BLOCKING };
        let mut stream = std::ptr::null_mut();
        // SAFETY: see above.
        check("cuStreamCreateWithPriority", unsafe {
            (self.api.stream_create_with_priority)(&raw mut stream, flags, priority)
        })?;
        Ok(RawStream(stream as u64))
    }

    fn stream_priority(&self, stream: RawStream) -> DriverResult<i32> {
        let _current = self.context.enter()?;
        let mut priority = 0;
        // SAFETY: see above.
        check("cuStreamGetPriority", unsafe {
            (self.api.stream_get_priority)(stream.0 as Handle, &raw mut priority)
        })?;
        Ok(priority)
    }

    fn stream_destroy(&self, stream: RawStream) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // SAFETY: see above.
        check("cuStreamDestroy", unsafe { (self.api.stream_destroy)(stream.0 as Handle) })
    }

    fn stream_synchronize(&self, stream: RawStream) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // SAFETY: see above.
        check("cuStreamSynchronize", unsafe { (self.api.stream_synchronize)(stream.0 as Handle) })
    }

    fn stream_state(&self, stream: RawStream) -> DriverResult<StreamState> {
        let _current = self.context.enter()?;
        let mut status = 0;
        // SAFETY: see above.
        let code = unsafe { (self.api.stream_is_capturing)(stream.0 as Handle, &raw mut status) };
        match check("cuStreamIsCapturing", code) {
            Ok(()) => Ok(match status {
                0 => StreamState::Idle,
                1 => StreamState::Capturing,
                _ => StreamState::Invalidated,
            }),
            Err(error) if error.code() == DriverCode::CaptureImplicit => Ok(StreamState::Implicit),
            Err(error) => Err(error),
        }
    }

    fn event_create(&self) -> DriverResult<RawEvent> {
        const DISABLE_TIMING: u32 = 2;
        let _current = self.context.enter()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: see above.
        check("cuEventCreate", unsafe { (self.api.event_create)(&raw mut event, DISABLE_TIMING) })?;
        Ok(RawEvent(event as u64))
    }

    fn event_destroy(&self, event: RawEvent) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // SAFETY: see above.
        check("cuEventDestroy", unsafe { (self.api.event_destroy)(event.0 as Handle) })
    }

    fn event_record(&self, event: RawEvent, stream: RawStream) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // SAFETY: see above.
        check("cuEventRecord", unsafe {
            (self.api.event_record)(event.0 as Handle, stream.0 as Handle)
        })
    }

    fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // SAFETY: see above.
        check("cuStreamWaitEvent", unsafe {
            (self.api.stream_wait_event)(stream.0 as Handle, event.0 as Handle, 0)
        })
    }

    fn mem_alloc(&self, bytes: usize) -> DriverResult<RawPtr> {
        let _current = self.context.enter()?;
        let mut address = 0;
        // SAFETY: see above.
        check("cuMemAlloc", unsafe { (self.api.mem_alloc)(&raw mut address, bytes) })?;
        Ok(RawPtr(address))
    }

    fn mem_free(&self, ptr: RawPtr) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // SAFETY: see above.
        check("cuMemFree", unsafe { (self.api.mem_free)(ptr.0) })
    }

    fn copy(&self, stream: RawStream, dst: RawPtr, src: RawPtr, bytes: usize) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // SAFETY: see above; the ranges are inside allocations that the caller holds.
        check("cuMemcpyDtoDAsync", unsafe {
            (self.api.memcpy_dtod_async)(dst.0, src.0, bytes, stream.0 as Handle)
        })
    }

    fn fill(
        &self,
        stream: RawStream,
        dst: RawPtr,
        pattern: &[u8],
        count: usize,
    ) -> DriverResult<()> {
        let _current = self.context.enter()?;
        let (api, stream) = (self.api, stream.0 as Handle);
        let words =
            || pattern.chunks_exact(4).map(|w| u32::from_ne_bytes([w[0], w[1], w[2], w[3]]));
        // SAFETY: see above; what is written is `count` patterns inside an allocation that the
        // caller holds, aligned as its elements are.
        unsafe {
            if pattern.iter().all(|byte| *byte == pattern[0]) {
                let bytes = pattern.len() * count;
                return check(
                    "cuMemsetD8Async",
                    (api.memset_d8_async)(dst.0, pattern[0], bytes, stream),
                );
            }
            if let [low, high] = *pattern {
                let value = u16::from_ne_bytes([low, high]);
                return check(
                    "cuMemsetD16Async",
                    (api.memset_d16_async)(dst.0, value, count, stream),
                );
            }
            let first = words().next().unwrap_or(0);
            if words().all(|word| word == first) {
                let length = pattern.len() / 4 * count;
                return check(
                    "cuMemsetD32Async",
                    (api.memset_d32_async)(dst.0, first, length, stream),
                );
            }
            // One column of words for each word of the pattern.
            words().enumerate().try_for_each(|(index, word)| {
                let column = dst.0 + 4 * index as u64;
                check(
                    "cuMemsetD2D32Async",
                    (api.memset_d2d32_async)(column, pattern.len(), word, 1, count, stream),
                )
            })
        }
    }

    fn upload(&self, stream: RawStream, dst: RawPtr, bytes: &[u8]) -> DriverResult<()> {
        let _current = self.context.enter()?;
        let stream = stream.0 as Handle;
        let mut to = dst.0;
        for chunk in bytes.chunks(Staging::BLOCK) {
            self.staging.with(stream, |pinned| {
                // SAFETY: the block is `Staging::BLOCK` long and nobody else's until the event
                // behind this copy; the destination is inside an allocation that the caller holds.
                check("cuMemcpyHtoDAsync", unsafe {
                    std::ptr::copy_nonoverlapping(chunk.as_ptr(), pinned.cast(), chunk.len());
                    (self.api.memcpy_htod_async)(to, pinned, chunk.len(), stream)
                })
            })?;
            to += chunk.len() as u64;
        }
        Ok(())
    }

    fn download(&self, stream: RawStream, src: RawPtr, bytes: &mut [u8]) -> DriverResult<()> {
        let _current = self.context.enter()?;
        let stream = stream.0 as Handle;
        let mut from = src.0;
        for chunk in bytes.chunks_mut(Staging::BLOCK) {
            self.staging.with(stream, |pinned| {
                // SAFETY: as for `upload`, the other way round; the copy is done when it is read.
                unsafe {
                    check(
                        "cuMemcpyDtoHAsync",
                        (self.api.memcpy_dtoh_async)(pinned, from, chunk.len(), stream),
                    )?;
                    check("cuStreamSynchronize", (self.api.stream_synchronize)(stream))?;
                    std::ptr::copy_nonoverlapping(
                        pinned.cast::<u8>(),
                        chunk.as_mut_ptr(),
                        chunk.len(),
                    );
                }
                Ok(())
            })?;
            from += chunk.len() as u64;
        }
        Ok(())
    }

    fn kernel_load(&self, decl: &KernelDecl) -> Result<RawKernel, crate::Error> {
        self.load(decl)
    }

    fn kernel_unload(&self, kernel: RawKernel) -> DriverResult<()> {
        self.unload(kernel)
    }

    fn launch(
        &self,
        stream: RawStream,
        kernel: RawKernel,
        grid: &Grid,
        args: &[RawArg<'_>],
    ) -> DriverResult<()> {
        self.launch_kernel(stream, kernel, grid, args)
    }

    fn begin_capture(&self, stream: RawStream, mode: CaptureMode) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // SAFETY: see above.
        check("cuStreamBeginCapture", unsafe {
            (self.api.stream_begin_capture)(stream.0 as Handle, mode_number(mode))
        })
    }

    fn end_capture(&self, stream: RawStream) -> DriverResult<RawGraph> {
        let _current = self.context.enter()?;
        let mut graph = std::ptr::null_mut();
        // SAFETY: see above.
        check("cuStreamEndCapture", unsafe {
            (self.api.stream_end_capture)(stream.0 as Handle, &raw mut graph)
        })?;
        Ok(RawGraph(graph as u64))
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> DriverResult<CaptureMode> {
        let mut number = mode_number(mode);
        // SAFETY: see above; needs no context.
        check("cuThreadExchangeStreamCaptureMode", unsafe {
            (self.api.thread_exchange_capture_mode)(&raw mut number)
        })?;
        Ok(match number {
            1 => CaptureMode::ThreadLocal,
            2 => CaptureMode::Relaxed,
            _ => CaptureMode::Global,
        })
    }

    fn capture_retain(
        &self,
        stream: RawStream,
        keep: Vec<Keep>,
        release: Arc<dyn Fn(Vec<Keep>) + Send + Sync>,
    ) -> DriverResult<()> {
        const NO_DESTRUCTOR_SYNC: u32 = 1;
        const MOVE: u32 = 1;
        let _current = self.context.enter()?;
        let graph = self.capture_graph(stream)?;
        let kept = Box::into_raw(Box::new(Kept { keep, release }));
        let mut object = std::ptr::null_mut();
        // SAFETY: see above; the object owns `kept` and gives it to `let_go` exactly once.
        let made = check("cuUserObjectCreate", unsafe {
            (self.api.user_object_create)(
                &raw mut object,
                kept.cast(),
                let_go,
                1,
                NO_DESTRUCTOR_SYNC,
            )
        });
        if let Err(error) = made {
            // SAFETY: no object was made, so this is the one owner again.
            drop(unsafe { Box::from_raw(kept) });
            return Err(error);
        }
        // SAFETY: see above; the capture's graph is alive while the stream captures.
        let retained = check("cuGraphRetainUserObject", unsafe {
            (self.api.graph_retain_user_object)(graph, object, 1, MOVE)
        });
        if retained.is_err() {
            // SAFETY: the reference that could not be moved is still ours.
            let _ = unsafe { (self.api.user_object_release)(object, 1) };
        }
        retained
    }

    fn graph_node_count(&self, graph: RawGraph) -> DriverResult<usize> {
        let _current = self.context.enter()?;
        let mut count = 0;
        // SAFETY: see above; with no array, the call only counts.
        check("cuGraphGetNodes", unsafe {
            (self.api.graph_get_nodes)(graph.0 as Handle, std::ptr::null_mut(), &raw mut count)
        })?;
        Ok(count)
    }

    fn graph_instantiate(&self, graph: RawGraph) -> DriverResult<RawExec> {
        const USE_NODE_PRIORITY: u64 = 8;
        let _current = self.context.enter()?;
        let mut exec = std::ptr::null_mut();
        // SAFETY: see above.
        check("cuGraphInstantiateWithFlags", unsafe {
            let graph = graph.0 as Handle;
            (self.api.graph_instantiate_with_flags)(&raw mut exec, graph, USE_NODE_PRIORITY)
        })?;
        Ok(RawExec(exec as u64))
    }

    fn graph_launch(&self, exec: RawExec, stream: RawStream) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // SAFETY: see above; what the graph refers to is kept alive with it.
        check("cuGraphLaunch", unsafe {
            (self.api.graph_launch)(exec.0 as Handle, stream.0 as Handle)
        })
    }

    fn exec_destroy(&self, exec: RawExec) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // SAFETY: see above.
        check("cuGraphExecDestroy", unsafe { (self.api.graph_exec_destroy)(exec.0 as Handle) })
    }

    fn graph_destroy(&self, graph: RawGraph) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // SAFETY: see above.
        check("cuGraphDestroy", unsafe { (self.api.graph_destroy)(graph.0 as Handle) })
    }

    #[cfg(feature = "simulate")]
    fn stray(&self) -> Option<&dyn super::driver::StrayCalls> {
        Some(self)
    }
}

impl Cuda {
    /// The graph that a stream is capturing.
    fn capture_graph(&self, stream: RawStream) -> DriverResult<Handle> {
        const CALL: &str = "cuStreamGetCaptureInfo";
        let (mut status, mut id, mut graph) = (0, 0, std::ptr::null_mut());
        let (mut nodes, mut count) = (std::ptr::null(), 0);
        // SAFETY: the stream is alive and all results are valid for writing.
        check(CALL, unsafe {
            (self.api.stream_get_capture_info)(
                stream.0 as Handle,
                &raw mut status,
                &raw mut id,
                &raw mut graph,
                &raw mut nodes,
                &raw mut count,
            )
        })?;
        match status {
            1 => Ok(graph),
            0 => Err(DriverError::new(CALL, DriverCode::IllegalState)),
            _ => Err(DriverError::new(CALL, DriverCode::CaptureInvalidated)),
        }
    }
}

/// What a user object holds.
struct Kept {
    keep: Vec<Keep>,
    release: Arc<dyn Fn(Vec<Keep>) + Send + Sync>,
}

/// A user object's destructor, called by the driver on a thread of its own: hands on what was kept
/// and calls no CUDA.
unsafe extern "C" fn let_go(kept: *mut c_void) {
    // SAFETY: the driver calls this once, with what the object was made with.
    let kept = unsafe { Box::from_raw(kept.cast::<Kept>()) };
    (kept.release)(kept.keep);
}
