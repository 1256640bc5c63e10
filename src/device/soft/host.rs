//! The host device: operations run as they are enqueued, on this machine's cores.
//!
//! Streams are names. A capture is its thread's: until it ends, whatever that thread enqueues on
//! this device is recorded instead of run (S13), and no other thread is concerned.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{ThreadId, current};

use parking_lot::Mutex;

use super::op::{Engine, Op, OwnedArg};
use crate::device::driver::{
    CaptureMode, DeviceId, DeviceInfo, DeviceKind, Driver, DriverCode, DriverError, DriverResult,
    Keep, RawEvent, RawExec, RawGraph, RawKernel, RawPtr, RawStream, StreamFlags, StreamState,
};
use crate::device::kernel::{Grid, KernelDecl, RawArg};

pub(crate) struct Host {
    info: DeviceInfo,
    engine: Engine,
    next: AtomicU64,
    captures: Mutex<HashMap<ThreadId, Capture>>,
    graphs: Mutex<HashMap<u64, Recorded>>,
}

/// A capture in progress.
struct Capture {
    stream: RawStream,
    graph: Recorded,
}

/// A graph: its operations in order, and what it keeps.
#[derive(Clone, Default)]
struct Recorded {
    ops: Vec<Arc<Op>>,
    anchors: Vec<Arc<super::Anchor>>,
}

impl Host {
    pub(crate) fn new() -> Self {
        let info = DeviceInfo { id: DeviceId::next(), kind: DeviceKind::Host, name: "host".into() };
        Self {
            info,
            engine: Engine::default(),
            next: AtomicU64::new(RawStream::LEGACY.0 + 1),
            captures: Mutex::default(),
            graphs: Mutex::default(),
        }
    }

    fn handle(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Records what `op` makes if this thread captures, and runs `now` otherwise.
    fn submit(
        &self,
        call: &'static str,
        op: impl FnOnce() -> Op,
        now: impl FnOnce() -> Result<(), DriverCode>,
    ) -> DriverResult<()> {
        if let Some(capture) = self.captures.lock().get_mut(&current().id()) {
            capture.graph.ops.push(Arc::new(op()));
            return Ok(());
        }
        now().map_err(|code| DriverError::new(call, code))
    }

    fn graph(&self, call: &'static str, handle: u64) -> DriverResult<Recorded> {
        let graphs = self.graphs.lock();
        graphs.get(&handle).cloned().ok_or(DriverError::new(call, DriverCode::InvalidHandle))
    }

    fn destroy(&self, call: &'static str, handle: u64) -> DriverResult<()> {
        let gone = self.graphs.lock().remove(&handle);
        gone.map(drop).ok_or(DriverError::new(call, DriverCode::InvalidHandle))
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Host")
    }
}

impl Driver for Host {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn stream_create(&self, _flags: StreamFlags) -> DriverResult<RawStream> {
        Ok(RawStream(self.handle()))
    }

    fn stream_priority(&self, _stream: RawStream) -> DriverResult<i32> {
        Ok(0)
    }

    fn stream_destroy(&self, _stream: RawStream) -> DriverResult<()> {
        Ok(())
    }

    fn stream_synchronize(&self, _stream: RawStream) -> DriverResult<()> {
        Ok(())
    }

    fn stream_state(&self, _stream: RawStream) -> DriverResult<StreamState> {
        Ok(if self.captures.lock().contains_key(&current().id()) {
            StreamState::Capturing
        } else {
            StreamState::Idle
        })
    }

    fn event_create(&self) -> DriverResult<RawEvent> {
        Ok(RawEvent(self.handle()))
    }

    fn event_destroy(&self, _event: RawEvent) -> DriverResult<()> {
        Ok(())
    }

    fn event_record(&self, _event: RawEvent, _stream: RawStream) -> DriverResult<()> {
        Ok(())
    }

    fn stream_wait_event(&self, _stream: RawStream, _event: RawEvent) -> DriverResult<()> {
        Ok(())
    }

    fn mem_alloc(&self, bytes: usize) -> DriverResult<RawPtr> {
        self.engine.memory.alloc(bytes).map_err(|code| DriverError::new("cuMemAlloc", code))
    }

    fn mem_free(&self, ptr: RawPtr) -> DriverResult<()> {
        self.engine.memory.free(ptr).map_err(|code| DriverError::new("cuMemFree", code))
    }

    fn copy(&self, _: RawStream, dst: RawPtr, src: RawPtr, bytes: usize) -> DriverResult<()> {
        self.submit(
            "cuMemcpyDtoDAsync",
            || Op::Copy { destination: dst, source: src, bytes },
            || self.engine.copy(dst, src, bytes),
        )
    }

    fn fill(&self, _: RawStream, dst: RawPtr, pattern: &[u8], count: usize) -> DriverResult<()> {
        self.submit(
            "cuMemsetAsync",
            || Op::Fill { destination: dst, pattern: pattern.into(), count },
            || self.engine.fill(dst, pattern, count),
        )
    }

    fn upload(&self, _: RawStream, dst: RawPtr, bytes: &[u8]) -> DriverResult<()> {
        // Not through `submit`: a buffer's first contents are written even while this thread
        // captures, as they are on a stream of their own on the other devices.
        self.engine.write(dst, bytes).map_err(|code| DriverError::new("cuMemcpyHtoDAsync", code))
    }

    fn download(&self, _: RawStream, src: RawPtr, bytes: &mut [u8]) -> DriverResult<()> {
        self.engine.read(src, bytes).map_err(|code| DriverError::new("cuMemcpyDtoHAsync", code))
    }

    fn kernel_load(&self, decl: &KernelDecl) -> Result<RawKernel, crate::Error> {
        Ok(self.engine.load(decl).map_err(|code| DriverError::new("cuModuleLoadData", code))?)
    }

    fn kernel_unload(&self, kernel: RawKernel) -> DriverResult<()> {
        self.engine.unload(kernel).map_err(|code| DriverError::new("cuModuleUnload", code))
    }

    fn launch(
        &self,
        _: RawStream,
        kernel: RawKernel,
        grid: &Grid,
        args: &[RawArg<'_>],
    ) -> DriverResult<()> {
        self.submit(
            "cuLaunchKernel",
            || Op::Launch { kernel, grid: *grid, args: OwnedArg::all(args) },
            || self.engine.launch(kernel, grid, args),
        )
    }

    fn begin_capture(&self, stream: RawStream, _mode: CaptureMode) -> DriverResult<()> {
        let refuse = |code| Err(DriverError::new("cuStreamBeginCapture", code));
        let mut captures = self.captures.lock();
        if stream == RawStream::LEGACY {
            return refuse(DriverCode::CaptureUnsupported);
        }
        if captures.contains_key(&current().id()) {
            return refuse(DriverCode::IllegalState);
        }
        captures.insert(current().id(), Capture { stream, graph: Recorded::default() });
        Ok(())
    }

    fn end_capture(&self, stream: RawStream) -> DriverResult<RawGraph> {
        let refuse = |code| Err(DriverError::new("cuStreamEndCapture", code));
        let mut captures = self.captures.lock();
        match captures.get(&current().id()) {
            None => return refuse(DriverCode::IllegalState),
            Some(capture) if capture.stream != stream => {
                return refuse(DriverCode::CaptureUnmatched);
            }
            Some(_) => {}
        }
        let capture = captures.remove(&current().id());
        drop(captures);
        let handle = self.handle();
        self.graphs.lock().insert(handle, capture.map(|c| c.graph).unwrap_or_default());
        Ok(RawGraph(handle))
    }

    fn exchange_capture_mode(&self, _mode: CaptureMode) -> DriverResult<CaptureMode> {
        Ok(CaptureMode::Global)
    }

    fn capture_retain(
        &self,
        _: RawStream,
        keep: Vec<Keep>,
        release: Arc<dyn Fn(Vec<Keep>) + Send + Sync>,
    ) -> DriverResult<()> {
        match self.captures.lock().get_mut(&current().id()) {
            Some(capture) => {
                capture.graph.anchors.push(Arc::new(super::Anchor::new(keep, release)));
                Ok(())
            }
            None => Err(DriverError::new("cuGraphRetainUserObject", DriverCode::IllegalState)),
        }
    }

    fn graph_node_count(&self, graph: RawGraph) -> DriverResult<usize> {
        Ok(self.graph("cuGraphGetNodes", graph.0)?.ops.len())
    }

    fn graph_instantiate(&self, graph: RawGraph) -> DriverResult<RawExec> {
        let recorded = self.graph("cuGraphInstantiate", graph.0)?;
        let handle = self.handle();
        self.graphs.lock().insert(handle, recorded);
        Ok(RawExec(handle))
    }

    fn graph_launch(&self, exec: RawExec, _stream: RawStream) -> DriverResult<()> {
        let recorded = self.graph("cuGraphLaunch", exec.0)?;
        for op in &recorded.ops {
            self.engine.run(op).map_err(|code| DriverError::new("cuGraphLaunch", code))?;
        }
        Ok(())
    }

    fn exec_destroy(&self, exec: RawExec) -> DriverResult<()> {
        self.destroy("cuGraphExecDestroy", exec.0)
    }

    fn graph_destroy(&self, graph: RawGraph) -> DriverResult<()> {
        self.destroy("cuGraphDestroy", graph.0)
    }

    #[cfg(feature = "simulate")]
    fn stray(&self) -> Option<&dyn crate::device::driver::StrayCalls> {
        None
    }
}
