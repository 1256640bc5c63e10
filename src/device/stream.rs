//! Streams and the events that order them.

use std::fmt;
use std::sync::Arc;

use super::args::Element;
use super::buffer::Buffer;
use super::driver::{DeviceId, Driver, RawEvent, RawStream, StreamFlags, StreamState};
use super::{Relaxed, check_device};
use crate::error::{Error, OpenCapture, Result};

/// A stream: device work in order. A counted handle; equal handles name the same stream.
///
/// On the host device work runs as it is enqueued, so a stream is only a name there.
#[derive(Clone)]
pub struct Stream {
    core: Arc<StreamCore>,
}

impl Stream {
    pub(crate) fn create(driver: &Arc<dyn Driver>, flags: StreamFlags) -> Result<Self> {
        let _relaxed = Relaxed::enter(driver);
        let raw = driver.stream_create(flags)?;
        Ok(Self {
            core: Arc::new(StreamCore { driver: Arc::clone(driver), raw, owner: Owner::This }),
        })
    }

    /// A stream that somebody else made and keeps.
    pub(crate) fn borrowed(driver: &Arc<dyn Driver>, raw: RawStream) -> Self {
        Self {
            core: Arc::new(StreamCore { driver: Arc::clone(driver), raw, owner: Owner::Nobody }),
        }
    }

    /// A stream that somebody else made and this handle keeps alive.
    #[cfg(feature = "cuda")]
    pub(crate) fn adopted(
        driver: &Arc<dyn Driver>,
        raw: RawStream,
        keep: super::driver::Keep,
    ) -> Self {
        let owner = Owner::Other(keep);
        Self { core: Arc::new(StreamCore { driver: Arc::clone(driver), raw, owner }) }
    }

    /// Its raw handle (a `CUstream` on CUDA), for work that does not go through this crate.
    #[must_use]
    pub fn handle(&self) -> u64 {
        self.core.raw.0
    }

    /// Its priority as CUDA counts: lower is more urgent, 0 the default. Graphs that are captured on
    /// it keep it as the priority of their nodes.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if the driver refuses the query.
    pub fn priority(&self) -> Result<i32> {
        Ok(self.core.driver.stream_priority(self.core.raw)?)
    }

    pub(crate) fn raw(&self) -> RawStream {
        self.core.raw
    }

    /// Whether it is there as long as this handle.
    pub(crate) fn outlives_handles(&self) -> bool {
        !matches!(self.core.owner, Owner::Nobody) || self.core.raw == RawStream::LEGACY
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        &self.core.driver
    }

    pub(crate) fn device_id(&self) -> DeviceId {
        self.core.driver.info().id
    }

    pub(crate) fn device_name(&self) -> &str {
        &self.core.driver.info().name
    }

    pub(crate) fn state(&self) -> Result<StreamState> {
        Ok(self.core.driver.stream_state(self.core.raw)?)
    }

    /// Whether a capture is open on it (also a broken one). Never harms a capture.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if the driver refuses the query.
    pub fn is_capturing(&self) -> Result<bool> {
        Ok(matches!(self.state()?, StreamState::Capturing | StreamState::Invalidated))
    }

    /// Waits until all work on the stream is done.
    ///
    /// # Errors
    ///
    /// [`Error::Capture`] or [`Error::Invalidated`] on a capturing stream, which is left alone;
    /// [`Error::Driver`] if the work failed.
    pub fn synchronize(&self) -> Result<()> {
        self.refuse_while_capturing("synchronising a stream")?;
        let _relaxed = Relaxed::enter(&self.core.driver);
        Ok(self.core.driver.stream_synchronize(self.core.raw)?)
    }

    /// Reads a buffer after the stream's work so far; waits for it.
    ///
    /// # Errors
    ///
    /// As [`synchronize`](Self::synchronize); [`Error::WrongDevice`] for another device's buffer.
    pub fn read<T: Element>(&self, buffer: &Buffer<T>) -> Result<Vec<T>> {
        let mut values = vec![T::zeroed(); buffer.len()];
        self.read_into(buffer, &mut values)?;
        Ok(values)
    }

    /// As [`read`](Self::read), into `values` of the same length.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); [`Error::Length`] if the lengths differ.
    pub fn read_into<T: Element>(&self, buffer: &Buffer<T>, values: &mut [T]) -> Result<()> {
        self.check_host_copy("reading a buffer", buffer, values.len())?;
        if buffer.is_empty() {
            return Ok(());
        }
        let _relaxed = Relaxed::enter(&self.core.driver);
        let bytes = bytemuck::cast_slice_mut(values);
        Ok(self.core.driver.download(self.core.raw, buffer.ptr(), bytes)?)
    }

    /// Writes a buffer after the stream's work so far; `values` may be reused at once.
    ///
    /// # Errors
    ///
    /// As [`read_into`](Self::read_into).
    pub fn write<T: Element>(&self, buffer: &Buffer<T>, values: &[T]) -> Result<()> {
        self.check_host_copy("writing a buffer", buffer, values.len())?;
        if buffer.is_empty() {
            return Ok(());
        }
        let _relaxed = Relaxed::enter(&self.core.driver);
        let bytes = bytemuck::cast_slice(values);
        Ok(self.core.driver.upload(self.core.raw, buffer.ptr(), bytes)?)
    }

    /// Makes this stream's later work wait for `other`'s work so far.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] for another device's stream; [`Error::Capture`] if either captures.
    pub fn wait_for(&self, other: &Stream) -> Result<()> {
        check_device(&self.core.driver, &other.core.driver, "a stream to wait for")?;
        if self == other {
            return Ok(());
        }
        self.refuse_while_capturing("waiting for another stream")?;
        other.refuse_while_capturing("waiting for a stream")?;
        let event = Event::create(&self.core.driver)?;
        event.record(other)?;
        event.make_wait(self)
    }

    fn refuse_while_capturing(&self, subject: &str) -> Result<()> {
        match self.state()? {
            StreamState::Idle => Ok(()),
            StreamState::Capturing => {
                Err(Error::Capture { subject: subject.into(), open: OpenCapture::Resolved })
            }
            StreamState::Invalidated => Err(Error::Invalidated { subject: subject.into() }),
            StreamState::Implicit => Err(Error::ImplicitCapture { subject: subject.into() }),
        }
    }

    fn check_host_copy<T>(
        &self,
        operation: &'static str,
        buffer: &Buffer<T>,
        found: usize,
    ) -> Result<()> {
        check_device(&self.core.driver, buffer.core().driver(), "a buffer")?;
        if buffer.len() != found {
            return Err(Error::Length { operation, expected: buffer.len(), found });
        }
        self.refuse_while_capturing(operation)
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        self.device_id() == other.device_id() && self.core.raw == other.core.raw
    }
}

impl Eq for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({}, {:#x})", self.device_name(), self.core.raw.0)
    }
}

struct StreamCore {
    driver: Arc<dyn Driver>,
    raw: RawStream,
    owner: Owner,
}

/// Who keeps a stream.
enum Owner {
    /// The handle destroys it.
    This,
    /// The handle keeps its owner alive.
    #[cfg(feature = "cuda")]
    Other(#[expect(dead_code, reason = "kept, never read")] super::driver::Keep),
    /// It may go at any time after a call on it.
    Nobody,
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        if matches!(self.owner, Owner::This) {
            let _relaxed = Relaxed::enter(&self.driver);
            // A refusal leaks the stream, which is all that can be done about it here.
            let _ = self.driver.stream_destroy(self.raw);
        }
    }
}

/// An event without timing, for order between streams; destroyed when dropped.
pub(crate) struct Event {
    driver: Arc<dyn Driver>,
    raw: RawEvent,
}

impl Event {
    pub(crate) fn create(driver: &Arc<dyn Driver>) -> Result<Self> {
        let _relaxed = Relaxed::enter(driver);
        Ok(Self { driver: Arc::clone(driver), raw: driver.event_create()? })
    }

    pub(crate) fn record(&self, stream: &Stream) -> Result<()> {
        Ok(self.driver.event_record(self.raw, stream.raw())?)
    }

    pub(crate) fn make_wait(&self, stream: &Stream) -> Result<()> {
        Ok(self.driver.stream_wait_event(stream.raw(), self.raw)?)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _relaxed = Relaxed::enter(&self.driver);
        // A refusal leaks the event, which is all that can be done about it here.
        let _ = self.driver.event_destroy(self.raw);
    }
}
