//! A typed execution policy for GPU work.

pub mod kind;

mod bounded;
mod capture;
mod context;
mod device;
mod drive;
mod error;
mod producer;
mod program;
mod runner;
#[cfg(feature = "simulate")]
pub mod testing;
mod warning;

pub use capture::Capture;
pub use context::{Enqueue, ForeignProbe, HostStage, LegacyLaunch, register_foreign_probe};
#[cfg(feature = "cuda")]
pub use cudarc;
pub use device::{
    Arg, Args, Block, Buffer, CaptureMode, Device, DeviceKind, DriverCode, DriverError, Element,
    Graph, Grid, In, Kernel, KernelSpec, Out, Shared, SharedSlice, Stream, Thread,
};
pub use error::{Error, OpenCapture, Result};
pub use producer::{Capturable, HostSegmented, Legacy, Producer, Segments, Variant};
pub use program::Program;
pub use runner::{Call, GraphRunner, Mode, Plan, Policy, Reason, Run, Serial, Stats};
pub use warning::{Warning, set_warning_hook};
