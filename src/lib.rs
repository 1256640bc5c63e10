//! graph-runner

mod device;
mod error;

pub use device::*;
pub use error::{Error, OpenCapture, Result};
