//! The execution policy for one producer.

mod bodies;
mod cache;
mod call;
mod legacy;
mod mode;
#[cfg(test)]
mod mode_table;
mod self_graph;
mod stats;

pub use call::Call;
pub(crate) use legacy::Pending;
pub use legacy::Serial;
use legacy::{Passage, PendingToken};
pub use mode::{Mode, Policy, Reason};
pub use stats::{Plan, Run, Stats};

use bodies::Bodies;
use cache::{Cache, Graphs};
use call::{open_capture, refusal};
use mode::{Body, Previous, Refusal};

use crate::capture::Capture;
use crate::context::ambient::resolve;
use crate::device::{Buffer, Device, DeviceKind, Element, Event, Graph, Stream, StreamState};
use crate::error::{Error, Result};
use crate::producer::{Capturable, Producer};

/// Runs one producer under the execution policy: records it into a caller's capture, runs it
/// eagerly, or captures it once for each variant and replays it (S1 to S4).
///
/// A runner is one writer: it is neither clonable nor usable from two threads at once (S12).
/// Runners are independent of each other, on any thread.
///
/// What each call does to the body and its kernels (S5):
///
/// | call | the body runs | its kernels run |
/// |---|---|---|
/// | [`prepare`](Self::prepare), or a first run that prepares | once | once |
/// | the capture of a variant | once | not |
/// | a replay | not | once |
/// | an eager run | once | once |
/// | recording into a caller's capture | once | once for each launch of that graph |
///
/// Buffers keep their contents between calls. Host values in a captured body are those of the
/// moment of capture.
pub struct GraphRunner<P: Producer> {
    device: Device,
    bodies: Bodies<P>,
    body: Body,
    default_variant: P::Variant,
    default_stream: Option<Stream>,
    private: Option<Stream>,
    last: Option<Last>,
    event: Option<Event>,
    cache: Cache<P::Variant>,
    prepared: bool,
    limit_warned: bool,
    pending: Option<PendingToken>,
    stats: Stats,
}

/// Where the last call that launched something went.
struct Last {
    stream: Stream,
    /// Whether the runner's event is behind that call's work already.
    recorded: bool,
}

impl<P: Producer> GraphRunner<P> {
    /// Graphs for variants other than the default, unless
    /// [`set_variant_limit`](Self::set_variant_limit) says otherwise (S20).
    pub const DEFAULT_VARIANT_LIMIT: usize = 16;

    /// A runner for `producer` on `device`.
    ///
    /// # Errors
    ///
    /// [`Error::Capture`] while the stream that a call would resolve to, the device's current
    /// stream or a foreign framework in this thread is capturing (S18); [`Error::Driver`].
    pub fn new(device: &Device, producer: P) -> Result<Self> {
        Self::build(device, producer, None)
    }

    /// As [`new`](Self::new), with the stream of calls that name none (S15), whose priority the
    /// runner's graphs take too. A host device ignores it.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); [`Error::WrongDevice`] for another device's stream (S16).
    pub fn with_default_stream(device: &Device, producer: P, stream: &Stream) -> Result<Self> {
        Self::build(device, producer, Some(stream))
    }

    fn build(device: &Device, producer: P, default: Option<&Stream>) -> Result<Self> {
        let graphs = device.kind() != DeviceKind::Host;
        if let (Some(stream), true) = (default, graphs) {
            device.check_stream(stream, "the default stream")?;
        }
        device.ensure_not_capturing(default, &format!("constructing `{}`", P::NAME))?;
        let bodies = Bodies::new(producer);
        let body = bodies.shape();
        let private = if graphs && body.graphable {
            // Captured nodes have the priority of the stream they were captured on.
            let priority = default.map_or(Ok(0), Stream::priority)?;
            Some(device.stream_with_priority(priority)?)
        } else {
            None
        };
        Ok(Self {
            private,
            pending: (graphs && body.legacy_capture).then(|| PendingToken::new(device)),
            device: device.clone(),
            bodies,
            body,
            default_variant: P::Variant::default(),
            default_stream: default.filter(|_| graphs).cloned(),
            last: None,
            event: None,
            cache: Cache::new(Self::DEFAULT_VARIANT_LIMIT),
            prepared: false,
            limit_warned: false,
            stats: Stats::default(),
        })
    }

    /// Runs the default variant; shorthand for [`call`](Self::call)`().run()`.
    ///
    /// # Errors
    ///
    /// As [`Call::run`].
    pub fn run(&mut self) -> Result<Run> {
        self.call().run()
    }

    /// A call with a variant, a stream, a policy or a synchronisation of its own.
    ///
    /// ```
    /// # use graph_runner::{Buffer, Capturable, Device, Enqueue, GraphRunner, Producer, Result, kind};
    /// # struct Fill(Buffer<u32>);
    /// # impl Producer for Fill {
    /// #     type Kind = kind::Capturable;
    /// #     type Variant = u32;
    /// #     const NAME: &'static str = "fill";
    /// # }
    /// # impl Capturable for Fill {
    /// #     fn enqueue(&self, variant: &u32, cx: &mut Enqueue<'_>) -> Result<()> {
    /// #         cx.fill(&self.0, *variant)
    /// #     }
    /// # }
    /// use graph_runner::{Mode, Policy};
    /// # let device = Device::host();
    /// # let mut runner = GraphRunner::new(&device, Fill(device.zeros(1)?))?;
    /// let run = runner.call().variant(7).policy(Policy::Eager).sync(true).run()?;
    /// assert_eq!(run.mode, Mode::Eager);
    /// # Ok::<(), graph_runner::Error>(())
    /// ```
    pub fn call(&mut self) -> Call<'_, P> {
        Call::new(self)
    }

    /// What [`run`](Self::run) would do now, or the refusal that it would give (S8). Other calls:
    /// [`Call::plan`].
    ///
    /// # Errors
    ///
    /// The refusal.
    pub fn plan(&self) -> Result<Plan> {
        self.plan_for(None, &self.default_variant, Policy::Auto)
    }

    /// Records the default variant into the caller's capture (S1, S12): only for [`Capturable`]
    /// producers.
    ///
    /// # Errors
    ///
    /// As [`Call::record`].
    pub fn record(&mut self, capture: &mut Capture<'_>) -> Result<Run>
    where
        P: Capturable,
    {
        self.call().record(capture)
    }

    /// Runs the default variant once for real and waits for it, so that everything it needs is
    /// loaded before a capture (S19). It leaves a valid result.
    ///
    /// # Errors
    ///
    /// [`Error::Capture`] as for [`new`](Self::new); otherwise as [`Call::run`].
    pub fn prepare(&mut self) -> Result<()> {
        let stream = resolve(&self.device, None, self.default_stream.as_ref())?;
        let device = self.device.clone();
        let _passage = self.passage(&device, &stream);
        let subject = format!("preparing `{}`", P::NAME);
        self.device.ensure_not_capturing(Some(&stream), &subject)?;
        if self.previous(&stream)? == Previous::OtherCapturing {
            return Err(refusal(self, Refusal::PreviousCapturing, &self.default_variant));
        }
        self.prepare_on(&stream)
    }

    fn prepare_on(&mut self, stream: &Stream) -> Result<()> {
        if self.device.kind() != DeviceKind::Host {
            // The producer's buffers may have been filled there just now.
            stream.wait_for(&self.device.current_stream())?;
        }
        let variant = self.default_variant.clone();
        self.run_eager(stream, &variant)?;
        stream.synchronize()?;
        self.prepared = true;
        Ok(())
    }

    /// Reads a buffer after this runner's work so far; waits for it.
    ///
    /// # Errors
    ///
    /// As [`Stream::read`].
    pub fn read<T: Element>(&self, buffer: &Buffer<T>) -> Result<Vec<T>> {
        let stream = match &self.last {
            Some(last) => last.stream.clone(),
            None => self.device.current_stream(),
        };
        let _passage = self.passage(&self.device, &stream);
        stream.read(buffer)
    }

    /// The process-wide capture lock, if a call on `stream` (or on the stream that a call resolves
    /// to) would take it (S27): hold it around launches of your own ahead of a run. Reentrant.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] for another device's stream.
    pub fn serial(&self, stream: Option<&Stream>) -> Result<Serial> {
        let stream = resolve(&self.device, stream, self.default_stream.as_ref())?;
        let pending =
            self.device.pending().any() && (self.body.legacy || self.device.is_current(&stream));
        if self.device.kind() != DeviceKind::Host && (pending || self.pending.is_some()) {
            Ok(Serial::take())
        } else {
            Ok(Serial::none())
        }
    }

    /// The producer.
    #[must_use]
    pub fn producer(&self) -> &P {
        &self.bodies.producer
    }

    /// The producer, to change it: drops its graphs, since they may point at what changes (S23).
    pub fn producer_mut(&mut self) -> &mut P {
        self.drop_graphs();
        &mut self.bodies.producer
    }

    /// The producer, out of the runner.
    #[must_use]
    pub fn into_producer(self) -> P {
        self.bodies.producer
    }

    /// Drops all graphs and forgets failed captures; later calls capture again.
    pub fn drop_graphs(&mut self) {
        self.cache.clear();
        if self.body.legacy_capture && self.device.kind() != DeviceKind::Host {
            self.pending.get_or_insert_with(|| PendingToken::new(&self.device));
        }
    }

    /// The self-graph of the default variant, once it was captured (S22); `None` for a segmented
    /// body, whose parts have one each.
    #[must_use]
    pub fn graph(&self) -> Option<&Graph> {
        self.graph_for(&self.default_variant)
    }

    /// The self-graph of a variant (S22).
    #[must_use]
    pub fn graph_for(&self, variant: &P::Variant) -> Option<&Graph> {
        match self.cached(variant) {
            Some(Graphs::Whole(graph)) => Some(graph),
            _ => None,
        }
    }

    /// The graphs of a segmented body for a variant, one for each part in order and `None` for a
    /// HOST part (S22).
    #[must_use]
    pub fn segment_graphs_for(&self, variant: &P::Variant) -> Option<&[Option<Graph>]> {
        match self.cached(variant) {
            Some(Graphs::Parts(graphs)) => Some(graphs),
            _ => None,
        }
    }

    fn cached(&self, variant: &P::Variant) -> Option<&Graphs> {
        self.cache.get(variant, *variant == self.default_variant)
    }

    /// The variants that have graphs, the default first (S22).
    pub fn variants(&self) -> impl Iterator<Item = &P::Variant> {
        self.cache.variants(&self.default_variant)
    }

    /// Sets how many variants other than the default may have graphs (S20). Graphs that are there
    /// stay.
    pub fn set_variant_limit(&mut self, limit: usize) {
        self.cache.set_limit(limit);
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The producer's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        P::NAME
    }

    /// Whether the body may be recorded into a caller's capture, by its kind.
    #[must_use]
    pub fn is_capturable(&self) -> bool {
        self.body.recordable
    }

    /// The stream of calls that name none, if the runner was made with one.
    #[must_use]
    pub fn default_stream(&self) -> Option<&Stream> {
        self.default_stream.as_ref()
    }

    /// Whether the preparing run is done (S19).
    #[must_use]
    pub fn is_prepared(&self) -> bool {
        self.prepared
    }

    /// Counts of what this runner did (S34).
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    fn private_stream(&self) -> Result<Stream> {
        match &self.private {
            Some(stream) => Ok(stream.clone()),
            None => unreachable!("only a body that can be in a graph is captured"),
        }
    }

    /// Whether the last call's work can be waited for by a call on `stream` (S17).
    fn previous(&self, stream: &Stream) -> Result<Previous> {
        match &self.last {
            Some(last) if !last.recorded && last.stream != *stream => match last.stream.state()? {
                StreamState::Idle => Ok(Previous::Orderable),
                _ => Ok(Previous::OtherCapturing),
            },
            _ => Ok(Previous::Orderable),
        }
    }

    /// Puts the runner's event behind a call on a stream that somebody else keeps, which may be gone
    /// when the next call wants to wait for it.
    fn seal(&mut self) -> Result<()> {
        let Some(last) = &mut self.last else { return Ok(()) };
        if last.stream.outlives_handles() || last.recorded {
            return Ok(());
        }
        let event = match &mut self.event {
            Some(event) => event,
            none => none.insert(Event::create(self.device.driver())?),
        };
        event.record(&last.stream)?;
        last.recorded = true;
        Ok(())
    }

    /// Orders this call on `stream` after the last one (S17), and notes that it is the last now.
    fn order(&mut self, stream: &Stream) -> Result<()> {
        if self.device.kind() == DeviceKind::Host {
            return Ok(());
        }
        match &mut self.last {
            Some(last) if last.stream == *stream => last.recorded = false,
            Some(last) => {
                let event = match &mut self.event {
                    Some(event) => event,
                    none => none.insert(Event::create(self.device.driver())?),
                };
                if !last.recorded {
                    event.record(&last.stream)?;
                }
                event.make_wait(stream)?;
                *last = Last { stream: stream.clone(), recorded: false };
            }
            none => *none = Some(Last { stream: stream.clone(), recorded: false }),
        }
        Ok(())
    }
}

impl<P: Producer> std::fmt::Debug for GraphRunner<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GraphRunner")
            .field("name", &P::NAME)
            .field("device", &self.device)
            .field("prepared", &self.prepared)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl Device {
    /// Refuses while the stream that a call would resolve to (`default`, if one is given), the
    /// current stream, or a foreign framework in this thread is capturing (S18): for authors who
    /// allocate or launch before the runner exists. `subject` opens the error.
    ///
    /// # Errors
    ///
    /// [`Error::Capture`], with the capture untouched.
    ///
    /// ```
    /// use graph_runner::Device;
    /// Device::host().ensure_not_capturing(None, "building the course")?;
    /// # Ok::<(), graph_runner::Error>(())
    /// ```
    pub fn ensure_not_capturing(&self, default: Option<&Stream>, subject: &str) -> Result<()> {
        let resolved = resolve(self, None, default)?;
        // The runner's own capture of the current stream, in another thread, is none to be refused.
        let _passage = Passage::enter(self, self.kind() != DeviceKind::Host);
        match open_capture(self, &resolved)? {
            None => Ok(()),
            Some(open) => Err(Error::Capture { subject: subject.into(), open }),
        }
    }
}
