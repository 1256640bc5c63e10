//! One call of a runner: what is asked for, and how it is carried out.

use super::GraphRunner;
use super::cache::Graphs;
use super::legacy::{Passage, Serial};
use super::mode::{Cached, Decision, Facts, Mode, Policy, Previous, Reason, Refusal, decide};
use super::stats::{Plan, Run};
use crate::capture::{Capture, anchor};
use crate::context::Trace;
use crate::context::ambient::{foreign_capture, resolve};
use crate::device::{Device, DeviceKind, Stream, StreamState};
use crate::drive::PartClass;
use crate::error::{Error, OpenCapture, Result};
use crate::producer::{Capturable, Producer};
use crate::warning::{Warning, warn};

/// A call under construction: variant, stream, policy and synchronisation, then
/// [`run`](Self::run), [`plan`](Self::plan) or [`record`](Self::record).
#[must_use = "nothing happens before `run`, `plan` or `record`"]
pub struct Call<'r, P: Producer> {
    runner: &'r mut GraphRunner<P>,
    variant: P::Variant,
    stream: Option<&'r Stream>,
    policy: Policy,
    sync: bool,
}

impl<'r, P: Producer> Call<'r, P> {
    pub(super) fn new(runner: &'r mut GraphRunner<P>) -> Self {
        let variant = runner.default_variant.clone();
        Self { runner, variant, stream: None, policy: Policy::Auto, sync: false }
    }

    /// Which body is meant; the default variant if this is not called.
    pub fn variant(mut self, variant: P::Variant) -> Self {
        self.variant = variant;
        self
    }

    /// The stream of this call, before all others (S15). A host device ignores it.
    pub fn on(mut self, stream: &'r Stream) -> Self {
        self.stream = Some(stream);
        self
    }

    /// The policy of this call.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Whether to wait for the call's stream afterwards (S33): not done when recording, nor while a
    /// foreign framework captures in this thread.
    pub fn sync(mut self, sync: bool) -> Self {
        self.sync = sync;
        self
    }

    /// Runs the body once under the execution policy.
    ///
    /// # Errors
    ///
    /// A refusal, before anything was launched: [`Error::NotCapturable`],
    /// [`Error::LegacyStream`], [`Error::Invalidated`], [`Error::ImplicitCapture`],
    /// [`Error::NotPrepared`], [`Error::Capture`], [`Error::WrongDevice`],
    /// [`Error::PreviousStreamCapturing`]. Or a failure of the body, of its capture
    /// ([`Error::BodyBrokeCapture`], [`Error::EmptyCapture`]) or of the driver.
    pub fn run(self) -> Result<Run> {
        let stream = self.runner.resolve(self.stream)?;
        let ran = self.runner.run_on(&stream, &self.variant, self.policy);
        let sealed = self.runner.seal();
        let (mode, reason) = ran?;
        sealed?;
        self.runner.stats.note(reason);
        note_downgrade::<P>(reason);
        if self.sync && mode != Mode::Record && foreign_capture(&self.runner.device).is_none() {
            let device = self.runner.device.clone();
            let _passage = self.runner.passage(&device, &stream);
            stream.synchronize()?;
        }
        Ok(Run { mode, reason, stream })
    }

    /// What [`run`](Self::run) would do now, or the refusal that it would give; runs nothing (S8).
    ///
    /// # Errors
    ///
    /// The refusal.
    pub fn plan(self) -> Result<Plan> {
        self.runner.plan_for(self.stream, &self.variant, self.policy)
    }

    /// Records the body once into the caller's capture (S1).
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] for another device's capture, [`Error::Invalidated`] for one that is
    /// broken, or a failure of the body. The capture stays the caller's to end.
    pub fn record(self, capture: &mut Capture<'_>) -> Result<Run>
    where
        P: Capturable,
    {
        let runner = self.runner;
        let stream = capture.stream().clone();
        runner.device.check_stream(&stream, "the capture")?;
        if stream.state()? == StreamState::Invalidated {
            return Err(refusal(runner, Refusal::Invalidated, &self.variant));
        }
        let parts = 0..runner.bodies.infos.len();
        runner.bodies.run_parts(parts, &self.variant, &stream, capture.trace(), true)?;
        runner.stats.note(Reason::CallerCapture);
        Ok(Run { mode: Mode::Record, reason: Reason::CallerCapture, stream })
    }
}

impl<P: Producer> std::fmt::Debug for Call<'_, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call")
            .field("producer", &P::NAME)
            .field("variant", &self.variant)
            .field("stream", &self.stream)
            .field("policy", &self.policy)
            .field("sync", &self.sync)
            .finish_non_exhaustive()
    }
}

impl<P: Producer> GraphRunner<P> {
    fn resolve(&self, explicit: Option<&Stream>) -> Result<Stream> {
        resolve(&self.device, explicit, self.default_stream.as_ref())
    }

    pub(super) fn plan_for(
        &self,
        explicit: Option<&Stream>,
        variant: &P::Variant,
        policy: Policy,
    ) -> Result<Plan> {
        let stream = self.resolve(explicit)?;
        let _passage = self.passage(&self.device, &stream);
        let facts = self.facts(&stream, variant, policy)?;
        let (mode, reason) = match decide(&facts) {
            Decision::Record => (Mode::Record, Reason::CallerCapture),
            Decision::Eager(reason) => (Mode::Eager, reason),
            Decision::Prepare => (Mode::Eager, Reason::Prepared),
            Decision::Replay { segmented, capture } => (replayed(segmented), captured(capture)),
            Decision::Refuse(why) => return Err(refusal(self, why, variant)),
        };
        Ok(Plan { mode, reason, stream })
    }

    fn run_on(
        &mut self,
        stream: &Stream,
        variant: &P::Variant,
        policy: Policy,
    ) -> Result<(Mode, Reason)> {
        let device = self.device.clone();
        // Decided under the lock where there is one to take: a legacy capture on the current stream
        // must not be mistaken for the caller's (S27).
        let passage = self.passage(&device, stream);
        let facts = self.facts(stream, variant, policy)?;
        match decide(&facts) {
            Decision::Refuse(why) => Err(refusal(self, why, variant)),
            Decision::Record => {
                self.record_on(stream, variant)?;
                Ok((Mode::Record, Reason::CallerCapture))
            }
            Decision::Prepare => {
                self.prepare_on(stream)?;
                Ok((Mode::Eager, Reason::Prepared))
            }
            Decision::Eager(reason) => {
                if reason == Reason::VariantLimit {
                    self.warn_of_limit();
                }
                self.run_eager(stream, variant)?;
                Ok((Mode::Eager, reason))
            }
            Decision::Replay { segmented, capture } => {
                if capture && !self.capture_graphs(variant, facts.default_variant)? {
                    let reason = match self.cache.state(variant, facts.default_variant) {
                        Cached::GivenUp => Reason::GivenUp,
                        _ => Reason::CaptureBroken,
                    };
                    self.run_eager(stream, variant)?;
                    return Ok((Mode::Eager, reason));
                }
                self.order(stream)?;
                if segmented {
                    drop(passage);
                    self.replay_parts(stream, variant, facts.default_variant)?;
                } else {
                    self.replay_whole(stream, variant, facts.default_variant)?;
                }
                Ok((replayed(segmented), captured(capture)))
            }
        }
    }

    /// What this call holds while it decides and enqueues (S26).
    pub(super) fn passage(&self, device: &Device, stream: &Stream) -> Passage {
        if device.kind() == DeviceKind::Host {
            Passage::Elsewhere
        } else if self.pending.is_some() {
            Passage::Locked(Serial::take())
        } else {
            // Preparing waits for the current stream, legacy code runs there, and a call behind one that
            // ran there is ordered after it, wherever the call itself goes.
            let behind = self.last.as_ref().is_some_and(|last| device.is_current(&last.stream));
            let touches = !self.prepared || self.body.legacy || behind || device.is_current(stream);
            Passage::enter(device, touches)
        }
    }

    fn facts(&self, stream: &Stream, variant: &P::Variant, policy: Policy) -> Result<Facts> {
        let graphs = self.device.kind() != DeviceKind::Host;
        let state = stream.state()?;
        let idle = state == StreamState::Idle;
        let default_variant = *variant == self.default_variant;
        let on_current = !graphs || self.device.is_current(stream);
        let ask_current = graphs && idle && self.body.legacy && !on_current;
        Ok(Facts {
            graphs,
            body: self.body,
            stream: state,
            on_current,
            current_capturing: ask_current && self.device.current_stream().is_capturing()?,
            previous: if idle { self.previous(stream)? } else { Previous::Orderable },
            policy,
            default_variant,
            cached: self.cache.state(variant, default_variant),
            room: self.cache.room(),
            prepared: self.prepared,
            open: if graphs && idle && !self.prepared {
                open_capture(&self.device, stream)?
            } else {
                None
            },
        })
    }

    fn record_on(&mut self, stream: &Stream, variant: &P::Variant) -> Result<()> {
        let mut trace = Trace::keeping();
        let parts = 0..self.bodies.infos.len();
        let ran = self.bodies.run_parts(parts, variant, stream, &mut trace, true);
        // Also after a failure: the nodes that were recorded stay in the caller's graph.
        let anchored = anchor(stream, trace.keep.unwrap_or_default());
        ran.and(anchored)
    }

    pub(super) fn run_eager(&mut self, stream: &Stream, variant: &P::Variant) -> Result<()> {
        self.order(stream)?;
        let mut trace = Trace::default();
        for index in 0..self.bodies.infos.len() {
            self.run_part_now(index, stream, variant, &mut trace)?;
        }
        Ok(())
    }

    /// Runs one part for real; legacy code on the current stream, between events (S25).
    fn run_part_now(
        &mut self,
        index: usize,
        stream: &Stream,
        variant: &P::Variant,
        trace: &mut Trace,
    ) -> Result<()> {
        let legacy = matches!(self.bodies.infos[index].class, PartClass::Legacy { .. });
        // A host device has one stream and its captures are the thread's own.
        let capturing = self.device.kind() == DeviceKind::Host && stream.is_capturing()?;
        if !legacy || self.device.kind() == DeviceKind::Host {
            return self.bodies.run_part(index, variant, stream, trace, capturing);
        }
        let _serial = Serial::take();
        let current = self.device.current_stream();
        if current == *stream {
            return self.bodies.run_part(index, variant, stream, trace, false);
        }
        if current.is_capturing()? {
            return Err(refusal(self, Refusal::LegacyIntoCapture, variant));
        }
        current.wait_for(stream)?;
        let ran = self.bodies.run_part(index, variant, &current, trace, false);
        // Also after a failure: part of the work may be on its way.
        let ordered = stream.wait_for(&current);
        ran.and(ordered)
    }

    fn replay_whole(&mut self, stream: &Stream, variant: &P::Variant, default: bool) -> Result<()> {
        let Some(Graphs::Whole(graph)) = self.cache.get(variant, default) else {
            unreachable!("a whole body's graphs are one, and were found or captured just now")
        };
        graph.launch_unchecked(stream).map_err(launch_failed::<P>)
    }

    fn replay_parts(&mut self, stream: &Stream, variant: &P::Variant, default: bool) -> Result<()> {
        let device = self.device.clone();
        let mut trace = Trace::default();
        for index in 0..self.bodies.infos.len() {
            let Some(Graphs::Parts(graphs)) = self.cache.get(variant, default) else {
                unreachable!("a segmented body's graphs are by part, and were found just now")
            };
            match &graphs[index] {
                Some(graph) => {
                    let _passage = self.passage(&device, stream);
                    graph.launch_unchecked(stream).map_err(launch_failed::<P>)?;
                }
                None => {
                    let legacy = matches!(self.bodies.infos[index].class, PartClass::Legacy { .. });
                    let _passage =
                        if legacy { Passage::Elsewhere } else { self.passage(&device, stream) };
                    self.run_part_now(index, stream, variant, &mut trace)?;
                }
            }
        }
        Ok(())
    }

    fn warn_of_limit(&mut self) {
        if !self.limit_warned {
            self.limit_warned = true;
            warn(&Warning::VariantLimit { producer: P::NAME, limit: self.cache.limit() });
        }
    }
}

fn replayed(segmented: bool) -> Mode {
    if segmented { Mode::Segmented } else { Mode::SelfGraph }
}

fn captured(capture: bool) -> Reason {
    if capture { Reason::Captured } else { Reason::Replayed }
}

fn launch_failed<P: Producer>(error: Error) -> Error {
    Error::Step { producer: P::NAME, step: "launching a captured graph", source: Box::new(error) }
}

/// A capture that forbids construction and preparing (S18).
pub(super) fn open_capture(device: &Device, resolved: &Stream) -> Result<Option<OpenCapture>> {
    if device.kind() == DeviceKind::Host {
        return Ok(resolved.is_capturing()?.then_some(OpenCapture::Host));
    }
    if resolved.is_capturing()? {
        return Ok(Some(OpenCapture::Resolved));
    }
    if !device.is_current(resolved) && device.current_stream().is_capturing()? {
        return Ok(Some(OpenCapture::Current));
    }
    Ok(foreign_capture(device).map(|_| OpenCapture::Foreign))
}

pub(super) fn refusal<P: Producer>(
    runner: &GraphRunner<P>,
    why: Refusal,
    variant: &P::Variant,
) -> Error {
    let producer = P::NAME;
    match why {
        Refusal::Invalidated => Error::Invalidated { subject: format!("running `{producer}`") },
        Refusal::Implicit => Error::ImplicitCapture { subject: format!("running `{producer}`") },
        Refusal::NotCapturable => {
            Error::NotCapturable { producer, host_stages: runner.bodies.host_stages() }
        }
        Refusal::LegacyElsewhere => Error::LegacyStream {
            producer,
            detail: "so it cannot be recorded into the capture of another stream: make that stream \
                     current with `Device::set_current_stream` for the capture, or run it outside",
        },
        Refusal::LegacyIntoCapture => Error::LegacyStream {
            producer,
            detail: "which is being captured now, while this call is for another stream: its \
                     launches would land in that capture. Run it after the capture has ended, or \
                     make another stream current",
        },
        Refusal::PreviousCapturing => Error::PreviousStreamCapturing { producer },
        Refusal::NotPrepared => Error::NotPrepared { producer, variant: format!("{variant:?}") },
        Refusal::Open(open) => Error::Capture { subject: format!("preparing `{producer}`"), open },
    }
}

#[cfg(feature = "tracing")]
fn note_downgrade<P: Producer>(reason: Reason) {
    if reason.is_downgrade() {
        tracing::debug!(target: "graph_runner", producer = P::NAME, %reason, "ran eagerly");
    }
}

#[cfg(not(feature = "tracing"))]
fn note_downgrade<P: Producer>(_reason: Reason) {}
