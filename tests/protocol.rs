//! The lock-and-pending protocol of legacy captures (S24 to S27), explored exhaustively: every
//! interleaving of a few threads, each step an atomic step of `src/runner/legacy.rs`.
//!
//! | step here | there |
//! |---|---|
//! | `Acquire` | `Serial::take`: try, else land, wait, take off again |
//! | `OnCurrent` | `Passage::enter`, the state query, the body, the enqueueing, the passage's end |
//! | `LegacyLife` | a runner from `PendingToken::new` over its preparing run and `wait_for_landing` to its capture |
//! | `LegacyEager` | eager legacy code under the lock |

use std::collections::HashSet;

/// What one thread does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Op {
    /// A call that resolves to the current stream; its body may run something else.
    OnCurrent(Option<&'static Op>),
    LegacyLife,
    LegacyEager,
    /// `serial()` held around something.
    Serial(&'static Op),
    Acquire,
}

/// The protocol, and ways to break it.
#[derive(Clone, Copy, Default)]
struct Rules {
    /// A legacy capture begins while calls fly.
    no_wait_for_landing: bool,
    /// A call ends its passage before it enqueues.
    passage_too_short: bool,
    /// A thread flies on while it waits for the lock.
    no_landing_before_the_lock: bool,
    /// Eager legacy code runs without the lock.
    eager_without_lock: bool,
    /// A call flies also when somebody is pending.
    no_look_at_pending: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    lock: Option<(usize, u8)>,
    flying: u8,
    pending: u8,
    capture: Option<usize>,
    legacy_writers: u8,
    threads: Vec<Thread>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Thread {
    own: u8,
    frames: Vec<Frame>,
    left: Vec<Op>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Frame {
    op: Op,
    at: u8,
    flies: bool,
    parked: u8,
}

const MISTAKEN: &str = "a legacy capture was taken for a caller's";
const FOREIGN_WORK: &str = "foreign work was recorded into a legacy capture";
const TWO_WRITERS: &str = "two legacy bodies wrote to the current stream at once";
const TWO_CAPTURES: &str = "the current stream was captured twice at once";
const DEADLOCK: &str = "nobody can go on";

impl State {
    fn new(scripts: &[&[Op]]) -> Self {
        let thread = |script: &&[Op]| Thread {
            left: script.iter().rev().copied().collect(),
            ..Thread::default()
        };
        Self {
            lock: None,
            flying: 0,
            pending: 0,
            capture: None,
            legacy_writers: 0,
            threads: scripts.iter().map(thread).collect(),
        }
    }

    fn push(&mut self, me: usize, op: Op) {
        self.threads[me].frames.push(Frame { op, at: 0, flies: false, parked: 0 });
    }

    fn unlock(&mut self) {
        self.lock = match self.lock {
            Some((owner, depth)) if depth > 1 => Some((owner, depth - 1)),
            _ => None,
        };
    }

    fn fly(&mut self, me: usize, by: i8) {
        let moved = |count: u8| count.checked_add_signed(by).expect("a count of landings");
        self.flying = moved(self.flying);
        self.threads[me].own = moved(self.threads[me].own);
    }

    /// One atomic step of a thread: `None` if it is done or has to wait.
    fn step(&self, me: usize, rules: Rules) -> Option<Result<State, &'static str>> {
        let mut next = self.clone();
        let Some(frame) = next.threads[me].frames.last_mut() else {
            let op = next.threads[me].left.pop()?;
            next.push(me, op);
            return Some(Ok(next));
        };
        let (op, at) = (frame.op, frame.at);
        frame.at += 1;
        let foreign_capture = self.capture.is_some_and(|owner| owner != me);
        match (op, at) {
            (Op::Acquire, 0) => match self.lock {
                None => {
                    next.lock = Some((me, 1));
                    next.threads[me].frames.pop();
                }
                Some((owner, depth)) if owner == me => {
                    next.lock = Some((me, depth + 1));
                    next.threads[me].frames.pop();
                }
                Some(_) => {}
            },
            (Op::Acquire, 1) => {
                if !rules.no_landing_before_the_lock {
                    let own = self.threads[me].own;
                    frame.parked = own;
                    next.fly(me, -(own as i8));
                }
            }
            (Op::Acquire, 2) => {
                if self.lock.is_some() {
                    return None;
                }
                next.lock = Some((me, 1));
            }
            (Op::Acquire, _) => {
                let parked = frame.parked;
                next.fly(me, parked as i8);
                next.threads[me].frames.pop();
            }

            (Op::OnCurrent(_), 0) => next.fly(me, 1),
            (Op::OnCurrent(_), 1) => {
                if self.pending == 0 || rules.no_look_at_pending {
                    frame.flies = true;
                } else {
                    next.fly(me, -1);
                    next.push(me, Op::Acquire);
                }
            }
            (Op::OnCurrent(_), 2) => {
                if foreign_capture {
                    return Some(Err(MISTAKEN));
                }
                if rules.passage_too_short {
                    next.end_passage(me);
                }
            }
            (Op::OnCurrent(inner), 3) => {
                if let Some(inner) = inner {
                    next.push(me, *inner);
                }
            }
            (Op::OnCurrent(_), 4) => {
                if foreign_capture {
                    return Some(Err(FOREIGN_WORK));
                }
            }
            (Op::OnCurrent(_), _) => {
                if !rules.passage_too_short {
                    next.end_passage(me);
                }
                next.threads[me].frames.pop();
            }

            (Op::LegacyLife, 0) => next.pending += 1,
            // The first call prepares: eager legacy code.
            (Op::LegacyLife, 1) => next.push(me, Op::LegacyEager),
            (Op::LegacyLife, 2) => next.push(me, Op::Acquire),
            (Op::LegacyLife, 3) => {
                if !rules.no_wait_for_landing && self.flying > self.threads[me].own {
                    return None;
                }
            }
            (Op::LegacyLife, 4) => {
                if self.capture.is_some() {
                    return Some(Err(TWO_CAPTURES));
                }
                next.capture = Some(me);
            }
            (Op::LegacyLife, 5) => next.capture = None,
            (Op::LegacyLife, 6) => next.pending -= 1,
            (Op::LegacyLife, _) => {
                next.unlock();
                next.threads[me].frames.pop();
            }

            (Op::LegacyEager, 0) => {
                if !rules.eager_without_lock {
                    next.push(me, Op::Acquire);
                }
            }
            (Op::LegacyEager, 1) => {
                if foreign_capture {
                    return Some(Err(FOREIGN_WORK));
                }
                next.legacy_writers += 1;
                if next.legacy_writers > 1 {
                    return Some(Err(TWO_WRITERS));
                }
            }
            (Op::LegacyEager, 2) => next.legacy_writers -= 1,
            (Op::LegacyEager, _) => {
                if !rules.eager_without_lock {
                    next.unlock();
                }
                next.threads[me].frames.pop();
            }

            (Op::Serial(_), 0) => next.push(me, Op::Acquire),
            (Op::Serial(inner), 1) => next.push(me, *inner),
            (Op::Serial(_), _) => {
                next.unlock();
                next.threads[me].frames.pop();
            }
        }
        Some(Ok(next))
    }

    fn end_passage(&mut self, me: usize) {
        let flies = self.threads[me].frames.last().is_some_and(|frame| frame.flies);
        if flies {
            self.fly(me, -1);
        } else {
            self.unlock();
        }
    }

    fn is_done(&self) -> bool {
        self.threads.iter().all(|thread| thread.frames.is_empty() && thread.left.is_empty())
    }
}

/// Explores every interleaving; gives the number of states, or the first violation.
fn explore(scripts: &[&[Op]], rules: Rules) -> Result<usize, &'static str> {
    let first = State::new(scripts);
    let mut seen = HashSet::from([first.clone()]);
    let mut open = vec![first];
    while let Some(state) = open.pop() {
        let mut stuck = true;
        for me in 0..state.threads.len() {
            if let Some(next) = state.step(me, rules) {
                stuck = false;
                let next = next?;
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        if stuck && !state.is_done() {
            return Err(DEADLOCK);
        }
        if state.is_done() {
            let clean = (state.lock, state.flying, state.pending, state.capture);
            assert_eq!(clean, (None, 0, 0, None), "something is left behind");
        }
    }
    Ok(seen.len())
}

const CALL: Op = Op::OnCurrent(None);
const LIFE: Op = Op::LegacyLife;
const EAGER: Op = Op::LegacyEager;
/// A body on the current stream that makes and runs a legacy producer.
const CALL_WITH_LIFE: Op = Op::OnCurrent(Some(&LIFE));
const CALL_WITH_EAGER: Op = Op::OnCurrent(Some(&EAGER));
const CALL_WITH_CALL: Op = Op::OnCurrent(Some(&CALL));

const SCRIPTS: &[&[&[Op]]] = &[
    &[&[CALL, CALL], &[LIFE]],
    &[&[CALL], &[CALL], &[LIFE]],
    &[&[LIFE], &[LIFE], &[CALL]],
    &[&[LIFE, EAGER], &[EAGER, CALL], &[CALL]],
    &[&[CALL_WITH_LIFE], &[CALL_WITH_LIFE]],
    &[&[CALL_WITH_LIFE], &[CALL_WITH_EAGER], &[CALL]],
    &[&[CALL_WITH_CALL, CALL], &[LIFE], &[CALL_WITH_CALL]],
    &[&[Op::Serial(&LIFE)], &[CALL_WITH_CALL], &[EAGER]],
    &[&[Op::Serial(&CALL)], &[CALL_WITH_LIFE], &[LIFE]],
    &[&[Op::OnCurrent(Some(&Op::Serial(&CALL)))], &[CALL_WITH_LIFE], &[LIFE]],
];

#[test]
fn s27_no_interleaving_breaks_the_protocol() {
    let mut states = 0;
    for scripts in SCRIPTS {
        match explore(scripts, Rules::default()) {
            Ok(seen) => states += seen,
            Err(violation) => panic!("{violation}: {scripts:?}"),
        }
    }
    println!("{states} states");
    assert!(states > 10_000, "{states}");
}

/// The violations that a broken protocol leads to, over all scripts.
fn violations(rules: Rules) -> HashSet<&'static str> {
    SCRIPTS.iter().filter_map(|scripts| explore(scripts, rules).err()).collect()
}

#[test]
fn s27_without_the_wait_for_landing_a_capture_is_mistaken() {
    let broken = violations(Rules { no_wait_for_landing: true, ..Rules::default() });
    assert!(broken.contains(MISTAKEN) || broken.contains(FOREIGN_WORK), "{broken:?}");
    let broken =
        explore(&[&[CALL], &[LIFE]], Rules { no_wait_for_landing: true, ..Rules::default() });
    assert!(broken.is_err());
}

#[test]
fn s27_without_the_look_at_pending_a_capture_is_mistaken() {
    let broken = violations(Rules { no_look_at_pending: true, ..Rules::default() });
    assert!(broken.contains(MISTAKEN), "{broken:?}");
}

#[test]
fn s27_with_a_passage_too_short_foreign_work_is_recorded() {
    let broken = violations(Rules { passage_too_short: true, ..Rules::default() });
    assert!(broken.contains(FOREIGN_WORK), "{broken:?}");
}

#[test]
fn s27_without_landing_before_the_lock_there_is_a_deadlock() {
    let broken = violations(Rules { no_landing_before_the_lock: true, ..Rules::default() });
    assert!(broken.contains(DEADLOCK), "{broken:?}");
}

#[test]
fn s25_without_the_lock_two_legacy_bodies_write_at_once() {
    let broken = violations(Rules { eager_without_lock: true, ..Rules::default() });
    assert!(broken.contains(TWO_WRITERS), "{broken:?}");
}
