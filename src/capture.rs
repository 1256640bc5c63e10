//! Captures: a caller's, by a typed token, and the one guarded way in which the crate itself begins
//! and ends one.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::context::ambient::Ambient;
use crate::context::{Enqueue, Lane, Trace};
use crate::device::{
    CaptureMode, DriverCode, Graph, KeepSet, RawGraph, Relaxed, Stream, StreamState, released,
};
use crate::error::{Error, OpenCapture, Result};

/// A capture that the caller began with [`Stream::capture`]: the permission to record producers
/// into it.
///
/// It lives for the capture's closure, cannot be kept beyond its end, and stays on its thread.
pub struct Capture<'c> {
    stream: &'c Stream,
    trace: &'c mut Trace,
    not_send: PhantomData<*mut ()>,
}

impl Capture<'_> {
    /// The capturing stream.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        self.stream
    }

    /// Enqueues operations of the caller's own into the capture, between producers.
    pub fn enqueue(&mut self) -> Enqueue<'_> {
        Enqueue::new(Lane {
            stream: self.stream,
            producer: "capture",
            part: "caller",
            trace: self.trace,
            capturing: true,
        })
    }

    pub(crate) fn trace(&mut self) -> &mut Trace {
        self.trace
    }
}

impl fmt::Debug for Capture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("stream", self.stream).finish_non_exhaustive()
    }
}

impl Stream {
    /// Captures what `body` records and enqueues into a graph of the caller's.
    ///
    /// Runs inside `body` that name no stream resolve to this one (S15). The capture is
    /// THREAD_LOCAL, and ends when `body` returns, fails or panics; what failed
    /// leaves the stream usable and no graph behind.
    ///
    /// # Errors
    ///
    /// [`Error::Capture`] or [`Error::Invalidated`] if the stream is capturing already; what `body`
    /// returns; [`Error::Driver`] if the capture was broken or cannot be instantiated.
    ///
    /// ```
    /// use graph_runner::Device;
    /// let device = Device::host();
    /// let (stream, buffer) = (device.stream()?, device.buffer(&[1_u32, 2])?);
    /// let graph = stream.capture(|capture| capture.enqueue().fill(&buffer, 7))?;
    /// assert_eq!(stream.read(&buffer)?, [1, 2]); // recorded, not run
    /// graph.launch(&stream)?;
    /// assert_eq!(stream.read(&buffer)?, [7, 7]);
    /// # Ok::<(), graph_runner::Error>(())
    /// ```
    pub fn capture(&self, body: impl FnOnce(&mut Capture<'_>) -> Result<()>) -> Result<Graph> {
        self.capture_with(CaptureMode::ThreadLocal, body)
    }

    /// As [`capture`](Self::capture), in another capture mode.
    ///
    /// # Errors
    ///
    /// As [`capture`](Self::capture).
    pub fn capture_with(
        &self,
        mode: CaptureMode,
        body: impl FnOnce(&mut Capture<'_>) -> Result<()>,
    ) -> Result<Graph> {
        let subject = || "beginning a capture".to_owned();
        match self.state()? {
            StreamState::Idle => {}
            StreamState::Capturing => {
                return Err(Error::Capture { subject: subject(), open: OpenCapture::Resolved });
            }
            StreamState::Invalidated => return Err(Error::Invalidated { subject: subject() }),
            StreamState::Implicit => return Err(Error::ImplicitCapture { subject: subject() }),
        }
        let mut trace = Trace::keeping();
        let open = OpenGuard::begin(self, mode)?;
        let ambient = Ambient::enter(self);
        body(&mut Capture { stream: self, trace: &mut trace, not_send: PhantomData })?;
        drop(ambient);
        let template = open.end()?;
        Graph::instantiate(self.driver(), template, trace.keep.unwrap_or_default())
    }

    /// Enqueues operations directly, outside any producer: run in stream order, or recorded if the
    /// stream is capturing.
    ///
    /// # Errors
    ///
    /// What `body` returns, and [`Error::Invalidated`] or [`Error::ImplicitCapture`] for a stream
    /// that cannot take work.
    pub fn enqueue<T>(&self, body: impl FnOnce(&mut Enqueue<'_>) -> Result<T>) -> Result<T> {
        let subject = || "enqueueing on a stream".to_owned();
        let capturing = match self.state()? {
            StreamState::Idle => false,
            StreamState::Capturing => true,
            StreamState::Invalidated => return Err(Error::Invalidated { subject: subject() }),
            StreamState::Implicit => return Err(Error::ImplicitCapture { subject: subject() }),
        };
        let mut trace = if capturing { Trace::keeping() } else { Trace::default() };
        let lane =
            Lane { stream: self, producer: "stream", part: "caller", trace: &mut trace, capturing };
        let result = body(&mut Enqueue::new(lane));
        if capturing {
            anchor(self, trace.keep.unwrap_or_default())?;
        }
        result
    }
}

/// Ties `keep` to the graph that somebody else is capturing on `stream` (S30).
pub(crate) fn anchor(stream: &Stream, keep: KeepSet) -> Result<()> {
    if keep.is_empty() {
        return Ok(());
    }
    released::start();
    let keep = keep.into_vec();
    let spare = keep.clone();
    let tied = stream.driver().capture_retain(stream.raw(), keep, Arc::new(released::push));
    if let Err(error) = tied {
        if error.code() != DriverCode::CaptureInvalidated {
            // The graph may live and refers to these without owning them: they must never go.
            std::mem::forget(spare);
        }
        return Err(error.into());
    }
    Ok(())
}

/// A capture that this crate began and will end, whatever happens between.
pub(crate) struct OpenGuard<'s> {
    stream: &'s Stream,
    ended: bool,
}

impl<'s> OpenGuard<'s> {
    pub(crate) fn begin(stream: &'s Stream, mode: CaptureMode) -> Result<Self> {
        stream.driver().begin_capture(stream.raw(), mode)?;
        Ok(Self { stream, ended: false })
    }

    /// Ends the capture and gives its graph.
    pub(crate) fn end(mut self) -> Result<RawGraph> {
        self.ended = true;
        Ok(self.stream.driver().end_capture(self.stream.raw())?)
    }
}

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let driver = self.stream.driver();
        if let Ok(graph) = driver.end_capture(self.stream.raw()) {
            let _relaxed = Relaxed::enter(driver);
            // A refusal leaks the graph, which is all that can be done about it here.
            let _ = driver.graph_destroy(graph);
        }
    }
}
