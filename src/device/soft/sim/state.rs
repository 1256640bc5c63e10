//! What a simulated device knows: streams, events, graphs, captures, and the rules between them.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::capture::{Branch, Capture, CaptureId};
use super::flow::Flow;
use super::queue::{OpId, Queue, Task};
use crate::device::driver::{
    CaptureMode, DriverCode, RawEvent, RawExec, RawGraph, RawStream, StreamFlags,
};

pub(super) type Answer<T> = Result<T, DriverCode>;

thread_local! {
    /// What `cuThreadExchangeStreamCaptureMode` exchanges: the thread's, for all devices.
    pub(super) static MODE: Cell<CaptureMode> = const { Cell::new(CaptureMode::Global) };
}

pub(super) struct State {
    /// Why the context is lost, if it is.
    pub(super) lost: Option<DriverCode>,
    pub(super) queue: Queue,
    pub(super) streams: BTreeMap<RawStream, StreamRecord>,
    /// The last work of blocking streams that were destroyed.
    orphans: Vec<OpId>,
    pub(super) events: BTreeMap<RawEvent, EventRecord>,
    pub(super) graphs: BTreeMap<RawGraph, Arc<Flow>>,
    pub(super) execs: BTreeMap<RawExec, ExecRecord>,
    pub(super) modules: BTreeSet<u64>,
    pub(super) captures: BTreeMap<CaptureId, Capture>,
    names: u64,
}

pub(super) struct StreamRecord {
    blocking: bool,
    /// What the stream's next operation comes after.
    after: Vec<OpId>,
    pub(super) capture: Option<CaptureId>,
    priority: i32,
}

impl StreamRecord {
    fn new(flags: StreamFlags) -> Self {
        // The range of today's GPUs. It chooses nothing here: any order is allowed anyway.
        let priority = flags.priority.clamp(-5, 0);
        Self { blocking: flags.blocking, after: Vec::new(), capture: None, priority }
    }

    pub(super) fn priority(&self) -> i32 {
        self.priority
    }
}

#[derive(Clone)]
pub(super) enum EventRecord {
    Unrecorded,
    Recorded(Vec<OpId>),
    Captured(CaptureId, Branch),
}

pub(super) struct ExecRecord {
    pub(super) flow: Arc<Flow>,
    /// Its last launch, which the next one comes after.
    pub(super) last: Option<OpId>,
}

/// Where an operation on a stream goes.
pub(super) enum Target {
    Run,
    Record(CaptureId),
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        let legacy = StreamRecord::new(StreamFlags { blocking: false, priority: 0 });
        Self {
            lost: None,
            queue: Queue::new(seed),
            streams: BTreeMap::from([(RawStream::LEGACY, legacy)]),
            orphans: Vec::new(),
            events: BTreeMap::new(),
            graphs: BTreeMap::new(),
            execs: BTreeMap::new(),
            modules: BTreeSet::new(),
            captures: BTreeMap::new(),
            // The legacy stream's name is below these.
            names: 16,
        }
    }

    /// A number that names nothing else on this device.
    pub(super) fn name(&mut self) -> u64 {
        self.names += 1;
        self.names
    }

    /// Loses the context; the caller drops what is given up where dropping may call the device.
    pub(super) fn lose(&mut self, code: DriverCode) -> Vec<Task> {
        self.lost.get_or_insert(code);
        self.queue.abandon()
    }

    // Streams.

    pub(super) fn add_stream(&mut self, flags: StreamFlags) -> RawStream {
        let stream = RawStream(self.name());
        let record = StreamRecord::new(flags);
        self.streams.insert(stream, record);
        stream
    }

    /// Forgets a stream, whose work goes on. A capture that began on it is given back to be
    /// dropped; one that it took part in can be joined no more.
    pub(super) fn remove_stream(&mut self, stream: RawStream) -> Answer<Option<Capture>> {
        if stream == RawStream::LEGACY {
            return Err(DriverCode::InvalidHandle);
        }
        let removed = self.streams.remove(&stream).ok_or(DriverCode::InvalidHandle)?;
        if removed.blocking {
            self.orphans.extend(removed.after);
        }
        let capture = removed.capture.filter(|id| self.captures[id].origin == stream);
        Ok(capture.and_then(|id| self.remove_capture(id)))
    }

    pub(super) fn stream(&mut self, stream: RawStream) -> Answer<&mut StreamRecord> {
        self.streams.get_mut(&stream).ok_or(DriverCode::InvalidHandle)
    }

    /// Where work for `stream` goes. Work for the legacy stream breaks the captures of blocking
    /// streams, which would depend on it.
    pub(super) fn target(&mut self, stream: RawStream) -> Answer<Target> {
        let capture = self.stream(stream)?.capture;
        match capture {
            Some(id) if self.captures[&id].broken => Err(DriverCode::CaptureInvalidated),
            Some(id) => Ok(Target::Record(id)),
            None => {
                if stream == RawStream::LEGACY {
                    self.refuse_implicit()?;
                }
                Ok(Target::Run)
            }
        }
    }

    /// As [`target`](Self::target) for work that cannot be recorded, which breaks the capture.
    pub(super) fn target_outside(&mut self, stream: RawStream) -> Answer<()> {
        match self.target(stream)? {
            Target::Run => Ok(()),
            Target::Record(id) => {
                self.break_capture(id);
                Err(DriverCode::CaptureUnsupported)
            }
        }
    }

    /// Enqueues a task on a stream that does not capture.
    pub(super) fn enqueue(&mut self, stream: RawStream, task: Task) -> Answer<OpId> {
        let after = self.position(stream)?;
        let id = self.queue.push(stream.0, task, &after);
        self.stream(stream)?.after = vec![id];
        Ok(id)
    }

    pub(super) fn enqueue_graph(&mut self, stream: RawStream, exec: RawExec) -> Answer<()> {
        let mut after = self.position(stream)?;
        let record = self.execs.get_mut(&exec).ok_or(DriverCode::InvalidHandle)?;
        after.extend(record.last);
        let end = self.queue.push_graph(stream.0, &record.flow, &after);
        record.last = Some(end);
        self.stream(stream)?.after = vec![end];
        Ok(())
    }

    /// What the next command of `stream` comes after: the stream's own work, and between the
    /// legacy stream and the blocking ones each other's.
    pub(super) fn position(&mut self, stream: RawStream) -> Answer<Vec<OpId>> {
        let record = self.stream(stream)?;
        let mut after = record.after.clone();
        if stream == RawStream::LEGACY {
            let blocking = self.streams.values().filter(|other| other.blocking);
            after.extend(blocking.flat_map(|other| &other.after));
            after.append(&mut self.orphans);
        } else if record.blocking {
            after.extend(&self.stream(RawStream::LEGACY)?.after);
        }
        self.prune(&mut after);
        self.stream(stream)?.after.clone_from(&after);
        Ok(after)
    }

    /// What a wait for `stream` waits for.
    pub(super) fn own_work(&mut self, stream: RawStream) -> Answer<Vec<OpId>> {
        match stream {
            RawStream::LEGACY => self.position(stream),
            _ => Ok(self.stream(stream)?.after.clone()),
        }
    }

    fn prune(&self, ids: &mut Vec<OpId>) {
        ids.retain(|&id| self.queue.is_pending(id));
        ids.sort_unstable();
        ids.dedup();
    }

    // Events.

    pub(super) fn record_event(&mut self, event: RawEvent, stream: RawStream) -> Answer<()> {
        if !self.events.contains_key(&event) {
            return Err(DriverCode::InvalidHandle);
        }
        let record = match self.target(stream)? {
            Target::Run => EventRecord::Recorded(self.position(stream)?),
            Target::Record(id) => EventRecord::Captured(id, self.captures[&id].position(stream)),
        };
        self.events.insert(event, record);
        Ok(())
    }

    pub(super) fn wait_event(&mut self, stream: RawStream, event: RawEvent) -> Answer<()> {
        let record = self.events.get(&event).cloned().ok_or(DriverCode::InvalidHandle)?;
        let target = self.target(stream)?;
        match (record, target) {
            (EventRecord::Unrecorded, _) => Ok(()),
            (EventRecord::Recorded(work), Target::Run) => {
                let mut after = self.position(stream)?;
                after.extend(work);
                self.prune(&mut after);
                self.stream(stream)?.after = after;
                Ok(())
            }
            (EventRecord::Recorded(_), Target::Record(id)) => {
                self.break_capture(id);
                Err(DriverCode::CaptureIsolation)
            }
            (EventRecord::Captured(source, branch), target) => {
                self.wait_captured(stream, source, &branch, target)
            }
        }
    }

    fn wait_captured(
        &mut self,
        stream: RawStream,
        source: CaptureId,
        branch: &Branch,
        target: Target,
    ) -> Answer<()> {
        let Some(capture) = self.captures.get_mut(&source) else {
            // The event's capture has ended: it stands for no work that could be waited for.
            return match target {
                Target::Run => Err(DriverCode::CapturedEvent),
                Target::Record(id) => {
                    self.break_capture(id);
                    Err(DriverCode::CaptureIsolation)
                }
            };
        };
        match target {
            Target::Record(id) if id != source => {
                self.break_capture(id);
                self.break_capture(source);
                Err(DriverCode::CaptureMerge)
            }
            _ if capture.broken => Err(DriverCode::CaptureInvalidated),
            Target::Run if stream == RawStream::LEGACY => {
                capture.broken = true;
                Err(DriverCode::CaptureImplicit)
            }
            _ => {
                capture.join(stream, branch);
                self.stream(stream)?.capture = Some(source);
                Ok(())
            }
        }
    }

    /// The work of an event, for the host to wait for. That an event was recorded in a capture
    /// breaks the capture.
    pub(super) fn event_work(&mut self, event: RawEvent) -> Answer<Vec<OpId>> {
        match self.events.get(&event).cloned().ok_or(DriverCode::InvalidHandle)? {
            EventRecord::Unrecorded => Ok(Vec::new()),
            EventRecord::Recorded(work) => Ok(work),
            EventRecord::Captured(id, _) => {
                self.break_capture(id);
                Err(DriverCode::CapturedEvent)
            }
        }
    }

    // Captures.

    pub(super) fn begin_capture(&mut self, stream: RawStream, mode: CaptureMode) -> Answer<()> {
        if stream == RawStream::LEGACY {
            return Err(DriverCode::CaptureUnsupported);
        }
        if self.stream(stream)?.capture.is_some() {
            return Err(DriverCode::IllegalState);
        }
        let id = CaptureId(self.name());
        self.captures.insert(id, Capture::new(stream, mode, std::thread::current().id()));
        self.stream(stream)?.capture = Some(id);
        Ok(())
    }

    /// Ends the capture that began on `stream` and gives it back, with whether it gives a graph.
    pub(super) fn end_capture(&mut self, stream: RawStream) -> Answer<(Capture, Answer<()>)> {
        let id = self.stream(stream)?.capture.ok_or(DriverCode::IllegalState)?;
        let capture = &self.captures[&id];
        if capture.origin != stream {
            return Err(DriverCode::CaptureUnmatched);
        }
        let own = capture.thread == std::thread::current().id();
        let verdict = if !own && capture.mode != CaptureMode::Relaxed {
            Err(DriverCode::CaptureWrongThread)
        } else if capture.broken {
            Err(DriverCode::CaptureInvalidated)
        } else if !capture.is_joined() {
            Err(DriverCode::CaptureUnjoined)
        } else {
            Ok(())
        };
        let capture = self.remove_capture(id).ok_or(DriverCode::IllegalState)?;
        Ok((capture, verdict))
    }

    /// Takes a capture out; its streams capture no more.
    pub(super) fn remove_capture(&mut self, id: CaptureId) -> Option<Capture> {
        let capture = self.captures.remove(&id)?;
        for stream in capture.branches.keys() {
            if let Some(record) = self.streams.get_mut(stream) {
                record.capture = None;
            }
        }
        Some(capture)
    }

    pub(super) fn break_capture(&mut self, id: CaptureId) {
        if let Some(capture) = self.captures.get_mut(&id) {
            capture.broken = true;
        }
    }

    /// Breaks every capture, and refuses if there was one.
    pub(super) fn refuse_any_capture(&mut self) -> Answer<()> {
        self.refuse_captures(|_| true, DriverCode::CaptureUnsupported)
    }

    /// Refuses a call that captures count as unsafe, and breaks those that forbid it to this
    /// thread: unless the thread's mode is RELAXED, its own that are not RELAXED, and, in the
    /// thread mode GLOBAL, every GLOBAL one.
    pub(super) fn refuse_unsafe(&mut self) -> Answer<()> {
        let (mode, thread) = (MODE.get(), std::thread::current().id());
        if mode == CaptureMode::Relaxed {
            return Ok(());
        }
        let forbids = |capture: &Capture| match capture.mode {
            CaptureMode::Relaxed => false,
            CaptureMode::ThreadLocal => capture.thread == thread,
            CaptureMode::Global => capture.thread == thread || mode == CaptureMode::Global,
        };
        self.refuse_captures(forbids, DriverCode::CaptureUnsupported)
    }

    /// Refuses use of the legacy stream while a blocking stream captures, and breaks that capture.
    pub(super) fn refuse_implicit(&mut self) -> Answer<()> {
        let blocking = self.implicit_captures();
        self.refuse_captures(
            |capture| capture.branches.keys().any(|stream| blocking.contains(stream)),
            DriverCode::CaptureImplicit,
        )
    }

    /// The blocking streams that capture.
    pub(super) fn implicit_captures(&self) -> BTreeSet<RawStream> {
        let capturing =
            |(_, record): &(_, &StreamRecord)| record.blocking && record.capture.is_some();
        self.streams.iter().filter(capturing).map(|(&stream, _)| stream).collect()
    }

    fn refuse_captures(
        &mut self,
        forbids: impl Fn(&Capture) -> bool,
        code: DriverCode,
    ) -> Answer<()> {
        let mut refused = false;
        for capture in self.captures.values_mut().filter(|capture| forbids(capture)) {
            capture.broken = true;
            refused = true;
        }
        if refused { Err(code) } else { Ok(()) }
    }
}
