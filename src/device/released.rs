//! What graphs of other people's captures kept alive, handed back by a CUDA user object's
//! destructor. That may call no CUDA, so it only puts things here; they are dropped by the next
//! housekeeping call of this crate (S30, S31).

use parking_lot::Mutex;

use super::driver::Keep;

static RELEASED: Mutex<Vec<Keep>> = Mutex::new(Vec::new());

pub(crate) fn push(keep: Vec<Keep>) {
    RELEASED.lock().extend(keep);
}

pub(crate) fn drain() {
    let keep = std::mem::take(&mut *RELEASED.lock());
    drop(keep);
}
