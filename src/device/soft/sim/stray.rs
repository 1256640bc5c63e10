//! The simulated device's answers to calls that the crate itself never makes.

use std::sync::Arc;

use super::flow::Work;
use super::queue::Task;
use super::state::Target;
use super::{GARBAGE, Simulation};
use crate::device::driver::{
    DriverCode, DriverResult, RawEvent, RawGraph, RawPtr, RawStream, StrayCalls,
};
use crate::device::soft::engine::Op;
use crate::device::soft::memory::Memory;

impl StrayCalls for Simulation {
    fn stream_query(&self, stream: RawStream) -> DriverResult<()> {
        self.call("cuStreamQuery", Some(stream), || {
            let mut state = self.enter()?;
            state.target_outside(stream)?;
            state.refuse_unsafe()?;
            let work = state.own_work(stream)?;
            self.poll(&mut state)?;
            match work.iter().any(|&id| state.queue.is_pending(id)) {
                true => Err(DriverCode::NotReady),
                false => Ok(()),
            }
        })
    }

    fn context_synchronize(&self) -> DriverResult<()> {
        self.call("cuCtxSynchronize", None, || {
            let mut state = self.enter()?;
            state.refuse_any_capture()?;
            self.wait_for_all(&mut state)
        })
    }

    fn event_synchronize(&self, event: RawEvent) -> DriverResult<()> {
        self.call("cuEventSynchronize", None, || {
            let mut state = self.enter()?;
            let work = state.event_work(event)?;
            state.refuse_unsafe()?;
            self.wait_for(&mut state, &work)
        })
    }

    fn event_query(&self, event: RawEvent) -> DriverResult<()> {
        self.call("cuEventQuery", None, || {
            let mut state = self.enter()?;
            let work = state.event_work(event)?;
            state.refuse_unsafe()?;
            self.poll(&mut state)?;
            match work.iter().any(|&id| state.queue.is_pending(id)) {
                true => Err(DriverCode::NotReady),
                false => Ok(()),
            }
        })
    }

    fn mem_alloc_async(&self, bytes: usize, stream: RawStream) -> DriverResult<RawPtr> {
        self.call("cuMemAllocAsync", Some(stream), || {
            let mut state = self.enter()?;
            let target = state.target(stream)?;
            if matches!(target, Target::Run) {
                state.refuse_unsafe()?;
                return self.engine.memory.alloc(bytes, GARBAGE);
            }
            let ptr = Memory::reserve(bytes)?;
            if let Target::Record(id) = target
                && let Some(capture) = state.captures.get_mut(&id)
            {
                capture.record(stream, Work::Op(Op::Alloc { ptr, bytes, initial: GARBAGE }));
                capture.allocated.insert(ptr);
            }
            Ok(ptr)
        })
    }

    fn mem_free_async(&self, ptr: RawPtr, stream: RawStream) -> DriverResult<()> {
        self.call("cuMemFreeAsync", Some(stream), || {
            let mut state = self.enter()?;
            match state.target(stream)? {
                Target::Run => {
                    state.refuse_unsafe()?;
                    if !self.engine.memory.begins_at(ptr) {
                        return Err(DriverCode::InvalidValue);
                    }
                    state.enqueue(stream, Task::Op(Op::Free { ptr })).map(drop)
                }
                Target::Record(id) => {
                    let capture = state.captures.get_mut(&id).ok_or(DriverCode::IllegalState)?;
                    if !capture.allocated.remove(&ptr) {
                        return Err(DriverCode::InvalidValue);
                    }
                    capture.record(stream, Work::Op(Op::Free { ptr }));
                    Ok(())
                }
            }
        })
    }

    fn memcpy_htod(&self, dst: RawPtr, bytes: &[u8]) -> DriverResult<()> {
        self.call("cuMemcpyHtoD", None, || {
            let mut state = self.enter()?;
            state.refuse_implicit()?;
            let work = state.position(RawStream::LEGACY)?;
            self.wait_for(&mut state, &work)?;
            drop(state);
            self.engine.memory.write(dst, bytes).inspect_err(|&code| self.lose_context(code))
        })
    }

    fn memcpy_htod_async(
        &self,
        dst: RawPtr,
        bytes: &'static [u8],
        stream: RawStream,
    ) -> DriverResult<()> {
        self.submit("cuMemcpyHtoDAsync", stream, || Ok(Op::Write { dst, bytes: bytes.into() }))
    }

    fn launch_host_function(
        &self,
        stream: RawStream,
        function: Arc<dyn Fn() + Send + Sync>,
    ) -> DriverResult<()> {
        self.submit("cuLaunchHostFunc", stream, || Ok(Op::HostFunction(function)))
    }

    fn module_load(&self) -> DriverResult<u64> {
        self.call("cuModuleLoadData", None, || {
            let mut state = self.enter()?;
            let module = state.name();
            state.modules.insert(module);
            Ok(module)
        })
    }

    fn module_unload(&self, module: u64) -> DriverResult<()> {
        self.call("cuModuleUnload", None, || {
            let mut state = self.enter()?;
            state.refuse_unsafe()?;
            match state.modules.remove(&module) {
                true => Ok(()),
                false => Err(DriverCode::InvalidHandle),
            }
        })
    }

    fn add_child_graph(&self, stream: RawStream, child: RawGraph) -> DriverResult<()> {
        self.call("cuGraphAddChildGraphNode", Some(stream), || {
            let mut state = self.enter()?;
            let child = state.graphs.get(&child).map(Arc::clone);
            let child = child.ok_or(DriverCode::InvalidHandle)?;
            if child.has_memory_nodes() {
                return Err(DriverCode::NotSupported);
            }
            match state.target(stream)? {
                Target::Run => Err(DriverCode::IllegalState),
                Target::Record(id) => {
                    state.record(id, stream, Work::Child(child));
                    Ok(())
                }
            }
        })
    }

    fn captured_nodes(&self, stream: RawStream) -> DriverResult<Option<usize>> {
        self.call("cuStreamGetCaptureInfo", Some(stream), || {
            let mut state = self.enter()?;
            let capture = state.stream(stream)?.capture.map(|id| &state.captures[&id]);
            Ok(capture.filter(|capture| !capture.broken).map(|capture| capture.flow.nodes.len()))
        })
    }
}
