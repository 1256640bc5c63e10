//! Devices and what lives on them: the front types, the same for every device, over one seam
//! ([`driver`]) below which the software engine and CUDA stand.

mod args;
mod buffer;
#[cfg(feature = "cuda")]
mod cuda;
mod driver;
mod graph;
mod kernel;
pub(crate) mod released;
mod soft;
mod stream;

use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

pub use args::{Arg, Args, Element, In, Out, Shared, SharedSlice};
pub use buffer::Buffer;
pub use driver::{CaptureMode, DeviceKind, DriverCode, DriverError};
pub(crate) use driver::{DeviceId, Driver, RawGraph, RawStream, StreamFlags, StreamState};
#[cfg(feature = "simulate")]
pub(crate) use driver::{RawEvent, RawExec, RawPtr, StrayCalls};
pub use graph::Graph;
pub(crate) use graph::KeepSet;
pub(crate) use kernel::{Access, RawArg};
pub use kernel::{Block, Grid, Kernel, KernelSpec, Thread};
#[cfg(feature = "simulate")]
pub use soft::{Call as DriverCall, Live, Simulation};
pub(crate) use stream::Event;
pub use stream::Stream;

use crate::error::{Error, Result};
use crate::runner::Pending;

/// A device: a counted handle, equal when it names the same one.
///
/// ```
/// use graph_runner::{Device, DeviceKind};
/// assert_eq!(Device::host().kind(), DeviceKind::Host);
/// assert_eq!(Device::host(), Device::host());
/// ```
#[derive(Clone)]
pub struct Device {
    core: Arc<DeviceCore>,
}

struct DeviceCore {
    driver: Arc<dyn Driver>,
    /// For allocations' first contents, where no capture can be.
    setup: Stream,
    current: RwLock<Stream>,
    pending: Pending,
}

impl Device {
    /// The host device: kernels' host functions on this machine's cores. One for the process.
    ///
    /// # Panics
    ///
    /// Never: the host device needs nothing that can be missing.
    #[must_use]
    pub fn host() -> Self {
        static HOST: OnceLock<Device> = OnceLock::new();
        HOST.get_or_init(|| {
            Self::with_driver(soft::host()).expect("the host device's streams need nothing")
        })
        .clone()
    }

    /// The best device of this machine: CUDA where there is a driver and a GPU, the host otherwise.
    #[must_use]
    pub fn best() -> Self {
        #[cfg(feature = "cuda")]
        if let Ok(device) = Self::cuda(0) {
            return device;
        }
        Self::host()
    }

    /// A new simulated device: a software CUDA whose streams run in an order chosen by `seed`.
    ///
    /// # Panics
    ///
    /// Never: a simulated device needs nothing that can be missing.
    #[cfg(feature = "simulate")]
    #[must_use]
    pub fn simulated(seed: u64) -> Self {
        Self::with_driver(soft::simulated(seed)).expect("a simulated device's streams need nothing")
    }

    /// The control of a simulated device: faults, counts and the log of driver calls.
    #[cfg(feature = "simulate")]
    #[must_use]
    pub fn simulation(&self) -> Option<&Simulation> {
        self.driver().simulation()
    }

    pub(crate) fn with_driver(driver: Arc<dyn Driver>) -> Result<Self> {
        let setup = Stream::create(&driver, StreamFlags { blocking: false, priority: 0 })?;
        // Blocking, so that a stray launch on the legacy default stream, while a legacy producer
        // captures here, is refused instead of being lost from the graph.
        let current = Stream::create(&driver, StreamFlags { blocking: true, priority: 0 })?;
        let pending = Pending::default();
        let core = DeviceCore { driver, setup, current: RwLock::new(current), pending };
        Ok(Self { core: Arc::new(core) })
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> DeviceKind {
        self.driver().info().kind
    }

    /// Its name, for people.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.driver().info().name
    }

    /// A new stream that is independent of the legacy default stream.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if the driver cannot make one.
    pub fn stream(&self) -> Result<Stream> {
        self.stream_with_priority(0)
    }

    /// As [`stream`](Self::stream), with a priority as CUDA counts: lower is more urgent, 0 the
    /// default, clamped to what the device has.
    ///
    /// # Errors
    ///
    /// As [`stream`](Self::stream).
    pub fn stream_with_priority(&self, priority: i32) -> Result<Stream> {
        Stream::create(self.driver(), StreamFlags { blocking: false, priority })
    }

    /// The legacy default stream. It cannot be captured; runs that resolve to it still replay.
    #[must_use]
    pub fn legacy_stream(&self) -> Stream {
        Stream::borrowed(self.driver(), RawStream::LEGACY)
    }

    /// The device's current stream, shared by the whole process: where calls go that name no
    /// stream, and where legacy code launches (S15).
    #[must_use]
    pub fn current_stream(&self) -> Stream {
        self.core.current.read().clone()
    }

    /// A stream by its raw handle (a `CUstream` on CUDA; 0 and 1 both name the legacy default
    /// stream), which somebody else made and keeps.
    ///
    /// # Safety
    ///
    /// It is a stream of this device, and there as long as the handle or a runner's call on it: a
    /// runner lets go of it with its next call elsewhere.
    #[must_use]
    #[allow(unsafe_code)]
    pub unsafe fn stream_from_raw(&self, raw: u64) -> Stream {
        Stream::borrowed(self.driver(), if raw == 0 { RawStream::LEGACY } else { RawStream(raw) })
    }

    pub(crate) fn is_current(&self, stream: &Stream) -> bool {
        *self.core.current.read() == *stream
    }

    /// Makes `stream` the current stream, for every thread, and returns the one before.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] for another device's stream.
    pub fn set_current_stream(&self, stream: &Stream) -> Result<Stream> {
        self.check_stream(stream, "a current stream")?;
        Ok(std::mem::replace(&mut *self.core.current.write(), stream.clone()))
    }

    /// A buffer of `len` zeros.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if there is no memory.
    pub fn zeros<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        if self.kind() == DeviceKind::Host {
            // A fill would be recorded, were this thread capturing.
            return self.buffer(&vec![T::zeroed(); len]);
        }
        let buffer = Buffer::alloc(self.driver(), len)?;
        if buffer.bytes() > 0 {
            let _relaxed = Relaxed::enter(self.driver());
            let setup = self.core.setup.raw();
            self.driver().fill(setup, buffer.ptr(), &[0], buffer.bytes())?;
            self.driver().stream_synchronize(setup)?;
        }
        Ok(buffer)
    }

    /// A buffer that holds `values`.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if there is no memory.
    pub fn buffer<T: Element>(&self, values: &[T]) -> Result<Buffer<T>> {
        let buffer = Buffer::alloc(self.driver(), values.len())?;
        if buffer.bytes() > 0 {
            let _relaxed = Relaxed::enter(self.driver());
            let setup = self.core.setup.raw();
            self.driver().upload(setup, buffer.ptr(), bytemuck::cast_slice(values))?;
            self.driver().stream_synchronize(setup)?;
        }
        Ok(buffer)
    }

    /// Loads a kernel, so that no later capture has to.
    ///
    /// # Errors
    ///
    /// [`Error::NoKernelCode`] if it has no code for this device, [`Error::KernelCompile`] with
    /// the compiler's log, or [`Error::Driver`].
    pub fn load<A: Args>(&self, spec: &KernelSpec<A>) -> Result<Kernel<A>> {
        Kernel::load(self.driver(), spec)
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        &self.core.driver
    }

    pub(crate) fn id(&self) -> DeviceId {
        self.driver().info().id
    }

    /// The legacy runners that may still capture on the current stream (S26).
    pub(crate) fn pending(&self) -> &Pending {
        &self.core.pending
    }

    pub(crate) fn check_stream(&self, stream: &Stream, subject: &str) -> Result<()> {
        check_device(self.driver(), stream.driver(), subject)
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name())
    }
}

pub(crate) fn check_device(
    expected: &Arc<dyn Driver>,
    found: &Arc<dyn Driver>,
    subject: &str,
) -> Result<()> {
    let (expected, found) = (expected.info(), found.info());
    if expected.id == found.id {
        return Ok(());
    }
    Err(Error::WrongDevice {
        subject: subject.into(),
        expected: expected.name.clone(),
        found: found.name.clone(),
    })
}

/// The calling thread's capture mode set to RELAXED while this lives: the one bracket around every
/// driver call that CUDA counts as unsafe during a capture (S31). It keeps alive captures of every
/// mode, this thread's own and other threads'.
pub(crate) struct Relaxed<'d> {
    driver: &'d Arc<dyn Driver>,
    before: Option<CaptureMode>,
}

impl<'d> Relaxed<'d> {
    pub(crate) fn enter(driver: &'d Arc<dyn Driver>) -> Self {
        let before = driver.exchange_capture_mode(CaptureMode::Relaxed).ok();
        Self { driver, before }
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // It was accepted on the way in, and a mode is all it changes.
            let _ = self.driver.exchange_capture_mode(before);
        }
    }
}
