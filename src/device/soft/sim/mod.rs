//! A simulated CUDA: streams that run late and in any order that their events allow, captures with
//! CUDA's rules, and driver calls that can be counted, logged and made to fail.

mod calls;
mod capture;
mod driver;
mod flow;
mod queue;
mod state;
mod stray;

use std::cell::Cell;
use std::fmt;
use std::panic::AssertUnwindSafe;

use parking_lot::{Condvar, Mutex, MutexGuard};

pub use self::calls::Call;
use self::calls::Control;
use self::flow::Work;
use self::queue::{OpId, Task};
use self::state::{Answer, State};
use crate::device::driver::{DeviceId, DeviceInfo, DeviceKind, DriverCode};
use crate::device::soft::engine::{Engine, Op};

thread_local! {
    /// Whether this thread is in a host function, where CUDA allows no driver call.
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// What fresh device memory holds, so that nothing relies on zeros by chance.
const GARBAGE: u8 = 0xcb;

/// The control of a simulated device, got by [`Device::simulation`](crate::Device::simulation):
/// what happened on it, what exists, and what shall fail.
///
/// Work is only enqueued until something waits for it; then operations of all streams run one by
/// one, in an order that events allow and the device's seed chooses, until what is waited for is
/// done. Work that nobody waited for lags. So a missing wait gives a wrong result for some seed.
///
/// ```
/// use graph_runner::{Device, DriverCode, Error};
/// let device = Device::simulated(7);
/// let simulation = device.simulation().expect("a simulated device has a control");
///
/// simulation.fail_next("cuMemAlloc", DriverCode::OutOfMemory);
/// let refused = device.zeros::<f32>(16).unwrap_err();
/// assert_eq!(refused.driver().map(|e| e.code()), Some(DriverCode::OutOfMemory));
/// assert_eq!(simulation.live().allocations, 0);
///
/// let buffer = device.zeros::<f32>(16)?;
/// assert_eq!(simulation.live().bytes, 64);
/// drop(buffer);
/// assert_eq!(simulation.live().allocations, 0);
/// # Ok::<(), Error>(())
/// ```
pub struct Simulation {
    info: DeviceInfo,
    engine: Engine,
    state: Mutex<State>,
    /// Notified when a task is done or the context is lost.
    progress: Condvar,
    control: Mutex<Control>,
}

/// What exists on a simulated device: made and not yet destroyed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Live {
    /// Allocations of device memory.
    pub allocations: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Streams, the legacy one not counted. Every device has two of its own.
    pub streams: usize,
    /// Events.
    pub events: usize,
    /// Graph templates.
    pub graphs: usize,
    /// Instantiated graphs.
    pub execs: usize,
    /// Loaded kernels, and modules of [`testing::Foreign`](crate::testing::Foreign).
    pub kernels: usize,
    /// Captures that were begun and not ended, broken ones too.
    pub captures: usize,
}

impl Simulation {
    pub(super) fn new(seed: u64) -> Self {
        let info = DeviceInfo {
            id: DeviceId::next(),
            kind: DeviceKind::Simulated,
            name: format!("simulated:{seed}"),
        };
        Self {
            info,
            engine: Engine::default(),
            state: Mutex::new(State::new(seed)),
            progress: Condvar::new(),
            control: Mutex::default(),
        }
    }

    /// What exists now.
    #[must_use]
    pub fn live(&self) -> Live {
        let state = self.state.lock();
        let (allocations, bytes) = self.engine.memory.usage();
        Live {
            allocations,
            bytes,
            streams: state.streams.len() - 1,
            events: state.events.len(),
            graphs: state.graphs.len(),
            execs: state.execs.len(),
            kernels: self.engine.kernels() + state.modules.len(),
            captures: state.captures.len(),
        }
    }

    /// The operations that were enqueued and have not finished.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// How many kernels have run, those of graphs included.
    #[must_use]
    pub fn kernels_run(&self) -> u64 {
        self.engine.kernels_run()
    }

    /// Loses the context, as a fault of a kernel does: work that has not run never will, and every
    /// later call is answered by `code`.
    pub fn lose_context(&self, code: DriverCode) {
        let abandoned = self.state.lock().lose(code);
        self.progress.notify_all();
        drop(abandoned);
    }

    /// The state, for a call that the context must be there for.
    fn enter(&self) -> Answer<MutexGuard<'_, State>> {
        if IN_HOST_FUNCTION.get() {
            return Err(DriverCode::NotPermitted);
        }
        let state = self.state.lock();
        state.lost.map_or(Ok(state), Err)
    }

    /// Runs what is ready until all of `goal` is done.
    fn wait_for(&self, state: &mut MutexGuard<'_, State>, goal: &[OpId]) -> Answer<()> {
        self.run_until(state, |state| !goal.iter().any(|&id| state.queue.is_pending(id)))
    }

    /// Runs until all that is enqueued now is done.
    fn wait_for_all(&self, state: &mut MutexGuard<'_, State>) -> Answer<()> {
        let end = state.queue.end();
        self.run_until(state, |state| state.queue.is_done_before(end))
    }

    fn run_until(
        &self,
        state: &mut MutexGuard<'_, State>,
        done: impl Fn(&State) -> bool,
    ) -> Answer<()> {
        let order = state.queue.order();
        loop {
            if let Some(code) = state.lost {
                return Err(code);
            }
            if done(state) {
                return Ok(());
            }
            match state.queue.take(order) {
                Some((id, task)) => self.step(state, id, task)?,
                // What is left runs on other threads, or comes after what does.
                None => self.progress.wait(state),
            }
        }
    }

    /// Runs one task that is ready, if there is one: a device goes on while it is polled.
    fn poll(&self, state: &mut MutexGuard<'_, State>) -> Answer<()> {
        let order = state.queue.order();
        match state.queue.take(order) {
            Some((id, task)) => self.step(state, id, task),
            None => Ok(()),
        }
    }

    fn step(&self, state: &mut MutexGuard<'_, State>, id: OpId, task: Task) -> Answer<()> {
        let outcome = MutexGuard::unlocked(state, || self.execute(&task));
        let abandoned = match outcome {
            Ok(()) => {
                state.queue.finish(id);
                Vec::new()
            }
            Err(code) => state.lose(code),
        };
        self.progress.notify_all();
        // What tasks kept is let go when they are done, where that may call the device and wait.
        MutexGuard::unlocked(state, || drop((task, abandoned)));
        outcome
    }

    fn execute(&self, task: &Task) -> Answer<()> {
        let op = match task {
            Task::Op(op) => op,
            Task::Node(flow, at) => match &flow.nodes[*at].work {
                Work::Op(op) => op,
                Work::Child(_) => return Ok(()),
            },
            Task::Join => return Ok(()),
        };
        let before = IN_HOST_FUNCTION.replace(matches!(op, Op::HostFunction(_)));
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| self.engine.run(op)));
        IN_HOST_FUNCTION.set(before);
        outcome.unwrap_or(Err(DriverCode::LaunchFailed))
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("name", &self.info.name)
            .field("calls", &self.calls())
            .field("pending", &self.pending())
            .field("live", &self.live())
            .finish()
    }
}
