//! The software devices: the host, where operations run as they are enqueued, and a simulated CUDA
//! for tests. Both stand on one engine of memory, kernels and operations.

mod engine;
mod host;
mod memory;
#[cfg(feature = "simulate")]
mod sim;

use std::sync::Arc;

use super::Driver;
use super::driver::Keep;
#[cfg(feature = "simulate")]
pub use sim::{Call, Live, Simulation};

/// A driver of this machine's cores.
pub(crate) fn host() -> Arc<dyn Driver> {
    Arc::new(host::Host::new())
}

/// A driver of a new simulated device, whose order of execution `seed` chooses.
#[cfg(feature = "simulate")]
pub(crate) fn simulated(seed: u64) -> Arc<dyn Driver> {
    Arc::new(Simulation::new(seed))
}

/// Things tied to a graph, handed back once it and all that was made from it are gone.
struct UserObject {
    keep: Vec<Keep>,
    release: Arc<dyn Fn(Vec<Keep>) + Send + Sync>,
}

impl UserObject {
    fn new(keep: Vec<Keep>, release: Arc<dyn Fn(Vec<Keep>) + Send + Sync>) -> Self {
        Self { keep, release }
    }
}

impl Drop for UserObject {
    fn drop(&mut self) {
        (self.release)(std::mem::take(&mut self.keep));
    }
}
