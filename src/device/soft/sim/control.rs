//! What a test can ask of a simulated device, and do to it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::thread::ThreadId;

use parking_lot::Mutex;

use crate::device::driver::{DriverCode, DriverError, DriverResult};

/// One driver call that a simulated device got.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Call {
    /// Its CUDA name.
    pub name: &'static str,
    /// The thread that made it.
    pub thread: ThreadId,
    /// What it answered.
    pub result: Result<(), DriverCode>,
}

/// What exists on a simulated device now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Live {
    /// Allocations.
    pub allocations: usize,
    /// Bytes in them.
    pub bytes: usize,
    /// Streams, the two that every device has included.
    pub streams: usize,
    /// Events.
    pub events: usize,
    /// Graph templates.
    pub graphs: usize,
    /// Instantiated graphs.
    pub execs: usize,
    /// Loaded kernels and modules.
    pub kernels: usize,
    /// Captures in progress.
    pub captures: usize,
}

/// The control of a simulated device: faults, hooks, counts and the log of driver calls. From
/// [`Device::simulation`](crate::Device::simulation).
///
/// ```
/// use graph_runner::{Device, DriverCode};
/// let device = Device::simulated(7);
/// let simulation = device.simulation().unwrap();
/// simulation.fail_next("cuMemAlloc", DriverCode::OutOfMemory);
/// assert!(device.zeros::<f32>(8).is_err());
/// assert!(device.zeros::<f32>(8).is_ok());
/// ```
#[derive(Clone)]
pub struct Simulation {
    pub(super) control: Arc<Control>,
    pub(super) state: Arc<dyn Inspect>,
}

/// What only the device itself knows.
pub(super) trait Inspect: Send + Sync {
    fn live(&self) -> Live;
    fn pending(&self) -> usize;
    fn kernels_run(&self) -> u64;
    fn lose(&self, code: DriverCode);
}

impl Simulation {
    /// Driver calls so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.control.inner.lock().calls
    }

    /// The last 65 536 driver calls since [`clear_log`](Self::clear_log), in order.
    #[must_use]
    pub fn log(&self) -> Vec<Call> {
        self.control.inner.lock().log.iter().cloned().collect()
    }

    /// Empties the log.
    pub fn clear_log(&self) {
        self.control.inner.lock().log.clear();
    }

    /// Fails the `n`-th driver call from now, 0 being the next, with `code`. It has no effect then,
    /// except that a failed `cuStreamEndCapture` still ends the capture.
    pub fn fail_call(&self, n: u64, code: DriverCode) {
        let mut inner = self.control.inner.lock();
        let at = inner.calls + n;
        inner.faults.push(Fault { when: When::Call(at), code });
    }

    /// Fails the next driver call of this CUDA name, as [`fail_call`](Self::fail_call) does.
    pub fn fail_next(&self, name: &'static str, code: DriverCode) {
        self.control.inner.lock().faults.push(Fault { when: When::Name(name), code });
    }

    /// Calls `hook` right before the next driver call of this CUDA name takes effect, in the
    /// calling thread, with no lock held: the hook may make other threads do something there.
    pub fn on_next(&self, name: &'static str, hook: impl FnOnce() + Send + 'static) {
        self.control.inner.lock().hooks.push((name, Box::new(hook)));
    }

    /// Loses the context: from now on every call answers `code`, as after a fault in a kernel.
    pub fn lose_context(&self, code: DriverCode) {
        self.state.lose(code);
    }

    /// What exists now.
    #[must_use]
    pub fn live(&self) -> Live {
        self.state.live()
    }

    /// Operations that were enqueued and have not run.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.state.pending()
    }

    /// Kernel launches that ran.
    #[must_use]
    pub fn kernels_run(&self) -> u64 {
        self.state.kernels_run()
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("live", &self.live()).finish_non_exhaustive()
    }
}

#[derive(Default)]
pub(super) struct Control {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    calls: u64,
    log: VecDeque<Call>,
    faults: Vec<Fault>,
    hooks: Vec<(&'static str, Hook)>,
}

type Hook = Box<dyn FnOnce() + Send>;

struct Fault {
    when: When,
    code: DriverCode,
}

enum When {
    Call(u64),
    Name(&'static str),
}

impl Control {
    const LOG: usize = 65_536;

    /// One driver call: counted, hooked, failed if that was asked for, and logged.
    pub(super) fn call<T>(
        &self,
        name: &'static str,
        body: impl FnOnce() -> Result<T, DriverCode>,
    ) -> DriverResult<T> {
        let (fault, hook) = {
            let mut inner = self.inner.lock();
            let number = inner.calls;
            inner.calls += 1;
            let fault = inner
                .faults
                .iter()
                .position(|fault| match fault.when {
                    When::Call(at) => at == number,
                    When::Name(wanted) => wanted == name,
                })
                .map(|index| inner.faults.remove(index).code);
            let hook = inner.hooks.iter().position(|(wanted, _)| *wanted == name);
            (fault, hook.map(|index| inner.hooks.remove(index).1))
        };
        if let Some(hook) = hook {
            hook();
        }
        let result = match fault {
            Some(code) => Err(code),
            None => body(),
        };
        let mut inner = self.inner.lock();
        if inner.log.len() == Self::LOG {
            inner.log.pop_front();
        }
        let logged = result.as_ref().map(drop).map_err(|code| *code);
        let thread = std::thread::current().id();
        inner.log.push_back(Call { name, thread, result: logged });
        result.map_err(|code| DriverError::new(name, code))
    }
}
