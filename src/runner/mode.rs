//! The mode decision (S1 to S4, S6, S13, S18 to S21, S25): a pure function of plain data.

use std::fmt;

use crate::device::StreamState;
use crate::error::OpenCapture;

/// How one call runs (S1 to S4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Mode {
    /// Enqueued once into the caller's capture.
    Record,
    /// The body runs now.
    Eager,
    /// The body's own graph is launched.
    SelfGraph,
    /// HOST parts run, the other parts' graphs are launched, in order.
    Segmented,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Record => "record",
            Self::Eager => "eager",
            Self::SelfGraph => "self-graph",
            Self::Segmented => "segmented",
        })
    }
}

/// Why a call runs in its mode (S34).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// RECORD: the stream is capturing.
    CallerCapture,
    /// SELF-GRAPH or SEGMENTED: the graphs were there.
    Replayed,
    /// SELF-GRAPH or SEGMENTED: this call captured them first.
    Captured,
    /// EAGER: a host device has no graphs of its own.
    HostDevice,
    /// EAGER: the caller's policy.
    Policy,
    /// EAGER: this call was the preparing run (S19).
    Prepared,
    /// EAGER: the runner holds as many graphs for variants as it may (S20).
    VariantLimit,
    /// EAGER: other threads broke this call's captures; a later call tries again (S21).
    CaptureBroken,
    /// EAGER: captures of this variant were broken in three calls; it stays eager (S21).
    GivenUp,
    /// EAGER: a legacy producer captures its default variant only (S24).
    LegacyVariant,
    /// EAGER: a legacy producer that cannot be captured.
    LegacyNotCapturable,
}

impl Reason {
    pub(crate) const ALL: [Self; 11] = [
        Self::CallerCapture,
        Self::Replayed,
        Self::Captured,
        Self::HostDevice,
        Self::Policy,
        Self::Prepared,
        Self::VariantLimit,
        Self::CaptureBroken,
        Self::GivenUp,
        Self::LegacyVariant,
        Self::LegacyNotCapturable,
    ];

    /// Whether the call ran eagerly although graphs were wanted.
    #[must_use]
    pub fn is_downgrade(self) -> bool {
        matches!(
            self,
            Self::VariantLimit
                | Self::CaptureBroken
                | Self::GivenUp
                | Self::LegacyVariant
                | Self::LegacyNotCapturable
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::CallerCapture => "the stream is capturing",
            Self::Replayed => "its graphs were captured before",
            Self::Captured => "its graphs were captured by this call",
            Self::HostDevice => "a host device runs as it enqueues",
            Self::Policy => "the policy asks for it",
            Self::Prepared => "the first run prepares",
            Self::VariantLimit => "the runner holds as many variants' graphs as it may",
            Self::CaptureBroken => "another thread broke its captures",
            Self::GivenUp => "other threads broke its captures in three calls",
            Self::LegacyVariant => "a legacy producer captures its default variant only",
            Self::LegacyNotCapturable => "it is a legacy producer that cannot be captured",
        })
    }
}

/// What a caller asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Policy {
    /// Graphs where they can be.
    #[default]
    Auto,
    /// No graphs of the runner's own. A capturing stream still means RECORD (S2).
    Eager,
}

/// What a body is made of, as far as the mode goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Body {
    /// Whether it may be recorded into a caller's capture.
    pub(crate) recordable: bool,
    /// Whether its parts have graphs of their own, instead of one for the whole.
    pub(crate) segmented: bool,
    /// Whether it has legacy code.
    pub(crate) legacy: bool,
    /// Whether some of it can be in a graph.
    pub(crate) graphable: bool,
    /// Whether legacy code of it is captured, on the current stream.
    pub(crate) legacy_capture: bool,
    /// Whether legacy code of it runs as a HOST segment, on every call.
    pub(crate) legacy_host: bool,
}

/// What the cache has for the call's variant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Cached {
    /// Its graphs.
    Yes,
    /// Nothing yet.
    No,
    /// Nothing, and no more attempts.
    GivenUp,
}

/// Where the runner's last call went.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Previous {
    /// Nowhere, or to the same stream, or to one whose work can be waited for.
    Orderable,
    /// To another stream that is capturing now.
    OtherCapturing,
}

/// All that a decision rests on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Facts {
    /// Whether the device replays graphs: all but the host.
    pub(crate) graphs: bool,
    pub(crate) body: Body,
    pub(crate) stream: StreamState,
    /// Whether the resolved stream is the device's current stream.
    pub(crate) on_current: bool,
    /// Whether the current stream is capturing.
    pub(crate) current_capturing: bool,
    pub(crate) previous: Previous,
    pub(crate) policy: Policy,
    pub(crate) default_variant: bool,
    pub(crate) cached: Cached,
    /// Whether a further variant may get graphs.
    pub(crate) room: bool,
    pub(crate) prepared: bool,
    /// A capture that forbids preparing.
    pub(crate) open: Option<OpenCapture>,
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Decision {
    Record,
    Eager(Reason),
    /// Run the body once for real, which is this call's run (S19).
    Prepare,
    /// Launch the graphs, after capturing them if they are not there.
    Replay {
        segmented: bool,
        capture: bool,
    },
    Refuse(Refusal),
}

/// Why not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Refusal {
    Invalidated,
    Implicit,
    NotCapturable,
    /// The call's stream captures and legacy code would launch elsewhere.
    LegacyElsewhere,
    /// The current stream captures and legacy code would land in that.
    LegacyIntoCapture,
    PreviousCapturing,
    NotPrepared,
    Open(OpenCapture),
}

/// Decides how one call runs.
pub(crate) fn decide(facts: &Facts) -> Decision {
    match facts.stream {
        StreamState::Invalidated => return Decision::Refuse(Refusal::Invalidated),
        StreamState::Implicit => return Decision::Refuse(Refusal::Implicit),
        StreamState::Capturing if !facts.body.recordable => {
            return Decision::Refuse(Refusal::NotCapturable);
        }
        StreamState::Capturing if facts.body.legacy && !facts.on_current => {
            return Decision::Refuse(Refusal::LegacyElsewhere);
        }
        StreamState::Capturing => return Decision::Record,
        StreamState::Idle => {}
    }
    if facts.previous == Previous::OtherCapturing {
        return Decision::Refuse(Refusal::PreviousCapturing);
    }
    if !facts.graphs {
        return Decision::Eager(Reason::HostDevice);
    }
    let decision = decide_with_graphs(facts);
    let launches_legacy = match decision {
        Decision::Eager(_) => facts.body.legacy,
        Decision::Replay { capture, .. } => {
            facts.body.legacy_host || facts.body.legacy_capture && capture
        }
        _ => false,
    };
    if launches_legacy && facts.current_capturing {
        return Decision::Refuse(Refusal::LegacyIntoCapture);
    }
    decision
}

fn decide_with_graphs(facts: &Facts) -> Decision {
    if facts.policy == Policy::Eager {
        return Decision::Eager(Reason::Policy);
    }
    if !facts.body.graphable {
        return Decision::Eager(Reason::LegacyNotCapturable);
    }
    if facts.body.legacy_capture && !facts.default_variant {
        return Decision::Eager(Reason::LegacyVariant);
    }
    let segmented = facts.body.segmented;
    match facts.cached {
        Cached::Yes => return Decision::Replay { segmented, capture: false },
        Cached::GivenUp => return Decision::Eager(Reason::GivenUp),
        Cached::No => {}
    }
    if !facts.prepared {
        return match facts.open {
            _ if !facts.default_variant => Decision::Refuse(Refusal::NotPrepared),
            Some(open) => Decision::Refuse(Refusal::Open(open)),
            None => Decision::Prepare,
        };
    }
    if !facts.default_variant && !facts.room {
        return Decision::Eager(Reason::VariantLimit);
    }
    Decision::Replay { segmented, capture: true }
}
