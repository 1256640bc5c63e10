//! A typed execution policy for GPU work: one body that enqueues device work, recorded into a caller's
//! CUDA graph, run eagerly, captured once and replayed, or run in segments around host stages, as each
//! call allows.
//!
//! ```
//! use graph_runner::*;
//!
//! struct Count { total: Buffer<u32>, add: Kernel<(Out<u32>, u32)> }
//!
//! impl Producer for Count {
//!     type Kind = kind::Capturable;
//!     type Variant = ();
//!     const NAME: &'static str = "count";
//! }
//!
//! impl Capturable for Count {
//!     fn enqueue(&self, _: &(), cx: &mut Enqueue<'_>) -> Result<()> {
//!         cx.launch(&self.add, Grid::over(1), (&self.total, 1))
//!     }
//! }
//!
//! let device = Device::host();
//! let add = KernelSpec::<(Out<u32>, u32)>::per_thread("add", |_, (total, by)| total[0] += by);
//! let count = Count { total: device.zeros(1)?, add: device.load(&add)? };
//! let mut runner = GraphRunner::new(&device, count)?;
//! for _ in 0..3 {
//!     runner.run()?;
//! }
//! assert_eq!(runner.read(&runner.producer().total)?, [3]);
//! # Ok::<(), Error>(())
//! ```
//!
//! # Where to begin
//!
//! A [`Producer`] owns its [`Buffer`]s and [`Kernel`]s and has one body: [`Capturable`] if it only
//! enqueues, [`HostSegmented`] if some parts need the host, [`Legacy`] if it launches on a stream of its
//! own choice. A [`GraphRunner`] runs it; a [`Program`] is several in a row.
//!
//! # What is checked, and what is not
//!
//! The compiler refuses a body that does what a capture forbids, since its context cannot do it, and
//! recording a producer that cannot be recorded. What only a stream can tell is a typed [`Error`] before
//! anything is launched. CUDA code that is attached to a kernel is vouched for by an `unsafe` block. That
//! equal variants mean equal bodies is the author's promise.
//!
//! Nothing here waits for a whole context, and nothing breaks anybody's capture. Keep
//! `cuCtxSynchronize` (`cudaDeviceSynchronize`), and other calls that captures forbid, away from threads
//! that run while another captures: CUDA breaks that capture, which a runner survives by running eagerly,
//! but today's driver can also crash when the two calls meet (seen with 580.159, without this crate).
//!
//! # Rules
//!
//! Documents and tests name the rules of the contract by number: S1 to S8 are the modes, S9 to S14 the
//! kinds, S15 to S17 streams, S18 and S19 construction and preparing, S20 to S23 the cache, S24 to S27
//! legacy code, S28 and S29 loops, S30 to S32 lifetimes and unwinding, S33 to S35 synchronisation, reasons
//! and machines without a GPU.

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
pub use context::{
    Enqueue, ForeignProbe, HostStage, LaunchFunction, LegacyLaunch, register_foreign_probe,
};
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

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
