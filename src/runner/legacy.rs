//! The process-wide capture lock and who has to take it (S24 to S27).
//!
//! Legacy code launches on a device's current stream, so a legacy producer can only be captured
//! there, where any thread's call may meet that capture and take it for its caller's. Therefore:
//!
//! | who | does |
//! |---|---|
//! | a runner that may still capture on the current stream | is *pending* from construction on |
//! | a call that resolves to the current stream | *flies* while it decides and enqueues, if nobody is pending; takes the lock otherwise |
//! | a legacy capture or eager legacy code | holds the lock |
//! | a legacy capture | also waits, before it begins, until nobody else flies |
//! | a thread that waits for the lock | does not fly meanwhile: it is inside a call, but launches nothing |
//! | a call on any other stream | does nothing of this |

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex, ReentrantMutex, ReentrantMutexGuard};

use crate::device::Device;

static LOCK: ReentrantMutex<()> = ReentrantMutex::new(());

/// The process-wide capture lock, held; see [`GraphRunner::serial`](crate::GraphRunner::serial).
#[must_use = "the lock is released when this is dropped"]
#[derive(Debug)]
pub struct Serial {
    _lock: Option<ReentrantMutexGuard<'static, ()>>,
}

impl Serial {
    /// Takes the lock; reentrant.
    pub(crate) fn take() -> Self {
        let lock = LOCK.try_lock().unwrap_or_else(|| {
            let own = OWN.get();
            land(own);
            let lock = LOCK.lock();
            take_off(own);
            lock
        });
        Self { _lock: Some(lock) }
    }

    /// Nothing to hold.
    pub(crate) fn none() -> Self {
        Self { _lock: None }
    }

    /// Whether the lock is held by this.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self._lock.is_some()
    }
}

/// How many legacy runners of one device may still capture on its current stream.
#[derive(Default)]
pub(crate) struct Pending(AtomicUsize);

impl Pending {
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

/// Calls that fly now, on any device: a legacy capture waits a little longer than it must, and no
/// thread can be caught between two devices.
static FLYING: AtomicUsize = AtomicUsize::new(0);
/// Threads that wait for landings, of any device's calls.
static WAITING: AtomicUsize = AtomicUsize::new(0);
static LANDED: Condvar = Condvar::new();
static LANDING: Mutex<()> = Mutex::new(());

thread_local! {
    /// How often this thread flies: more than once where a body runs further runners.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// Waits until no other thread's call flies. The caller holds the lock and is pending, so that no
/// further call takes off from its current stream.
pub(crate) fn wait_for_landing() {
    let own = OWN.get();
    let mut landing = LANDING.lock();
    // Before the look at who flies: whoever lands after that look sees this and tells.
    WAITING.fetch_add(1, Ordering::SeqCst);
    while FLYING.load(Ordering::SeqCst) > own {
        LANDED.wait(&mut landing);
    }
    WAITING.fetch_sub(1, Ordering::SeqCst);
}

fn take_off(times: usize) {
    OWN.set(OWN.get() + times);
    FLYING.fetch_add(times, Ordering::SeqCst);
}

fn land(times: usize) {
    OWN.set(OWN.get() - times);
    FLYING.fetch_sub(times, Ordering::SeqCst);
    if WAITING.load(Ordering::SeqCst) > 0 {
        // Taken so that a waiter is either before its look or in its wait.
        drop(LANDING.lock());
        LANDED.notify_all();
    }
}

/// What one call holds while it decides its mode and enqueues on the current stream (S26).
pub(crate) enum Passage {
    /// Another stream: nothing.
    Elsewhere,
    /// Nobody was pending.
    Flying,
    /// Somebody was.
    Locked(#[expect(dead_code, reason = "held, never read")] Serial),
}

impl Passage {
    pub(crate) fn enter(device: &Device, on_current: bool) -> Self {
        if !on_current {
            return Self::Elsewhere;
        }
        let pending = device.pending();
        take_off(1);
        if !pending.any() {
            return Self::Flying;
        }
        land(1);
        Self::Locked(Serial::take())
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        if let Self::Flying = self {
            land(1);
        }
    }
}

/// A runner that may still capture on its device's current stream.
pub(crate) struct PendingToken {
    device: Device,
}

impl PendingToken {
    pub(crate) fn new(device: &Device) -> Self {
        device.pending().0.fetch_add(1, Ordering::SeqCst);
        Self { device: device.clone() }
    }
}

impl Drop for PendingToken {
    fn drop(&mut self) {
        self.device.pending().0.fetch_sub(1, Ordering::SeqCst);
    }
}
