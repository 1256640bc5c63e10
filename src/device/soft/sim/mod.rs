//! A simulated CUDA: streams are queues that run when something waits for them, in any order that
//! their events allow, chosen by a seed. A missing wait shows as a wrong result.

mod control;
mod schedule;
mod state;

use std::fmt;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

pub use control::{Call, Live, Simulation};
use control::{Control, Inspect};
use schedule::OpId;
use state::State;

use super::op::{Engine, Op, OwnedArg};
use crate::device::driver::{
    CaptureMode, DeviceId, DeviceInfo, DeviceKind, Driver, DriverCode, DriverResult, Keep,
    RawEvent, RawExec, RawGraph, RawKernel, RawPtr, RawStream, StrayCalls, StreamFlags,
    StreamState,
};
use crate::device::kernel::{Grid, KernelDecl, RawArg};

type Answer<T> = Result<T, DriverCode>;

pub(crate) struct Sim {
    info: DeviceInfo,
    simulation: Simulation,
    core: Arc<Core>,
}

struct Core {
    engine: Engine,
    state: Mutex<State>,
    /// Told whenever an operation finishes.
    finished: Condvar,
}

impl Sim {
    pub(crate) fn new(seed: u64) -> Self {
        let name = format!("simulated:{seed}");
        let info = DeviceInfo { id: DeviceId::next(), kind: DeviceKind::Simulated, name };
        let core = Arc::new(Core {
            engine: Engine::default(),
            state: Mutex::new(State::new(seed)),
            finished: Condvar::new(),
        });
        let state: Arc<dyn Inspect> = core.clone();
        let control = Arc::new(Control::default());
        Self { info, simulation: Simulation { control, state }, core }
    }

    /// One driver call on the state of a context that is not lost.
    fn call<T>(
        &self,
        name: &'static str,
        body: impl FnOnce(&mut State) -> Answer<T>,
    ) -> DriverResult<T> {
        self.simulation.control.call(name, || {
            let mut state = self.core.state.lock();
            state.check_lost()?;
            body(&mut state)
        })
    }

    /// One driver call that waits for what `body` says, or for everything.
    fn wait<T>(
        &self,
        name: &'static str,
        body: impl FnOnce(&mut State) -> Answer<Vec<OpId>>,
        then: impl FnOnce(&Core) -> Answer<T>,
    ) -> DriverResult<T> {
        self.simulation.control.call(name, || {
            let mut state = self.core.state.lock();
            state.check_lost()?;
            let targets = body(&mut state)?;
            self.core.run_until(state, &targets)?;
            then(&self.core)
        })
    }
}

impl Core {
    /// Runs operations, whichever may, until those of `targets` are done; others lag behind.
    fn run_until(&self, mut state: MutexGuard<'_, State>, targets: &[OpId]) -> Answer<()> {
        while !targets.iter().all(|target| state.schedule.is_done(*target)) {
            state.check_lost()?;
            match state.schedule.take() {
                Some((id, op)) => {
                    // Not under the lock: a host function may do anything, and several threads may
                    // wait at once.
                    let result = MutexGuard::unlocked(&mut state, || self.engine.run(&op));
                    state.schedule.finish(id);
                    if let Err(code) = result {
                        state.lost = Some(match code {
                            DriverCode::IllegalAddress => code,
                            _ => DriverCode::LaunchFailed,
                        });
                        state.schedule.clear();
                    }
                    self.finished.notify_all();
                }
                None if state.schedule.any_running() => self.finished.wait(&mut state),
                None => return Err(DriverCode::Unknown),
            }
        }
        state.check_lost()
    }
}

impl Inspect for Core {
    fn live(&self) -> Live {
        let state = self.state.lock();
        let (allocations, bytes) = self.engine.memory.live();
        Live {
            allocations,
            bytes,
            // All but the legacy default stream, which nobody makes.
            streams: state.streams.len() - 1,
            events: state.events.len(),
            graphs: state.graphs.len(),
            execs: state.execs.len(),
            kernels: self.engine.live_kernels() + state.modules.len(),
            captures: state.captures.len(),
        }
    }

    fn pending(&self) -> usize {
        self.state.lock().schedule.len()
    }

    fn kernels_run(&self) -> u64 {
        self.engine.launches()
    }

    fn lose(&self, code: DriverCode) {
        let mut state = self.state.lock();
        state.lost = Some(code);
        state.schedule.clear();
        self.finished.notify_all();
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sim({})", self.info.name)
    }
}

impl Driver for Sim {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn simulation(&self) -> Option<&Simulation> {
        Some(&self.simulation)
    }

    fn stream_create(&self, flags: StreamFlags) -> DriverResult<RawStream> {
        self.call("cuStreamCreate", |state| {
            // The range of today's GPUs.
            let priority = flags.priority.clamp(-5, 0);
            Ok(RawStream(state.add_stream(flags.blocking, priority)))
        })
    }

    fn stream_priority(&self, stream: RawStream) -> DriverResult<i32> {
        self.call("cuStreamGetPriority", |state| state.priority_of(stream))
    }

    fn stream_destroy(&self, stream: RawStream) -> DriverResult<()> {
        self.call("cuStreamDestroy", |state| state.remove_stream(stream))
    }

    fn stream_synchronize(&self, stream: RawStream) -> DriverResult<()> {
        self.wait(
            "cuStreamSynchronize",
            |state| {
                state.forbid_capturing(stream)?;
                state.forbid_unsafe()?;
                Ok(state.frontier(stream)?.to_vec())
            },
            |_| Ok(()),
        )
    }

    fn stream_state(&self, stream: RawStream) -> DriverResult<StreamState> {
        self.call("cuStreamIsCapturing", |state| state.state_of(stream))
    }

    fn event_create(&self) -> DriverResult<RawEvent> {
        self.call("cuEventCreate", |state| {
            let handle = state.handle();
            state.events.insert(handle, state::Recorded::default());
            Ok(RawEvent(handle))
        })
    }

    fn event_destroy(&self, event: RawEvent) -> DriverResult<()> {
        self.call("cuEventDestroy", |state| {
            state.events.remove(&event.0).map(drop).ok_or(DriverCode::InvalidHandle)
        })
    }

    fn event_record(&self, event: RawEvent, stream: RawStream) -> DriverResult<()> {
        self.call("cuEventRecord", |state| state.record_event(event.0, stream))
    }

    fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> DriverResult<()> {
        self.call("cuStreamWaitEvent", |state| state.wait_event(stream, event.0))
    }

    fn mem_alloc(&self, bytes: usize) -> DriverResult<RawPtr> {
        self.call("cuMemAlloc", |state| {
            state.forbid_unsafe()?;
            self.core.engine.memory.alloc(bytes)
        })
    }

    fn mem_free(&self, ptr: RawPtr) -> DriverResult<()> {
        self.wait(
            "cuMemFree",
            |state| {
                state.forbid_unsafe()?;
                Ok(state.schedule.all())
            },
            |core| core.engine.memory.free(ptr),
        )
    }

    fn copy(&self, stream: RawStream, dst: RawPtr, src: RawPtr, bytes: usize) -> DriverResult<()> {
        self.call("cuMemcpyDtoDAsync", |state| {
            state.submit(stream, Op::Copy { destination: dst, source: src, bytes })
        })
    }

    fn fill(
        &self,
        stream: RawStream,
        dst: RawPtr,
        pattern: &[u8],
        count: usize,
    ) -> DriverResult<()> {
        self.call("cuMemsetAsync", |state| {
            state.submit(stream, Op::Fill { destination: dst, pattern: pattern.into(), count })
        })
    }

    fn upload(&self, stream: RawStream, dst: RawPtr, bytes: &[u8]) -> DriverResult<()> {
        self.call("cuMemcpyHtoDAsync", |state| {
            state.submit(stream, Op::Upload { destination: dst, bytes: bytes.into() })
        })
    }

    fn download(&self, stream: RawStream, src: RawPtr, bytes: &mut [u8]) -> DriverResult<()> {
        self.wait(
            "cuMemcpyDtoHAsync",
            |state| {
                state.forbid_capturing(stream)?;
                state.forbid_unsafe()?;
                Ok(state.frontier(stream)?.to_vec())
            },
            |core| core.engine.read(src, bytes),
        )
    }

    fn kernel_load(&self, decl: &KernelDecl) -> Result<RawKernel, crate::Error> {
        Ok(self.call("cuModuleLoadData", |_| self.core.engine.load(decl))?)
    }

    fn kernel_unload(&self, kernel: RawKernel) -> DriverResult<()> {
        // Waits, as freeing does: a kernel that is still to run is not pulled away.
        self.wait(
            "cuModuleUnload",
            |state| {
                state.forbid_unsafe()?;
                Ok(state.schedule.all())
            },
            |core| core.engine.unload(kernel),
        )
    }

    fn launch(
        &self,
        stream: RawStream,
        kernel: RawKernel,
        grid: &Grid,
        args: &[RawArg<'_>],
    ) -> DriverResult<()> {
        self.call("cuLaunchKernel", |state| {
            if !self.core.engine.has(kernel) {
                return Err(DriverCode::InvalidHandle);
            }
            state.submit(stream, Op::Launch { kernel, grid: *grid, args: OwnedArg::all(args) })
        })
    }

    fn begin_capture(&self, stream: RawStream, mode: CaptureMode) -> DriverResult<()> {
        self.call("cuStreamBeginCapture", |state| state.begin_capture(stream, mode))
    }

    fn end_capture(&self, stream: RawStream) -> DriverResult<RawGraph> {
        let ended = self.call("cuStreamEndCapture", |state| state.end_capture(stream));
        if ended.is_err() {
            // An injected failure, or a lost context, ends the capture too.
            let mut state = self.core.state.lock();
            if let Ok(graph) = state.end_capture(stream) {
                state.graphs.remove(&graph);
            }
        }
        Ok(RawGraph(ended?))
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> DriverResult<CaptureMode> {
        self.call("cuThreadExchangeStreamCaptureMode", |state| Ok(state.exchange_mode(mode)))
    }

    fn capture_retain(
        &self,
        stream: RawStream,
        keep: Vec<Keep>,
        release: Arc<dyn Fn(Vec<Keep>) + Send + Sync>,
    ) -> DriverResult<()> {
        self.call("cuGraphRetainUserObject", |state| state.retain(stream, keep, release))
    }

    fn graph_node_count(&self, graph: RawGraph) -> DriverResult<usize> {
        self.call("cuGraphGetNodes", |state| {
            Ok(state.graphs.get(&graph.0).ok_or(DriverCode::InvalidHandle)?.nodes.len())
        })
    }

    fn graph_instantiate(&self, graph: RawGraph) -> DriverResult<RawExec> {
        self.call("cuGraphInstantiate", |state| {
            state.forbid_unsafe()?;
            Ok(RawExec(state.instantiate(graph.0)?))
        })
    }

    fn graph_launch(&self, exec: RawExec, stream: RawStream) -> DriverResult<()> {
        self.call("cuGraphLaunch", |state| state.launch_graph(exec.0, stream))
    }

    fn exec_destroy(&self, exec: RawExec) -> DriverResult<()> {
        let gone = self.call("cuGraphExecDestroy", |state| {
            state.forbid_unsafe()?;
            state.execs.remove(&exec.0).ok_or(DriverCode::InvalidHandle)
        })?;
        // Dropped outside the lock: it hands back what it kept.
        drop(gone);
        Ok(())
    }

    fn graph_destroy(&self, graph: RawGraph) -> DriverResult<()> {
        let gone = self.call("cuGraphDestroy", |state| {
            state.forbid_unsafe()?;
            state.graphs.remove(&graph.0).ok_or(DriverCode::InvalidHandle)
        })?;
        // Dropped outside the lock: it hands back what it kept.
        drop(gone);
        Ok(())
    }

    fn stray(&self) -> Option<&dyn StrayCalls> {
        Some(self)
    }
}

impl StrayCalls for Sim {
    fn stream_query(&self, stream: RawStream) -> DriverResult<()> {
        self.call("cuStreamQuery", |state| {
            state.forbid_capturing(stream)?;
            state.forbid_unsafe()?;
            let busy = state.frontier(stream)?.iter().any(|op| !state.schedule.is_done(*op));
            if busy { Err(DriverCode::NotReady) } else { Ok(()) }
        })
    }

    fn context_synchronize(&self) -> DriverResult<()> {
        self.wait(
            "cuCtxSynchronize",
            |state| {
                state.forbid_context_wait()?;
                Ok(state.schedule.all())
            },
            |_| Ok(()),
        )
    }

    fn event_synchronize(&self, event: RawEvent) -> DriverResult<()> {
        self.wait(
            "cuEventSynchronize",
            |state| Ok(state.event_point(event.0)?.into_iter().collect()),
            |_| Ok(()),
        )
    }

    fn event_query(&self, event: RawEvent) -> DriverResult<()> {
        self.call("cuEventQuery", |state| match state.event_point(event.0)? {
            Some(point) if !state.schedule.is_done(point) => Err(DriverCode::NotReady),
            _ => Ok(()),
        })
    }

    fn mem_alloc_async(&self, bytes: usize, stream: RawStream) -> DriverResult<RawPtr> {
        self.call("cuMemAllocAsync", |state| {
            if state.capture_of(stream)?.is_none() {
                state.forbid_unsafe()?;
            }
            state.submit(stream, Op::Nothing)?;
            self.core.engine.memory.alloc(bytes)
        })
    }

    fn mem_free_async(&self, ptr: RawPtr, stream: RawStream) -> DriverResult<()> {
        let capturing = self.core.state.lock().capture_of(stream);
        if !matches!(capturing, Ok(None)) {
            return self.call("cuMemFreeAsync", |_| Err(DriverCode::InvalidValue));
        }
        self.wait(
            "cuMemFreeAsync",
            |state| {
                state.forbid_unsafe()?;
                Ok(state.frontier(stream)?.to_vec())
            },
            |core| core.engine.memory.free(ptr),
        )
    }

    fn memcpy_htod(&self, dst: RawPtr, bytes: &[u8]) -> DriverResult<()> {
        self.wait(
            "cuMemcpyHtoD",
            |state| Ok(state.frontier(RawStream::LEGACY)?.to_vec()),
            |core| core.engine.write(dst, bytes),
        )
    }

    fn memcpy_htod_async(
        &self,
        dst: RawPtr,
        bytes: &'static [u8],
        stream: RawStream,
    ) -> DriverResult<()> {
        self.upload(stream, dst, bytes)
    }

    fn launch_host_function(
        &self,
        stream: RawStream,
        function: Arc<dyn Fn() + Send + Sync>,
    ) -> DriverResult<()> {
        self.call("cuLaunchHostFunc", |state| state.submit(stream, Op::HostFunction(function)))
    }

    fn module_load(&self) -> DriverResult<u64> {
        self.call("cuModuleLoadData", |state| {
            let handle = state.handle();
            state.modules.insert(handle);
            Ok(handle)
        })
    }

    fn module_unload(&self, module: u64) -> DriverResult<()> {
        self.call("cuModuleUnload", |state| {
            state.forbid_unsafe()?;
            state.modules.remove(&module).then_some(()).ok_or(DriverCode::InvalidHandle)
        })
    }

    fn add_child_graph(&self, stream: RawStream, child: RawGraph) -> DriverResult<()> {
        self.call("cuGraphAddChildGraphNode", |state| state.add_child(stream, child.0))
    }

    fn captured_nodes(&self, stream: RawStream) -> DriverResult<Option<usize>> {
        self.call("cuStreamGetCaptureInfo", |state| state.captured_nodes(stream))
    }
}
