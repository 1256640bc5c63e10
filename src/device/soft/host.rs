//! The host device: operations run at once, in the calling thread.
//!
//! Streams and events are only names. A capture is the calling thread's: until it ends, every
//! stream of the device, seen from that thread, records.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::UserObject;
use super::engine::{Engine, Op, fill_call};
use crate::device::driver::{
    CaptureMode, DeviceId, DeviceInfo, DeviceKind, Driver, DriverCode, DriverError, DriverResult,
    Keep, RawEvent, RawExec, RawGraph, RawKernel, RawPtr, RawStream, StreamFlags, StreamState,
};
use crate::device::kernel::{Grid, KernelDecl, RawArg};

thread_local! {
    /// The captures open in this thread, at most one a device.
    static CAPTURES: RefCell<Vec<(DeviceId, Recording)>> = const { RefCell::new(Vec::new()) };
    static MODE: Cell<CaptureMode> = const { Cell::new(CaptureMode::Global) };
}

pub(super) struct Host {
    info: DeviceInfo,
    engine: Engine,
    names: AtomicU64,
    graphs: Table<RawGraph>,
    execs: Table<RawExec>,
}

/// A graph: its operations in order, and what must live as long.
#[derive(Default)]
struct Recording {
    ops: Vec<Op>,
    objects: Vec<Arc<UserObject>>,
}

type Table<K> = Mutex<HashMap<K, Arc<Recording>>>;

impl Host {
    pub(super) fn new() -> Self {
        let info = DeviceInfo { id: DeviceId::next(), kind: DeviceKind::Host, name: "host".into() };
        Self {
            info,
            engine: Engine::default(),
            // The legacy stream's name is below these.
            names: AtomicU64::new(16),
            graphs: Mutex::default(),
            execs: Mutex::default(),
        }
    }

    fn name(&self) -> u64 {
        self.names.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs `with` on this thread's open capture, if there is one.
    fn captured<R>(&self, with: impl FnOnce(&mut Recording) -> R) -> Option<R> {
        CAPTURES.with_borrow_mut(|captures| {
            let open = captures.iter_mut().find(|(device, _)| *device == self.info.id);
            open.map(|(_, recording)| with(recording))
        })
    }

    /// Records what `op` makes if this thread captures, else runs `now`.
    fn submit(
        &self,
        call: &'static str,
        op: impl FnOnce() -> Op,
        now: impl FnOnce() -> Result<(), DriverCode>,
    ) -> DriverResult<()> {
        let recorded = self.captured(|recording| recording.ops.push(op()));
        match recorded {
            Some(()) => Ok(()),
            None => answer(call, now()),
        }
    }

    fn run(&self, recording: &Recording) -> Result<(), DriverCode> {
        recording.ops.iter().try_for_each(|op| self.engine.run(op))
    }
}

fn answer<T>(call: &'static str, result: Result<T, DriverCode>) -> DriverResult<T> {
    result.map_err(|code| DriverError::new(call, code))
}

fn look_up<K: Eq + Hash>(table: &Table<K>, key: K) -> Result<Arc<Recording>, DriverCode> {
    table.lock().get(&key).map(Arc::clone).ok_or(DriverCode::InvalidHandle)
}

fn take_out<K: Eq + Hash>(table: &Table<K>, key: K) -> Result<(), DriverCode> {
    // What the graph kept is dropped after the table is unlocked, since dropping may come back.
    let taken = table.lock().remove(&key);
    taken.map(drop).ok_or(DriverCode::InvalidHandle)
}

impl Driver for Host {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn stream_create(&self, _flags: StreamFlags) -> DriverResult<RawStream> {
        Ok(RawStream(self.name()))
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
        Ok(self.captured(|_| StreamState::Capturing).unwrap_or(StreamState::Idle))
    }
    fn event_create(&self) -> DriverResult<RawEvent> {
        Ok(RawEvent(self.name()))
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
        answer("cuMemAlloc", self.engine.memory.alloc(bytes, 0))
    }
    fn mem_free(&self, ptr: RawPtr) -> DriverResult<()> {
        answer("cuMemFree", self.engine.memory.free(ptr))
    }
    fn copy(&self, _stream: RawStream, dst: RawPtr, src: RawPtr, bytes: usize) -> DriverResult<()> {
        let now = || self.engine.memory.copy(dst, src, bytes);
        self.submit("cuMemcpyDtoDAsync", || Op::Copy { dst, src, bytes }, now)
    }
    fn fill(
        &self,
        _stream: RawStream,
        dst: RawPtr,
        pattern: &[u8],
        count: usize,
    ) -> DriverResult<()> {
        let call = fill_call(pattern);
        let now = || self.engine.memory.fill(dst, pattern, count);
        self.submit(call, || Op::fill(dst, pattern, count), now)
    }
    fn upload(&self, _stream: RawStream, dst: RawPtr, bytes: &[u8]) -> DriverResult<()> {
        answer("cuMemcpyHtoDAsync", self.engine.memory.write(dst, bytes))
    }
    fn download(&self, _stream: RawStream, src: RawPtr, bytes: &mut [u8]) -> DriverResult<()> {
        answer("cuMemcpyDtoHAsync", self.engine.memory.read(src, bytes))
    }

    fn kernel_load(&self, decl: &KernelDecl) -> Result<RawKernel, crate::Error> {
        Ok(answer("cuModuleLoadData", self.engine.load(decl))?)
    }
    fn kernel_unload(&self, kernel: RawKernel) -> DriverResult<()> {
        answer("cuModuleUnload", self.engine.unload(kernel))
    }
    fn launch(
        &self,
        _stream: RawStream,
        kernel: RawKernel,
        grid: &Grid,
        args: &[RawArg<'_>],
    ) -> DriverResult<()> {
        const CALL: &str = "cuLaunchKernel";
        answer(CALL, self.engine.check_launch(kernel, grid))?;
        let now = || self.engine.launch(kernel, grid, args);
        self.submit(CALL, || Op::launch(kernel, grid, args), now)
    }

    fn begin_capture(&self, _stream: RawStream, _mode: CaptureMode) -> DriverResult<()> {
        if self.captured(|_| ()).is_some() {
            return answer("cuStreamBeginCapture", Err(DriverCode::IllegalState));
        }
        CAPTURES.with_borrow_mut(|captures| captures.push((self.info.id, Recording::default())));
        Ok(())
    }
    fn end_capture(&self, _stream: RawStream) -> DriverResult<RawGraph> {
        let recording = CAPTURES.with_borrow_mut(|captures| {
            let open = captures.iter().position(|(device, _)| *device == self.info.id)?;
            Some(captures.swap_remove(open).1)
        });
        let recording = answer("cuStreamEndCapture", recording.ok_or(DriverCode::IllegalState))?;
        let graph = RawGraph(self.name());
        self.graphs.lock().insert(graph, Arc::new(recording));
        Ok(graph)
    }
    fn exchange_capture_mode(&self, mode: CaptureMode) -> DriverResult<CaptureMode> {
        Ok(MODE.replace(mode))
    }
    fn capture_retain(
        &self,
        _stream: RawStream,
        keep: Vec<Keep>,
        release: Arc<dyn Fn(Vec<Keep>) + Send + Sync>,
    ) -> DriverResult<()> {
        let object = Arc::new(UserObject::new(keep, release));
        let retained = self.captured(|recording| recording.objects.push(object));
        answer("cuGraphRetainUserObject", retained.ok_or(DriverCode::IllegalState))
    }

    fn graph_node_count(&self, graph: RawGraph) -> DriverResult<usize> {
        Ok(answer("cuGraphGetNodes", look_up(&self.graphs, graph))?.ops.len())
    }
    fn graph_instantiate(&self, graph: RawGraph) -> DriverResult<RawExec> {
        let recording = answer("cuGraphInstantiate", look_up(&self.graphs, graph))?;
        let exec = RawExec(self.name());
        self.execs.lock().insert(exec, recording);
        Ok(exec)
    }
    fn graph_launch(&self, exec: RawExec, _stream: RawStream) -> DriverResult<()> {
        const CALL: &str = "cuGraphLaunch";
        let recording = answer(CALL, look_up(&self.execs, exec))?;
        if self.captured(|_| ()).is_some() {
            return answer(CALL, Err(DriverCode::CaptureUnsupported));
        }
        answer(CALL, self.run(&recording))
    }
    fn exec_destroy(&self, exec: RawExec) -> DriverResult<()> {
        answer("cuGraphExecDestroy", take_out(&self.execs, exec))
    }
    fn graph_destroy(&self, graph: RawGraph) -> DriverResult<()> {
        answer("cuGraphDestroy", take_out(&self.graphs, graph))
    }

    #[cfg(feature = "simulate")]
    fn stray(&self) -> Option<&dyn crate::device::driver::StrayCalls> {
        None
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({:?})", self.info.id)
    }
}

#[cfg(test)]
mod tests;
