//! The state of a simulated device and CUDA's rules on it: streams, events, captures, graphs.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::thread::{ThreadId, current};

use smallvec::SmallVec;

use super::super::Anchor;
use super::super::op::{Node, Op};
use super::schedule::{OpId, Schedule};
use crate::device::driver::{CaptureMode, DriverCode, Keep, RawStream, StreamState};

type Answer<T> = Result<T, DriverCode>;

/// Everything but memory and kernels.
pub(super) struct State {
    pub(super) schedule: Schedule,
    pub(super) streams: HashMap<u64, Stream>,
    pub(super) events: HashMap<u64, Recorded>,
    pub(super) captures: HashMap<u64, Capture>,
    pub(super) graphs: HashMap<u64, Template>,
    pub(super) execs: HashMap<u64, Exec>,
    pub(super) modules: BTreeSet<u64>,
    modes: HashMap<ThreadId, CaptureMode>,
    pub(super) lost: Option<DriverCode>,
    next: u64,
}

#[derive(Default)]
pub(super) struct Stream {
    blocking: bool,
    priority: i32,
    tail: Option<OpId>,
    capture: Option<Joined>,
}

/// A stream's part in a capture: which, and the nodes that its next one depends on.
#[derive(Clone)]
struct Joined {
    capture: u64,
    frontier: SmallVec<[usize; 2]>,
}

/// What an event was recorded behind.
#[derive(Clone, Default)]
pub(super) enum Recorded {
    #[default]
    Never,
    Work(Option<OpId>),
    Captured {
        capture: u64,
        nodes: SmallVec<[usize; 2]>,
    },
}

pub(super) struct Capture {
    mode: CaptureMode,
    origin: RawStream,
    thread: ThreadId,
    nodes: Vec<Node>,
    anchors: Vec<Arc<Anchor>>,
    invalid: bool,
}

#[derive(Clone)]
pub(super) struct Template {
    pub(super) nodes: Arc<[Node]>,
    pub(super) anchors: Vec<Arc<Anchor>>,
}

pub(super) struct Exec {
    template: Template,
    last: Option<OpId>,
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        let legacy = Stream::default();
        Self {
            schedule: Schedule::new(seed),
            streams: HashMap::from([(RawStream::LEGACY.0, legacy)]),
            events: HashMap::new(),
            captures: HashMap::new(),
            graphs: HashMap::new(),
            execs: HashMap::new(),
            modules: BTreeSet::new(),
            modes: HashMap::new(),
            lost: None,
            next: RawStream::LEGACY.0,
        }
    }

    pub(super) fn handle(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn check_lost(&self) -> Answer<()> {
        self.lost.map_or(Ok(()), Err)
    }

    // Streams.

    pub(super) fn add_stream(&mut self, blocking: bool, priority: i32) -> u64 {
        let handle = self.handle();
        self.streams.insert(handle, Stream { blocking, priority, ..Stream::default() });
        handle
    }

    pub(super) fn remove_stream(&mut self, stream: RawStream) -> Answer<()> {
        let gone = self.streams.remove(&stream.0).ok_or(DriverCode::InvalidHandle)?;
        if let Some(capture) = gone.capture.and_then(|j| self.captures.get_mut(&j.capture)) {
            capture.invalid = true;
        }
        Ok(())
    }

    pub(super) fn priority_of(&self, stream: RawStream) -> Answer<i32> {
        Ok(self.stream(stream)?.priority)
    }

    fn stream(&self, stream: RawStream) -> Answer<&Stream> {
        self.streams.get(&stream.0).ok_or(DriverCode::InvalidHandle)
    }

    fn stream_mut(&mut self, stream: RawStream) -> Answer<&mut Stream> {
        self.streams.get_mut(&stream.0).ok_or(DriverCode::InvalidHandle)
    }

    /// The capture that a stream takes part in.
    pub(super) fn capture_of(&self, stream: RawStream) -> Answer<Option<u64>> {
        let joined = self.stream(stream)?.capture.as_ref();
        Ok(joined.map(|joined| joined.capture).filter(|id| self.captures.contains_key(id)))
    }

    pub(super) fn state_of(&self, stream: RawStream) -> Answer<StreamState> {
        if stream == RawStream::LEGACY && self.blocking_captures().next().is_some() {
            return Ok(StreamState::Implicit);
        }
        Ok(match self.capture_of(stream)?.and_then(|id| self.captures.get(&id)) {
            None => StreamState::Idle,
            Some(capture) if capture.invalid => StreamState::Invalidated,
            Some(_) => StreamState::Capturing,
        })
    }

    fn blocking_captures(&self) -> impl Iterator<Item = u64> + '_ {
        let captures = self.streams.values().filter(|stream| stream.blocking);
        captures
            .filter_map(|stream| stream.capture.as_ref())
            .map(|joined| joined.capture)
            .filter(|id| self.captures.contains_key(id))
    }

    fn invalidate(&mut self, which: impl IntoIterator<Item = u64>) {
        for id in which {
            if let Some(capture) = self.captures.get_mut(&id) {
                capture.invalid = true;
            }
        }
    }

    /// A use of the legacy stream while a blocking stream captures is refused and breaks that.
    fn forbid_implicit(&mut self, stream: RawStream) -> Answer<()> {
        if stream != RawStream::LEGACY {
            return Ok(());
        }
        let broken: Vec<u64> = self.blocking_captures().collect();
        if broken.is_empty() {
            return Ok(());
        }
        self.invalidate(broken);
        Err(DriverCode::CaptureImplicit)
    }

    /// What an operation enqueued on `stream` now waits for.
    pub(super) fn frontier(&self, stream: RawStream) -> Answer<SmallVec<[OpId; 4]>> {
        let this = self.stream(stream)?;
        let mut after: SmallVec<[OpId; 4]> = this.tail.into_iter().collect();
        if stream == RawStream::LEGACY {
            after.extend(self.streams.values().filter(|s| s.blocking).filter_map(|s| s.tail));
        } else if this.blocking {
            after.extend(self.stream(RawStream::LEGACY)?.tail);
        }
        Ok(after)
    }

    /// Enqueues an operation, or records it if the stream captures.
    pub(super) fn submit(&mut self, stream: RawStream, op: Op) -> Answer<()> {
        self.forbid_implicit(stream)?;
        match self.state_of(stream)? {
            StreamState::Capturing => self.record(stream, Arc::new(op)),
            StreamState::Idle => {
                let after = self.frontier(stream)?;
                let id = self.schedule.add(Arc::new(op), after);
                self.stream_mut(stream)?.tail = Some(id);
                Ok(())
            }
            StreamState::Invalidated | StreamState::Implicit => Err(DriverCode::CaptureInvalidated),
        }
    }

    fn record(&mut self, stream: RawStream, op: Arc<Op>) -> Answer<()> {
        let joined = self.stream_mut(stream)?.capture.as_mut().ok_or(DriverCode::IllegalState)?;
        let after = std::mem::take(&mut joined.frontier);
        let id = joined.capture;
        let capture = self.captures.get_mut(&id).ok_or(DriverCode::IllegalState)?;
        capture.nodes.push(Node { op, after });
        let node = capture.nodes.len() - 1;
        if let Some(joined) = &mut self.stream_mut(stream)?.capture {
            joined.frontier = SmallVec::from_slice(&[node]);
        }
        Ok(())
    }

    // What captures forbid.

    pub(super) fn exchange_mode(&mut self, mode: CaptureMode) -> CaptureMode {
        self.modes.insert(current().id(), mode).unwrap_or(CaptureMode::Global)
    }

    /// Refuses a call that CUDA counts as unsafe while captures are open, and breaks those.
    pub(super) fn forbid_unsafe(&mut self) -> Answer<()> {
        let me = current().id();
        let mode = self.modes.get(&me).copied().unwrap_or(CaptureMode::Global);
        let concerns = |capture: &Capture| match mode {
            CaptureMode::Relaxed => false,
            _ if capture.thread == me => capture.mode != CaptureMode::Relaxed,
            CaptureMode::Global => capture.mode == CaptureMode::Global,
            CaptureMode::ThreadLocal => false,
        };
        self.break_captures(concerns)
    }

    /// Refuses a call that waits for the whole context: it breaks every capture.
    pub(super) fn forbid_context_wait(&mut self) -> Answer<()> {
        self.break_captures(|_| true)
    }

    fn break_captures(&mut self, concerns: impl Fn(&Capture) -> bool) -> Answer<()> {
        let mut refused = Ok(());
        for capture in self.captures.values_mut().filter(|capture| concerns(capture)) {
            capture.invalid = true;
            refused = Err(DriverCode::CaptureUnsupported);
        }
        refused
    }

    /// Refuses a call that makes no sense on a capturing stream, and breaks its capture.
    pub(super) fn forbid_capturing(&mut self, stream: RawStream) -> Answer<()> {
        self.forbid_implicit(stream)?;
        match self.capture_of(stream)? {
            None => Ok(()),
            Some(id) => {
                self.invalidate([id]);
                Err(DriverCode::CaptureUnsupported)
            }
        }
    }

    // Events.

    pub(super) fn record_event(&mut self, event: u64, stream: RawStream) -> Answer<()> {
        self.forbid_implicit(stream)?;
        let recorded = match self.state_of(stream)? {
            StreamState::Idle => {
                let after = self.frontier(stream)?;
                // One point behind all of them.
                let point = match after.as_slice() {
                    [] => None,
                    [one] => Some(*one),
                    _ => Some(self.schedule.add(Arc::new(Op::Nothing), after)),
                };
                Recorded::Work(point)
            }
            StreamState::Capturing => {
                let joined =
                    self.stream(stream)?.capture.clone().ok_or(DriverCode::IllegalState)?;
                Recorded::Captured { capture: joined.capture, nodes: joined.frontier }
            }
            _ => return Err(DriverCode::CaptureInvalidated),
        };
        *self.events.get_mut(&event).ok_or(DriverCode::InvalidHandle)? = recorded;
        Ok(())
    }

    pub(super) fn wait_event(&mut self, stream: RawStream, event: u64) -> Answer<()> {
        let recorded = self.events.get(&event).cloned().ok_or(DriverCode::InvalidHandle)?;
        self.forbid_implicit(stream)?;
        let capturing = self.capture_of(stream)?;
        if capturing.is_some() && self.state_of(stream)? == StreamState::Invalidated {
            return Err(DriverCode::CaptureInvalidated);
        }
        match (recorded, capturing) {
            (Recorded::Never, _) => Ok(()),
            (Recorded::Work(point), None) => {
                let Some(point) = point.filter(|point| !self.schedule.is_done(*point)) else {
                    return Ok(());
                };
                let mut after = self.frontier(stream)?;
                after.push(point);
                let id = self.schedule.add(Arc::new(Op::Nothing), after);
                self.stream_mut(stream)?.tail = Some(id);
                Ok(())
            }
            (Recorded::Work(_), Some(id)) => {
                self.invalidate([id]);
                Err(DriverCode::CaptureIsolation)
            }
            (Recorded::Captured { capture, nodes }, own) => {
                let Some(theirs) = self.captures.get(&capture) else {
                    // The capture is over, and so is what the event stood for.
                    self.invalidate(own);
                    return Err(DriverCode::CapturedEvent);
                };
                if theirs.invalid {
                    return Err(DriverCode::CaptureInvalidated);
                }
                if let Some(own) = own.filter(|own| *own != capture) {
                    self.invalidate([own, capture]);
                    return Err(DriverCode::CaptureMerge);
                }
                let joined = self
                    .stream_mut(stream)?
                    .capture
                    .take_if(|joined| joined.capture == capture)
                    .unwrap_or(Joined { capture, frontier: SmallVec::new() });
                let mut frontier = joined.frontier;
                frontier.extend(nodes.into_iter().filter(|_| true));
                frontier.sort_unstable();
                frontier.dedup();
                self.stream_mut(stream)?.capture = Some(Joined { capture, frontier });
                Ok(())
            }
        }
    }

    /// What the host waits for in order to see an event; a captured one is nothing to wait for.
    pub(super) fn event_point(&mut self, event: u64) -> Answer<Option<OpId>> {
        match self.events.get(&event).cloned().ok_or(DriverCode::InvalidHandle)? {
            Recorded::Never => Ok(None),
            Recorded::Work(point) => Ok(point),
            Recorded::Captured { capture, .. } => {
                self.invalidate([capture]);
                Err(DriverCode::CapturedEvent)
            }
        }
    }

    // Captures.

    pub(super) fn begin_capture(&mut self, stream: RawStream, mode: CaptureMode) -> Answer<()> {
        if stream == RawStream::LEGACY {
            return Err(DriverCode::CaptureUnsupported);
        }
        if self.capture_of(stream)?.is_some() {
            return Err(DriverCode::IllegalState);
        }
        let id = self.handle();
        let capture = Capture {
            mode,
            origin: stream,
            thread: current().id(),
            nodes: Vec::new(),
            anchors: Vec::new(),
            invalid: false,
        };
        self.captures.insert(id, capture);
        let frontier = SmallVec::new();
        self.stream_mut(stream)?.capture = Some(Joined { capture: id, frontier });
        Ok(())
    }

    pub(super) fn end_capture(&mut self, stream: RawStream) -> Answer<u64> {
        let id = self.capture_of(stream)?.ok_or(DriverCode::IllegalState)?;
        if self.captures[&id].origin != stream {
            return Err(DriverCode::CaptureUnmatched);
        }
        let unjoined = self.unjoined(id, stream);
        let Some(capture) = self.captures.remove(&id) else { return Err(DriverCode::IllegalState) };
        for stream in self.streams.values_mut() {
            stream.capture.take_if(|joined| joined.capture == id);
        }
        if capture.thread != current().id() && capture.mode != CaptureMode::Relaxed {
            return Err(DriverCode::CaptureWrongThread);
        }
        if capture.invalid {
            return Err(DriverCode::CaptureInvalidated);
        }
        if unjoined {
            return Err(DriverCode::CaptureUnjoined);
        }
        let handle = self.handle();
        let template = Template { nodes: capture.nodes.into(), anchors: capture.anchors };
        self.graphs.insert(handle, template);
        Ok(handle)
    }

    /// Whether a stream of the capture has work that its origin does not wait for.
    fn unjoined(&self, id: u64, origin: RawStream) -> bool {
        let nodes = &self.captures[&id].nodes;
        let frontier = |stream: &Stream| match &stream.capture {
            Some(joined) if joined.capture == id => joined.frontier.clone(),
            _ => SmallVec::new(),
        };
        let mut joined = vec![false; nodes.len()];
        let mut open = self.streams.get(&origin.0).map(frontier).unwrap_or_default();
        while let Some(node) = open.pop() {
            if !std::mem::replace(&mut joined[node], true) {
                open.extend(nodes[node].after.iter().copied());
            }
        }
        self.streams.values().flat_map(frontier).any(|node| !joined[node])
    }

    pub(super) fn retain(
        &mut self,
        stream: RawStream,
        keep: Vec<Keep>,
        release: Arc<dyn Fn(Vec<Keep>) + Send + Sync>,
    ) -> Answer<()> {
        let id = self.capture_of(stream)?.ok_or(DriverCode::IllegalState)?;
        let capture = self.captures.get_mut(&id).ok_or(DriverCode::IllegalState)?;
        if capture.invalid {
            return Err(DriverCode::CaptureInvalidated);
        }
        capture.anchors.push(Arc::new(Anchor::new(keep, release)));
        Ok(())
    }

    pub(super) fn add_child(&mut self, stream: RawStream, child: u64) -> Answer<()> {
        let child = self.graphs.get(&child).cloned().ok_or(DriverCode::InvalidHandle)?;
        let id = self.capture_of(stream)?.ok_or(DriverCode::IllegalState)?;
        self.record(stream, Arc::new(Op::Child(child.nodes)))?;
        if let Some(capture) = self.captures.get_mut(&id) {
            capture.anchors.extend(child.anchors);
        }
        Ok(())
    }

    pub(super) fn captured_nodes(&self, stream: RawStream) -> Answer<Option<usize>> {
        let id = self.capture_of(stream)?;
        Ok(id.and_then(|id| self.captures.get(&id)).map(|capture| capture.nodes.len()))
    }

    // Graphs.

    pub(super) fn instantiate(&mut self, graph: u64) -> Answer<u64> {
        let template = self.graphs.get(&graph).cloned().ok_or(DriverCode::InvalidHandle)?;
        let handle = self.handle();
        self.execs.insert(handle, Exec { template, last: None });
        Ok(handle)
    }

    pub(super) fn launch_graph(&mut self, exec: u64, stream: RawStream) -> Answer<()> {
        self.forbid_capturing(stream)?;
        let mut roots = self.frontier(stream)?;
        let exec = self.execs.get_mut(&exec).ok_or(DriverCode::InvalidHandle)?;
        // An exec never runs beside itself.
        roots.extend(exec.last);
        let mut ids: Vec<OpId> = Vec::with_capacity(exec.template.nodes.len());
        for node in &*exec.template.nodes {
            let id = if node.after.is_empty() {
                self.schedule.add(Arc::clone(&node.op), roots.iter().copied())
            } else {
                self.schedule.add(Arc::clone(&node.op), node.after.iter().map(|&index| ids[index]))
            };
            ids.push(id);
        }
        let end = self.schedule.add(Arc::new(Op::Nothing), ids.into_iter().chain(roots));
        exec.last = Some(end);
        self.stream_mut(stream)?.tail = Some(end);
        Ok(())
    }
}
