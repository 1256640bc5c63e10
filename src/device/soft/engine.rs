//! Memory, kernels and the operations on them: what both software devices run.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use smallvec::SmallVec;

use super::memory::Memory;
use crate::device::driver::{DriverCode, RawKernel, RawPtr};
use crate::device::kernel::{Access, Grid, HostKernel, KernelDecl, RawArg};

type Result<T> = std::result::Result<T, DriverCode>;

/// What operations run on.
#[derive(Default)]
pub(super) struct Engine {
    pub(super) memory: Memory,
    kernels: RwLock<HashMap<RawKernel, Arc<dyn HostKernel>>>,
    #[cfg(feature = "simulate")]
    kernels_run: AtomicU64,
    next_kernel: AtomicU64,
}

impl Engine {
    pub(super) fn load(&self, decl: &KernelDecl) -> Result<RawKernel> {
        let host = decl.host.as_ref().ok_or(DriverCode::NoBinaryForGpu)?;
        let raw = RawKernel(self.next_kernel.fetch_add(1, Ordering::Relaxed) + 1);
        self.kernels.write().insert(raw, Arc::clone(host));
        Ok(raw)
    }

    pub(super) fn unload(&self, kernel: RawKernel) -> Result<()> {
        let unloaded = self.kernels.write().remove(&kernel);
        unloaded.map(drop).ok_or(DriverCode::InvalidHandle)
    }

    #[cfg(feature = "simulate")]
    pub(super) fn kernels(&self) -> usize {
        self.kernels.read().len()
    }

    #[cfg(feature = "simulate")]
    pub(super) fn kernels_run(&self) -> u64 {
        self.kernels_run.load(Ordering::Relaxed)
    }

    /// Refuses a launch that a driver would refuse on the spot.
    pub(super) fn check_launch(&self, kernel: RawKernel, grid: &Grid) -> Result<()> {
        if grid.is_empty() {
            return Err(DriverCode::InvalidValue);
        }
        match self.kernels.read().contains_key(&kernel) {
            true => Ok(()),
            false => Err(DriverCode::InvalidHandle),
        }
    }

    pub(super) fn launch(&self, kernel: RawKernel, grid: &Grid, args: &[RawArg<'_>]) -> Result<()> {
        let host = self.kernels.read().get(&kernel).map(Arc::clone);
        let host = host.ok_or(DriverCode::LaunchFailed)?;
        self.memory.with_slots(args, |slots| host.run(grid, slots))?;
        #[cfg(feature = "simulate")]
        self.kernels_run.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn run(&self, op: &Op) -> Result<()> {
        match op {
            Op::Launch { kernel, grid, args } => {
                let args: SmallVec<[RawArg<'_>; 12]> = args.iter().map(OwnedArg::as_raw).collect();
                self.launch(*kernel, grid, &args)
            }
            &Op::Copy { dst, src, bytes } => self.memory.copy(dst, src, bytes),
            Op::Fill { dst, pattern, count } => self.memory.fill(*dst, pattern, *count),
            #[cfg(feature = "simulate")]
            Op::Write { dst, bytes } => self.memory.write(*dst, bytes),
            #[cfg(feature = "simulate")]
            Op::HostFunction(function) => {
                function();
                Ok(())
            }
            #[cfg(feature = "simulate")]
            &Op::Alloc { ptr, bytes, initial } => match self.memory.begins_at(ptr) {
                true => Ok(()),
                false => self.memory.back(ptr, bytes, initial),
            },
            #[cfg(feature = "simulate")]
            &Op::Free { ptr } => self.memory.free(ptr).map_err(|_| DriverCode::IllegalAddress),
        }
    }
}

/// One operation, with all that it needs but the memory and the code that it refers to.
pub(super) enum Op {
    Launch {
        kernel: RawKernel,
        grid: Grid,
        args: Box<[OwnedArg]>,
    },
    Copy {
        dst: RawPtr,
        src: RawPtr,
        bytes: usize,
    },
    Fill {
        dst: RawPtr,
        pattern: SmallVec<[u8; 16]>,
        count: usize,
    },
    #[cfg(feature = "simulate")]
    Write {
        dst: RawPtr,
        bytes: std::borrow::Cow<'static, [u8]>,
    },
    #[cfg(feature = "simulate")]
    HostFunction(Arc<dyn Fn() + Send + Sync>),
    /// Puts memory behind a reserved address, unless it is there from a launch before.
    #[cfg(feature = "simulate")]
    Alloc {
        ptr: RawPtr,
        bytes: usize,
        initial: u8,
    },
    #[cfg(feature = "simulate")]
    Free {
        ptr: RawPtr,
    },
}

impl Op {
    pub(super) fn launch(kernel: RawKernel, grid: &Grid, args: &[RawArg<'_>]) -> Self {
        Self::Launch { kernel, grid: *grid, args: args.iter().map(OwnedArg::new).collect() }
    }

    pub(super) fn fill(dst: RawPtr, pattern: &[u8], count: usize) -> Self {
        Self::Fill { dst, pattern: SmallVec::from_slice(pattern), count }
    }
}

/// A launch's argument, values copied.
pub(super) enum OwnedArg {
    Buffer { ptr: RawPtr, bytes: usize, element: usize, access: Access },
    Scalar(SmallVec<[u8; 16]>),
}

impl OwnedArg {
    fn new(arg: &RawArg<'_>) -> Self {
        match *arg {
            RawArg::Buffer { ptr, bytes, element, access } => {
                Self::Buffer { ptr, bytes, element, access }
            }
            RawArg::Scalar(bytes) => Self::Scalar(SmallVec::from_slice(bytes)),
        }
    }

    fn as_raw(&self) -> RawArg<'_> {
        match *self {
            Self::Buffer { ptr, bytes, element, access } => {
                RawArg::Buffer { ptr, bytes, element, access }
            }
            Self::Scalar(ref bytes) => RawArg::Scalar(bytes),
        }
    }
}

/// The driver call that fills with `pattern`.
pub(super) fn fill_call(pattern: &[u8]) -> &'static str {
    match pattern.len() {
        1 => "cuMemsetD8Async",
        2 => "cuMemsetD16Async",
        _ => "cuMemsetD32Async",
    }
}
