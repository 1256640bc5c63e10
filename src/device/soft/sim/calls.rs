//! Driver calls as such: counted, logged, made to fail, and met by hooks.

use std::collections::VecDeque;
use std::fmt;
use std::thread::ThreadId;

use super::Simulation;
use super::state::Answer;
use crate::device::driver::{DeviceId, DriverCode, DriverError, DriverResult, RawStream};
use crate::device::stream::Stream;

/// A driver call that a simulated device has answered.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// Its CUDA name, such as `cuGraphLaunch`.
    pub name: &'static str,
    /// The thread that made it.
    pub thread: ThreadId,
    /// What it was answered.
    pub result: Result<(), DriverCode>,
    device: DeviceId,
    stream: Option<RawStream>,
}

impl Call {
    /// Whether it named this stream.
    #[must_use]
    pub fn is_on(&self, stream: &Stream) -> bool {
        self.device == stream.device_id() && self.stream == Some(stream.raw())
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if let Some(stream) = self.stream {
            write!(f, " on stream {:#x}", stream.0)?;
        }
        match self.result {
            Ok(()) => Ok(()),
            Err(code) => write!(f, ": {code}"),
        }
    }
}

/// What was called, and what shall happen to calls to come.
#[derive(Default)]
pub(super) struct Control {
    calls: u64,
    log: VecDeque<Call>,
    faults: Vec<(When, DriverCode)>,
    hooks: Vec<(&'static str, Hook)>,
}

type Hook = Box<dyn FnOnce() + Send>;

#[derive(PartialEq)]
enum When {
    /// The call with this number, from 0.
    Number(u64),
    /// The next call of this name.
    Name(&'static str),
}

impl Simulation {
    /// Calls that the log keeps; older ones are dropped.
    pub const LOG_CAPACITY: usize = 1 << 16;

    /// How many driver calls were made. A call counts before it takes effect.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.control.lock().calls
    }

    /// The last [`LOG_CAPACITY`](Self::LOG_CAPACITY) calls that were answered, oldest first.
    ///
    /// ```
    /// use graph_runner::Device;
    /// let device = Device::simulated(0);
    /// let simulation = device.simulation().expect("a simulated device has a control");
    /// let stream = device.stream()?;
    /// simulation.clear_log();
    /// stream.synchronize()?;
    /// let log = simulation.log();
    /// assert!(log.iter().any(|call| call.name == "cuStreamSynchronize" && call.is_on(&stream)));
    /// # Ok::<(), graph_runner::Error>(())
    /// ```
    #[must_use]
    pub fn log(&self) -> Vec<Call> {
        self.control.lock().log.iter().cloned().collect()
    }

    /// Empties the log; the count of calls goes on.
    pub fn clear_log(&self) {
        self.control.lock().log.clear();
    }

    /// Makes the `n`-th call from now, 0 being the next, fail with `code` and without effect, on
    /// whatever thread it comes.
    ///
    /// A failed `cuStreamEndCapture` ends its capture all the same, with no graph. A failed destroy
    /// leaves its object, for good.
    pub fn fail_call(&self, n: u64, code: DriverCode) {
        let mut control = self.control.lock();
        let number = control.calls + n;
        control.faults.push((When::Number(number), code));
    }

    /// Makes the next call of this name fail, as [`fail_call`](Self::fail_call) does. Asked for
    /// twice, the next two fail.
    pub fn fail_next(&self, name: &'static str, code: DriverCode) {
        self.control.lock().faults.push((When::Name(name), code));
    }

    /// Runs `hook` in the calling thread right before the next call of this name takes effect, with
    /// no lock of the device held.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use graph_runner::Device;
    /// let device = Device::simulated(0);
    /// let simulation = device.simulation().expect("a simulated device has a control");
    /// let met = Arc::new(AtomicBool::new(false));
    /// let hook = Arc::clone(&met);
    /// simulation.on_next("cuMemAlloc", move || hook.store(true, Ordering::Relaxed));
    /// device.zeros::<u32>(1)?;
    /// assert!(met.load(Ordering::Relaxed));
    /// # Ok::<(), graph_runner::Error>(())
    /// ```
    pub fn on_next(&self, name: &'static str, hook: impl FnOnce() + Send + 'static) {
        self.control.lock().hooks.push((name, Box::new(hook)));
    }

    /// The faults and hooks that no call has met yet: a test that expects them to be met ends with
    /// none.
    #[must_use]
    pub fn armed(&self) -> usize {
        let control = self.control.lock();
        control.faults.len() + control.hooks.len()
    }

    /// Makes one driver call: `body` unless it shall fail.
    pub(super) fn call<T>(
        &self,
        name: &'static str,
        stream: Option<RawStream>,
        body: impl FnOnce() -> Answer<T>,
    ) -> DriverResult<T> {
        self.call_or(name, stream, Err, body)
    }

    /// As [`call`](Self::call), where `refused` is what a call does that shall fail.
    pub(super) fn call_or<T>(
        &self,
        name: &'static str,
        stream: Option<RawStream>,
        refused: impl FnOnce(DriverCode) -> Answer<T>,
        body: impl FnOnce() -> Answer<T>,
    ) -> DriverResult<T> {
        let (fault, hook) = self.control.lock().meet(name);
        if let Some(hook) = hook {
            hook();
        }
        let answer = fault.map_or_else(body, refused);
        let result = answer.as_ref().map(drop).map_err(|&code| code);
        let thread = std::thread::current().id();
        let call = Call { name, device: self.info.id, stream, thread, result };
        self.control.lock().push(call);
        answer.map_err(|code| DriverError::new(name, code))
    }
}

impl Control {
    /// Counts a call and takes what waits for it.
    fn meet(&mut self, name: &'static str) -> (Option<DriverCode>, Option<Hook>) {
        let number = self.calls;
        self.calls += 1;
        let meets =
            |(when, _): &(When, _)| *when == When::Number(number) || *when == When::Name(name);
        let fault = self.faults.iter().position(meets).map(|at| self.faults.remove(at).1);
        let hook = self.hooks.iter().position(|(hooked, _)| *hooked == name);
        (fault, hook.map(|at| self.hooks.remove(at).1))
    }

    fn push(&mut self, call: Call) {
        if self.log.len() == Simulation::LOG_CAPACITY {
            self.log.pop_front();
        }
        self.log.push_back(call);
    }
}
