//! The mode decision against a table written by hand from the rules: every combination of facts is
//! met by exactly one row, and decided as that row says.

use super::mode::{Body, Cached, Decision, Facts, Policy, Previous, Reason, Refusal, decide};
use crate::device::StreamState;
use crate::error::OpenCapture;

/// A row: the rule, what it applies to, and the outcome. A column that is not named is any; a
/// column may have several values.
///
/// ```text
/// dev     host gpu
/// body    cap          one capturable body
///         seg          HOST stages
///         leg          legacy code that can be captured
///         nleg         legacy code that cannot
///         segleg       HOST stages and legacy code that can be captured
///         seghost      legacy code as a HOST segment beside device parts
///         segboth      both of these
/// stream  idle capturing invalid implicit
/// at      current elsewhere      where the call resolved to
/// current free capturing         the current stream
/// prev    ok capturing           the stream of the runner's last call
/// policy  auto eager
/// variant default other
/// cache   yes no given-up
/// room    yes no
/// prep    yes no
/// open    none some              a capture that forbids preparing
/// ```
const TABLE: &[(&str, &str, Decision)] = &[
    ("S7", "stream=invalid", Decision::Refuse(Refusal::Invalidated)),
    ("S6", "stream=implicit", Decision::Refuse(Refusal::Implicit)),
    ("S1", "stream=capturing body=cap", Decision::Record),
    ("S1", "stream=capturing body=leg at=current", Decision::Record),
    ("S13", "stream=capturing body=leg at=elsewhere", Decision::Refuse(Refusal::LegacyElsewhere)),
    (
        "S13",
        "stream=capturing body=seg,nleg,segleg,seghost,segboth",
        Decision::Refuse(Refusal::NotCapturable),
    ),
    ("S17", "stream=idle prev=capturing", Decision::Refuse(Refusal::PreviousCapturing)),
    ("S2", "stream=idle prev=ok dev=host", Decision::Eager(Reason::HostDevice)),
    // A GPU, outside any capture, with the caller's policy to be eager.
    (
        "S2",
        "stream=idle prev=ok dev=gpu policy=eager body=cap,seg",
        Decision::Eager(Reason::Policy),
    ),
    (
        "S2",
        "stream=idle prev=ok dev=gpu policy=eager body=leg,nleg,segleg,seghost,segboth current=free",
        Decision::Eager(Reason::Policy),
    ),
    (
        "S25",
        "stream=idle prev=ok dev=gpu policy=eager body=leg,nleg,segleg,seghost,segboth \
         current=capturing",
        Decision::Refuse(Refusal::LegacyIntoCapture),
    ),
    // From here on: a GPU, outside any capture, graphs wanted. First what never gets graphs.
    (
        "S24",
        "stream=idle prev=ok dev=gpu policy=auto body=nleg current=free",
        Decision::Eager(Reason::LegacyNotCapturable),
    ),
    (
        "S24",
        "stream=idle prev=ok dev=gpu policy=auto body=leg,segleg,segboth variant=other current=free",
        Decision::Eager(Reason::LegacyVariant),
    ),
    (
        "S25",
        "stream=idle prev=ok dev=gpu policy=auto body=nleg current=capturing",
        Decision::Refuse(Refusal::LegacyIntoCapture),
    ),
    (
        "S25",
        "stream=idle prev=ok dev=gpu policy=auto body=leg,segleg,segboth variant=other \
         current=capturing",
        Decision::Refuse(Refusal::LegacyIntoCapture),
    ),
    // Known graphs.
    (
        "S3",
        "stream=idle prev=ok dev=gpu policy=auto body=cap cache=yes",
        Decision::Replay { segmented: false, capture: false },
    ),
    (
        "S24",
        "stream=idle prev=ok dev=gpu policy=auto body=leg variant=default cache=yes",
        Decision::Replay { segmented: false, capture: false },
    ),
    (
        "S4",
        "stream=idle prev=ok dev=gpu policy=auto body=seg cache=yes",
        Decision::Replay { segmented: true, capture: false },
    ),
    (
        "S24",
        "stream=idle prev=ok dev=gpu policy=auto body=segleg variant=default cache=yes",
        Decision::Replay { segmented: true, capture: false },
    ),
    (
        "S14",
        "stream=idle prev=ok dev=gpu policy=auto body=seghost cache=yes current=free",
        Decision::Replay { segmented: true, capture: false },
    ),
    (
        "S14",
        "stream=idle prev=ok dev=gpu policy=auto body=segboth variant=default cache=yes \
         current=free",
        Decision::Replay { segmented: true, capture: false },
    ),
    (
        "S25",
        "stream=idle prev=ok dev=gpu policy=auto body=seghost cache=yes current=capturing",
        Decision::Refuse(Refusal::LegacyIntoCapture),
    ),
    (
        "S25",
        "stream=idle prev=ok dev=gpu policy=auto body=segboth variant=default cache=yes \
         current=capturing",
        Decision::Refuse(Refusal::LegacyIntoCapture),
    ),
    // Graphs that other threads broke in too many calls.
    (
        "S21",
        "stream=idle prev=ok dev=gpu policy=auto body=cap,seg cache=given-up",
        Decision::Eager(Reason::GivenUp),
    ),
    (
        "S21",
        "stream=idle prev=ok dev=gpu policy=auto body=seghost cache=given-up current=free",
        Decision::Eager(Reason::GivenUp),
    ),
    (
        "S21",
        "stream=idle prev=ok dev=gpu policy=auto body=leg,segleg,segboth variant=default \
         cache=given-up current=free",
        Decision::Eager(Reason::GivenUp),
    ),
    (
        "S25",
        "stream=idle prev=ok dev=gpu policy=auto body=seghost cache=given-up current=capturing",
        Decision::Refuse(Refusal::LegacyIntoCapture),
    ),
    (
        "S25",
        "stream=idle prev=ok dev=gpu policy=auto body=leg,segleg,segboth variant=default \
         cache=given-up current=capturing",
        Decision::Refuse(Refusal::LegacyIntoCapture),
    ),
    // No graphs yet, and not prepared.
    (
        "S19",
        "stream=idle prev=ok dev=gpu policy=auto body=cap,seg,seghost variant=other cache=no prep=no",
        Decision::Refuse(Refusal::NotPrepared),
    ),
    (
        "S18",
        "stream=idle prev=ok dev=gpu policy=auto body=cap,seg,leg,segleg,seghost,segboth \
         variant=default cache=no prep=no open=some",
        Decision::Refuse(Refusal::Open(OpenCapture::Current)),
    ),
    (
        "S19",
        "stream=idle prev=ok dev=gpu policy=auto body=cap,seg,leg,segleg,seghost,segboth \
         variant=default cache=no prep=no open=none",
        Decision::Prepare,
    ),
    // No graphs yet, prepared.
    (
        "S20",
        "stream=idle prev=ok dev=gpu policy=auto body=cap,seg variant=other cache=no prep=yes \
         room=no",
        Decision::Eager(Reason::VariantLimit),
    ),
    (
        "S20",
        "stream=idle prev=ok dev=gpu policy=auto body=seghost variant=other cache=no prep=yes \
         room=no current=free",
        Decision::Eager(Reason::VariantLimit),
    ),
    (
        "S25",
        "stream=idle prev=ok dev=gpu policy=auto body=seghost variant=other cache=no prep=yes \
         room=no current=capturing",
        Decision::Refuse(Refusal::LegacyIntoCapture),
    ),
    (
        "S3",
        "stream=idle prev=ok dev=gpu policy=auto body=cap variant=other cache=no prep=yes room=yes",
        Decision::Replay { segmented: false, capture: true },
    ),
    (
        "S3",
        "stream=idle prev=ok dev=gpu policy=auto body=cap variant=default cache=no prep=yes",
        Decision::Replay { segmented: false, capture: true },
    ),
    (
        "S4",
        "stream=idle prev=ok dev=gpu policy=auto body=seg variant=other cache=no prep=yes room=yes",
        Decision::Replay { segmented: true, capture: true },
    ),
    (
        "S4",
        "stream=idle prev=ok dev=gpu policy=auto body=seg variant=default cache=no prep=yes",
        Decision::Replay { segmented: true, capture: true },
    ),
    (
        "S24",
        "stream=idle prev=ok dev=gpu policy=auto body=leg variant=default cache=no prep=yes \
         current=free",
        Decision::Replay { segmented: false, capture: true },
    ),
    (
        "S24",
        "stream=idle prev=ok dev=gpu policy=auto body=segleg,segboth variant=default cache=no \
         prep=yes current=free",
        Decision::Replay { segmented: true, capture: true },
    ),
    (
        "S25",
        "stream=idle prev=ok dev=gpu policy=auto body=leg,segleg,segboth variant=default cache=no \
         prep=yes current=capturing",
        Decision::Refuse(Refusal::LegacyIntoCapture),
    ),
    (
        "S14",
        "stream=idle prev=ok dev=gpu policy=auto body=seghost variant=default cache=no prep=yes \
         current=free",
        Decision::Replay { segmented: true, capture: true },
    ),
    (
        "S14",
        "stream=idle prev=ok dev=gpu policy=auto body=seghost variant=other cache=no prep=yes \
         room=yes current=free",
        Decision::Replay { segmented: true, capture: true },
    ),
    (
        "S25",
        "stream=idle prev=ok dev=gpu policy=auto body=seghost variant=default cache=no prep=yes \
         current=capturing",
        Decision::Refuse(Refusal::LegacyIntoCapture),
    ),
    (
        "S25",
        "stream=idle prev=ok dev=gpu policy=auto body=seghost variant=other cache=no prep=yes \
         room=yes current=capturing",
        Decision::Refuse(Refusal::LegacyIntoCapture),
    ),
];

const COLUMNS: [(&str, &[&str]); 12] = [
    ("dev", &["host", "gpu"]),
    ("body", &["cap", "seg", "leg", "nleg", "segleg", "seghost", "segboth"]),
    ("stream", &["idle", "capturing", "invalid", "implicit"]),
    ("at", &["current", "elsewhere"]),
    ("current", &["free", "capturing"]),
    ("prev", &["ok", "capturing"]),
    ("policy", &["auto", "eager"]),
    ("variant", &["default", "other"]),
    ("cache", &["yes", "no", "given-up"]),
    ("room", &["yes", "no"]),
    ("prep", &["yes", "no"]),
    ("open", &["none", "some"]),
];

type Values = [&'static str; COLUMNS.len()];

fn column(name: &str) -> usize {
    COLUMNS.iter().position(|(column, _)| *column == name).expect("a known column")
}

fn combinations() -> Vec<Values> {
    COLUMNS.iter().enumerate().fold(vec![[""; COLUMNS.len()]], |all, (index, (_, values))| {
        let with = |values: Values, value| {
            let mut values = values;
            values[index] = value;
            values
        };
        all.iter().flat_map(|&row| values.iter().map(move |&value| with(row, value))).collect()
    })
}

fn matches(pattern: &str, values: &Values) -> bool {
    pattern.split_whitespace().all(|condition| {
        let (name, allowed) = condition.split_once('=').expect("column=values");
        let index = column(name);
        for value in allowed.split(',') {
            assert!(COLUMNS[index].1.contains(&value), "no value {value} of {name}");
        }
        allowed.split(',').any(|value| value == values[index])
    })
}

fn body(name: &str) -> Body {
    let has = |names: &[&str]| names.contains(&name);
    Body {
        recordable: has(&["cap", "leg"]),
        segmented: has(&["seg", "nleg", "segleg", "seghost", "segboth"]),
        legacy: has(&["leg", "nleg", "segleg", "seghost", "segboth"]),
        graphable: !has(&["nleg"]),
        legacy_capture: has(&["leg", "segleg", "segboth"]),
        legacy_host: has(&["nleg", "seghost", "segboth"]),
    }
}

fn facts(values: &Values) -> Facts {
    let is = |name, value| values[column(name)] == value;
    Facts {
        graphs: is("dev", "gpu"),
        body: body(values[column("body")]),
        stream: match values[column("stream")] {
            "idle" => StreamState::Idle,
            "capturing" => StreamState::Capturing,
            "invalid" => StreamState::Invalidated,
            _ => StreamState::Implicit,
        },
        on_current: is("at", "current"),
        current_capturing: is("current", "capturing"),
        previous: if is("prev", "ok") { Previous::Orderable } else { Previous::OtherCapturing },
        policy: if is("policy", "auto") { Policy::Auto } else { Policy::Eager },
        default_variant: is("variant", "default"),
        cached: match values[column("cache")] {
            "yes" => Cached::Yes,
            "no" => Cached::No,
            _ => Cached::GivenUp,
        },
        room: is("room", "yes"),
        prepared: is("prep", "yes"),
        open: is("open", "some").then_some(OpenCapture::Current),
    }
}

#[test]
fn s01_to_s25_every_combination_is_decided_as_its_row_says() {
    for values in combinations() {
        let rows: Vec<_> =
            TABLE.iter().filter(|(_, pattern, _)| matches(pattern, &values)).collect();
        let [(rule, pattern, expected)] = rows[..] else {
            panic!("{values:?} is met by {} rows: {rows:#?}", rows.len());
        };
        assert_eq!(decide(&facts(&values)), *expected, "{rule} ({pattern}) for {values:?}");
    }
}

#[test]
fn s06_a_refusal_never_depends_on_the_cache() {
    for values in combinations() {
        if values[column("stream")] == "idle" {
            continue;
        }
        let mut other = values;
        for name in ["cache", "room", "prep", "variant", "policy", "open"] {
            for value in COLUMNS[column(name)].1 {
                other[column(name)] = value;
                assert_eq!(decide(&facts(&values)), decide(&facts(&other)), "{values:?} {name}");
            }
        }
    }
}
