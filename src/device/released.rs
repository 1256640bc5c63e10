//! What graphs of other people's captures kept alive, handed back by a CUDA user object's
//! destructor. That may call no CUDA, so it only puts things here, for a thread of this crate's own
//! to drop (S30, S31).

use std::sync::OnceLock;

use parking_lot::{Condvar, Mutex};

use super::driver::Keep;

static RELEASED: Mutex<Vec<Keep>> = Mutex::new(Vec::new());
static ARRIVED: Condvar = Condvar::new();

/// Called by the driver, on any thread: calls no CUDA and waits for nobody who does.
pub(crate) fn push(keep: Vec<Keep>) {
    RELEASED.lock().extend(keep);
    ARRIVED.notify_one();
}

/// Sees to it that what will be handed back is dropped: called before anything is given to a graph.
pub(crate) fn start() {
    static STARTED: OnceLock<bool> = OnceLock::new();
    let started = *STARTED.get_or_init(|| {
        let name = "graph-runner release".to_owned();
        std::thread::Builder::new().name(name).spawn(drop_what_arrives).is_ok()
    });
    if !started {
        // With no thread to be had, what came back is dropped at the next recording.
        drop(std::mem::take(&mut *RELEASED.lock()));
    }
}

fn drop_what_arrives() {
    loop {
        let mut released = RELEASED.lock();
        while released.is_empty() {
            ARRIVED.wait(&mut released);
        }
        let keep = std::mem::take(&mut *released);
        drop(released);
        // Frees and unloads, each in its RELAXED bracket, which harms no capture. A panic of what a
        // user asked to keep alive is that thing's own.
        for thing in keep {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(thing)));
        }
    }
}
