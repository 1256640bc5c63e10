//! The runner's own captures: once for each variant, retried once when another thread broke them
//! (S3, S4, S21).

use std::ops::Range;
use std::time::{Duration, Instant};

use super::GraphRunner;
use super::cache::Graphs;
use super::legacy::{Serial, wait_for_landing};
use crate::capture::OpenGuard;
use crate::context::{Trace, enqueued};
use crate::device::{CaptureMode, DriverCode, DriverError, Graph, Stream, StreamState};
use crate::drive::PartClass;
use crate::error::{Error, Result};
use crate::producer::Producer;
use crate::warning::{Warning, warn};

/// How one capture went.
enum Attempt {
    Captured(Graph),
    /// Broken by a call that captures forbid: whose, is not known.
    Broken(Break),
}

/// Where a capture was found broken.
#[derive(PartialEq)]
struct Break {
    part: &'static str,
    place: String,
    error: DriverError,
}

impl<P: Producer> GraphRunner<P> {
    /// Captures all graphs of a variant before anything is launched. `false` if other threads broke
    /// the captures: then nothing is kept, and the call runs eagerly.
    pub(super) fn capture_graphs(&mut self, variant: &P::Variant, default: bool) -> Result<bool> {
        let count = self.bodies.infos.len();
        let captured = if self.body.segmented {
            let mut graphs = Vec::with_capacity(count);
            let mut whole = true;
            for index in 0..count {
                let graph = match self.bodies.infos[index].class {
                    PartClass::Host | PartClass::Legacy { capturable: false } => None,
                    class => match self.capture_unit(index..index + 1, class, variant)? {
                        None => {
                            whole = false;
                            break;
                        }
                        graph => graph,
                    },
                };
                graphs.push(graph);
            }
            whole.then_some(Graphs::Parts(graphs))
        } else {
            let class = if self.body.legacy_capture {
                PartClass::Legacy { capturable: true }
            } else {
                PartClass::Device
            };
            self.capture_unit(0..count, class, variant)?.map(Graphs::Whole)
        };
        let Some(graphs) = captured else {
            if self.cache.note_broken(variant) {
                self.pending = None;
                warn(&Warning::GivenUp { producer: P::NAME, variant: format!("{variant:?}") });
            }
            return Ok(false);
        };
        self.cache.insert(variant, default, graphs);
        self.pending = None;
        Ok(true)
    }

    /// Captures the parts of `range` into one graph; `None` if other threads broke it twice.
    fn capture_unit(
        &mut self,
        range: Range<usize>,
        class: PartClass,
        variant: &P::Variant,
    ) -> Result<Option<Graph>> {
        let (stream, _serial) = if class == PartClass::Device {
            (self.private_stream()?, Serial::none())
        } else {
            // Legacy code can be captured where it launches alone (S24), and no call of another
            // thread may meet that capture (S27).
            let serial = Serial::take();
            wait_for_landing();
            (self.device.current_stream(), serial)
        };
        let began = Instant::now();
        let mut breaks = Vec::new();
        while breaks.len() < 3 {
            match self.attempt(range.clone(), variant, &stream) {
                Ok(Attempt::Captured(graph)) if breaks.len() < 2 => {
                    self.stats.graphs += 1;
                    return Ok(Some(graph));
                }
                // The third attempt only tells whose fault the first two were.
                Ok(Attempt::Captured(_)) => return Ok(None),
                Ok(Attempt::Broken(broken)) => {
                    self.stats.broken_captures += 1;
                    breaks.push(broken);
                    if breaks.len() == 2 && breaks[0] != breaks[1] {
                        return Ok(None);
                    }
                }
                Err(error) => {
                    self.stats.failed_captures += 1;
                    return Err(error);
                }
            }
        }
        let same = breaks.windows(2).all(|pair| pair[0] == pair[1]);
        if !same || disturbed(&self.private_stream()?, began.elapsed())? {
            return Ok(None);
        }
        self.stats.failed_captures += 1;
        let broken = breaks.swap_remove(0);
        Err(Error::BodyBrokeCapture {
            producer: P::NAME,
            part: broken.part.into(),
            place: broken.place,
            source: broken.error,
        })
    }

    fn attempt(
        &mut self,
        range: Range<usize>,
        variant: &P::Variant,
        stream: &Stream,
    ) -> Result<Attempt> {
        let step =
            |step| move |error| Error::Step { producer: P::NAME, step, source: Box::new(error) };
        let part = self.bodies.infos[range.start].name;
        let mut trace = Trace::keeping();
        let open = OpenGuard::begin(stream, CaptureMode::ThreadLocal)
            .map_err(step("beginning a capture"))?;
        let before = enqueued();
        let ran = self.bodies.run_parts(range, variant, stream, &mut trace, true);
        let enqueued = enqueued().wrapping_sub(before);
        let template = match ran {
            Ok(()) => open.end(),
            Err(error) => {
                drop(open);
                Err(error)
            }
        };
        let invalidated = |error: &Error| {
            matches!(error.root(), Error::Invalidated { .. })
                || error.driver().is_some_and(|e| e.code() == DriverCode::CaptureInvalidated)
        };
        let template = match template {
            Ok(template) => template,
            Err(error) if uses_the_legacy_stream(&error) => {
                return Err(Error::LegacyDefaultStream { producer: P::NAME, part: part.into() });
            }
            Err(error) if invalidated(&error) => {
                return Ok(Attempt::Broken(Break::found(part, &trace, &error)));
            }
            Err(error) => return Err(explained::<P>(part, error)),
        };
        let took_stream = trace.took_stream;
        let graph = Graph::instantiate(stream.driver(), template, trace.keep.unwrap_or_default())
            .map_err(step("instantiating a captured graph"))?;
        if graph.nodes() < enqueued || took_stream && graph.nodes() == 0 {
            return Err(Error::EmptyCapture {
                producer: P::NAME,
                part: part.into(),
                enqueued,
                nodes: graph.nodes(),
            });
        }
        Ok(Attempt::Captured(graph))
    }
}

impl Break {
    fn found(part: &'static str, trace: &Trace, error: &Error) -> Self {
        let error = error.driver().cloned().unwrap_or_else(|| {
            DriverError::new("cuStreamIsCapturing", DriverCode::CaptureInvalidated)
        });
        match &trace.failed {
            Some(failed) => Self {
                part: failed.part,
                place: format!("before operation {} ({})", failed.index, failed.operation),
                error,
            },
            None => Self { part, place: "after its last operation".into(), error },
        }
    }
}

/// Whether a body's error is CUDA's answer to a use of the legacy default stream in a capture.
fn uses_the_legacy_stream(error: &Error) -> bool {
    matches!(error.root(), Error::ImplicitCapture { .. })
        || error.driver().is_some_and(|e| e.code() == DriverCode::CaptureImplicit)
}

/// Names the part for an error of `cuStreamEndCapture` that is the body's doing.
fn explained<P: Producer>(part: &str, error: Error) -> Error {
    match error {
        Error::Driver(source) if source.code() == DriverCode::CaptureUnjoined => {
            Error::BodyBrokeCapture {
                producer: P::NAME,
                part: part.into(),
                place: "by work on another stream that never joins again".into(),
                source,
            }
        }
        Error::Driver(_) => {
            Error::Step { producer: P::NAME, step: "ending a capture", source: Box::new(error) }
        }
        error => error,
    }
}

/// Whether other threads break captures now: an empty capture, held open about as long as the
/// attempts took, is broken too.
fn disturbed(stream: &Stream, attempts: Duration) -> Result<bool> {
    let hold = attempts.clamp(Duration::from_micros(200), Duration::from_millis(20));
    let open = OpenGuard::begin(stream, CaptureMode::ThreadLocal)?;
    let began = Instant::now();
    let mut broken = false;
    while !broken && began.elapsed() < hold {
        broken = stream.state()? == StreamState::Invalidated;
        std::hint::spin_loop();
    }
    drop(open);
    Ok(broken)
}
