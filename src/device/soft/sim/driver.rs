//! The simulated device's answers to the crate's driver calls.

use std::sync::Arc;

use super::capture::CaptureId;
use super::flow::Work;
use super::queue::Task;
use super::state::{Answer, EventRecord, ExecRecord, MODE, State, Target};
use super::{GARBAGE, Simulation};
use crate::device::driver::{
    CaptureMode, DeviceInfo, Driver, DriverCode, DriverResult, Keep, RawEvent, RawExec, RawGraph,
    RawKernel, RawPtr, RawStream, StrayCalls, StreamFlags, StreamState,
};
use crate::device::kernel::{Grid, KernelDecl, RawArg};
use crate::device::soft::UserObject;
use crate::device::soft::engine::{Op, fill_call};

impl Simulation {
    /// Enqueues an operation on `stream`, or records it.
    pub(super) fn submit(
        &self,
        name: &'static str,
        stream: RawStream,
        op: impl FnOnce() -> Answer<Op>,
    ) -> DriverResult<()> {
        self.call(name, Some(stream), || {
            let mut state = self.enter()?;
            match state.target(stream)? {
                Target::Run => drop(state.enqueue(stream, Task::Op(op()?))?),
                Target::Record(id) => state.record(id, stream, Work::Op(op()?)),
            }
            Ok(())
        })
    }

    /// Ends the capture of `stream`, also in a call that shall fail by `fault`.
    fn close_capture(&self, stream: RawStream, fault: Option<DriverCode>) -> Answer<RawGraph> {
        let mut state = self.enter()?;
        let (capture, verdict) = state.end_capture(stream).map_err(|code| fault.unwrap_or(code))?;
        if let Err(code) = fault.map_or(verdict, Err) {
            drop(state);
            // What the capture kept alive is let go where that may call the device.
            drop(capture);
            return Err(code);
        }
        let graph = RawGraph(state.name());
        state.graphs.insert(graph, Arc::new(capture.flow));
        Ok(graph)
    }
}

impl State {
    pub(super) fn record(&mut self, id: CaptureId, stream: RawStream, work: Work) {
        if let Some(capture) = self.captures.get_mut(&id) {
            capture.record(stream, work);
        }
    }
}

impl Driver for Simulation {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn simulation(&self) -> Option<&Simulation> {
        Some(self)
    }

    fn stream_create(&self, flags: StreamFlags) -> DriverResult<RawStream> {
        self.call("cuStreamCreateWithPriority", None, || Ok(self.enter()?.add_stream(flags)))
    }

    fn stream_destroy(&self, stream: RawStream) -> DriverResult<()> {
        self.call("cuStreamDestroy", Some(stream), || {
            let capture = self.enter()?.remove_stream(stream)?;
            drop(capture);
            Ok(())
        })
    }

    fn stream_priority(&self, stream: RawStream) -> DriverResult<i32> {
        self.call("cuStreamGetPriority", Some(stream), || {
            Ok(self.enter()?.stream(stream)?.priority())
        })
    }

    fn stream_synchronize(&self, stream: RawStream) -> DriverResult<()> {
        self.call("cuStreamSynchronize", Some(stream), || {
            let mut state = self.enter()?;
            state.target_outside(stream)?;
            state.refuse_unsafe()?;
            let work = state.own_work(stream)?;
            self.wait_for(&mut state, &work)
        })
    }

    fn stream_state(&self, stream: RawStream) -> DriverResult<StreamState> {
        self.call("cuStreamIsCapturing", Some(stream), || {
            let mut state = self.enter()?;
            let capture = state.stream(stream)?.capture;
            Ok(match capture {
                Some(id) if state.captures[&id].broken => StreamState::Invalidated,
                Some(_) => StreamState::Capturing,
                None if stream == RawStream::LEGACY && !state.implicit_captures().is_empty() => {
                    StreamState::Implicit
                }
                None => StreamState::Idle,
            })
        })
    }

    fn event_create(&self) -> DriverResult<RawEvent> {
        self.call("cuEventCreate", None, || {
            let mut state = self.enter()?;
            let event = RawEvent(state.name());
            state.events.insert(event, EventRecord::Unrecorded);
            Ok(event)
        })
    }

    fn event_destroy(&self, event: RawEvent) -> DriverResult<()> {
        self.call("cuEventDestroy", None, || {
            let removed = self.enter()?.events.remove(&event);
            removed.map(drop).ok_or(DriverCode::InvalidHandle)
        })
    }

    fn event_record(&self, event: RawEvent, stream: RawStream) -> DriverResult<()> {
        self.call("cuEventRecord", Some(stream), || self.enter()?.record_event(event, stream))
    }

    fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> DriverResult<()> {
        self.call("cuStreamWaitEvent", Some(stream), || self.enter()?.wait_event(stream, event))
    }

    fn mem_alloc(&self, bytes: usize) -> DriverResult<RawPtr> {
        self.call("cuMemAlloc", None, || {
            self.enter()?.refuse_unsafe()?;
            self.engine.memory.alloc(bytes, GARBAGE)
        })
    }

    fn mem_free(&self, ptr: RawPtr) -> DriverResult<()> {
        self.call("cuMemFree", None, || {
            let mut state = self.enter()?;
            state.refuse_unsafe()?;
            if !self.engine.memory.begins_at(ptr) {
                return Err(DriverCode::InvalidValue);
            }
            self.wait_for_all(&mut state)?;
            self.engine.memory.free(ptr)
        })
    }

    fn copy(&self, stream: RawStream, dst: RawPtr, src: RawPtr, bytes: usize) -> DriverResult<()> {
        self.submit("cuMemcpyDtoDAsync", stream, || Ok(Op::Copy { dst, src, bytes }))
    }

    fn fill(
        &self,
        stream: RawStream,
        dst: RawPtr,
        pattern: &[u8],
        count: usize,
    ) -> DriverResult<()> {
        self.submit(fill_call(pattern), stream, || Ok(Op::fill(dst, pattern, count)))
    }

    fn upload(&self, stream: RawStream, dst: RawPtr, bytes: &[u8]) -> DriverResult<()> {
        self.call("cuMemcpyHtoDAsync", Some(stream), || {
            let mut state = self.enter()?;
            state.target_outside(stream)?;
            state.refuse_unsafe()?;
            let op = Op::Write { dst, bytes: bytes.to_vec().into() };
            state.enqueue(stream, Task::Op(op)).map(drop)
        })
    }

    fn download(&self, stream: RawStream, src: RawPtr, bytes: &mut [u8]) -> DriverResult<()> {
        self.call("cuMemcpyDtoHAsync", Some(stream), || {
            let mut state = self.enter()?;
            state.target_outside(stream)?;
            state.refuse_unsafe()?;
            let work = state.position(stream)?;
            self.wait_for(&mut state, &work)?;
            drop(state);
            self.engine.memory.read(src, bytes).inspect_err(|&code| self.lose_context(code))
        })
    }

    fn kernel_load(&self, decl: &KernelDecl) -> Result<RawKernel, crate::Error> {
        let loaded = self.call("cuModuleLoadData", None, || {
            let _state = self.enter()?;
            self.engine.load(decl)
        });
        Ok(loaded?)
    }

    fn kernel_unload(&self, kernel: RawKernel) -> DriverResult<()> {
        self.call("cuModuleUnload", None, || {
            let mut state = self.enter()?;
            state.refuse_unsafe()?;
            self.wait_for_all(&mut state)?;
            drop(state);
            self.engine.unload(kernel)
        })
    }

    fn launch(
        &self,
        stream: RawStream,
        kernel: RawKernel,
        grid: &Grid,
        args: &[RawArg<'_>],
    ) -> DriverResult<()> {
        self.submit("cuLaunchKernel", stream, || {
            self.engine.check_launch(kernel, grid)?;
            Ok(Op::launch(kernel, grid, args))
        })
    }

    fn begin_capture(&self, stream: RawStream, mode: CaptureMode) -> DriverResult<()> {
        self.call("cuStreamBeginCapture", Some(stream), || {
            self.enter()?.begin_capture(stream, mode)
        })
    }

    fn end_capture(&self, stream: RawStream) -> DriverResult<RawGraph> {
        self.call_or(
            "cuStreamEndCapture",
            Some(stream),
            |code| self.close_capture(stream, Some(code)),
            || self.close_capture(stream, None),
        )
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> DriverResult<CaptureMode> {
        // The thread's own affair: a lost context does not matter.
        self.call("cuThreadExchangeStreamCaptureMode", None, || Ok(MODE.replace(mode)))
    }

    fn capture_retain(
        &self,
        stream: RawStream,
        keep: Vec<Keep>,
        release: Arc<dyn Fn(Vec<Keep>) + Send + Sync>,
    ) -> DriverResult<()> {
        let object = Arc::new(UserObject::new(keep, release));
        self.call("cuGraphRetainUserObject", Some(stream), || {
            let mut state = self.enter()?;
            let Target::Record(id) = state.target(stream)? else {
                return Err(DriverCode::IllegalState);
            };
            if let Some(capture) = state.captures.get_mut(&id) {
                capture.flow.objects.push(Arc::clone(&object));
            }
            Ok(())
        })
    }

    fn graph_node_count(&self, graph: RawGraph) -> DriverResult<usize> {
        self.call("cuGraphGetNodes", None, || {
            let state = self.enter()?;
            state.graphs.get(&graph).map(|flow| flow.nodes.len()).ok_or(DriverCode::InvalidHandle)
        })
    }

    fn graph_instantiate(&self, graph: RawGraph) -> DriverResult<RawExec> {
        self.call("cuGraphInstantiate", None, || {
            let mut state = self.enter()?;
            state.refuse_unsafe()?;
            let flow = state.graphs.get(&graph).map(Arc::clone).ok_or(DriverCode::InvalidHandle)?;
            let exec = RawExec(state.name());
            state.execs.insert(exec, ExecRecord { flow, last: None });
            Ok(exec)
        })
    }

    fn graph_launch(&self, exec: RawExec, stream: RawStream) -> DriverResult<()> {
        self.call("cuGraphLaunch", Some(stream), || {
            let mut state = self.enter()?;
            if !state.execs.contains_key(&exec) {
                return Err(DriverCode::InvalidHandle);
            }
            state.target_outside(stream)?;
            state.enqueue_graph(stream, exec)
        })
    }

    fn exec_destroy(&self, exec: RawExec) -> DriverResult<()> {
        self.call("cuGraphExecDestroy", None, || {
            let mut state = self.enter()?;
            state.refuse_unsafe()?;
            let removed = state.execs.remove(&exec);
            drop(state);
            removed.map(drop).ok_or(DriverCode::InvalidHandle)
        })
    }

    fn graph_destroy(&self, graph: RawGraph) -> DriverResult<()> {
        self.call("cuGraphDestroy", None, || {
            let mut state = self.enter()?;
            state.refuse_unsafe()?;
            let removed = state.graphs.remove(&graph);
            drop(state);
            removed.map(drop).ok_or(DriverCode::InvalidHandle)
        })
    }

    fn stray(&self) -> Option<&dyn StrayCalls> {
        Some(self)
    }
}
