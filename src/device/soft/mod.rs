//! The software engine: the host device, and a simulated CUDA for tests.
//!
//! Both share memory, kernels and operations; they differ in when an operation runs.

mod host;
mod memory;
mod op;
#[cfg(feature = "simulate")]
mod sim;

use std::sync::Arc;

#[cfg(feature = "simulate")]
pub use sim::{Call, Live, Simulation};

use super::Driver;
use super::driver::Keep;

/// What a graph and all that was instantiated from it keep: handed back with the last of them, as a
/// CUDA user object is.
struct Anchor {
    keep: Vec<Keep>,
    release: Arc<dyn Fn(Vec<Keep>) + Send + Sync>,
}

impl Anchor {
    fn new(keep: Vec<Keep>, release: Arc<dyn Fn(Vec<Keep>) + Send + Sync>) -> Self {
        Self { keep, release }
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        (self.release)(std::mem::take(&mut self.keep));
    }
}

pub(crate) fn host() -> Arc<dyn Driver> {
    Arc::new(host::Host::new())
}

#[cfg(feature = "simulate")]
pub(crate) fn simulated(seed: u64) -> Arc<dyn Driver> {
    Arc::new(sim::Sim::new(seed))
}
