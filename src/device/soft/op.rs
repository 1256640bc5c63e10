//! Operations: what a stream carries and a graph's nodes do.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use smallvec::SmallVec;

use super::memory::{Memory, Operand};
use crate::device::args::Slot;
use crate::device::driver::{DriverCode, RawKernel, RawPtr};
use crate::device::kernel::{Access, Grid, HostKernel, KernelDecl, RawArg};

/// One operation. It refers to memory and kernels by handle, as a GPU does: what is gone when it
/// runs is a fault.
pub(crate) enum Op {
    Launch {
        kernel: RawKernel,
        grid: Grid,
        args: Vec<OwnedArg>,
    },
    Copy {
        destination: RawPtr,
        source: RawPtr,
        bytes: usize,
    },
    Fill {
        destination: RawPtr,
        pattern: Box<[u8]>,
        count: usize,
    },
    #[cfg(feature = "simulate")]
    Upload {
        destination: RawPtr,
        bytes: Arc<[u8]>,
    },
    /// Nodes in an order that respects their dependencies.
    #[cfg(feature = "simulate")]
    Child(Arc<[Node]>),
    #[cfg(feature = "simulate")]
    HostFunction(Arc<dyn Fn() + Send + Sync>),
    /// Only order, or a memory node.
    #[cfg(feature = "simulate")]
    Nothing,
}

/// A node of a graph: an operation, and the nodes before it.
#[cfg(feature = "simulate")]
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) op: Arc<Op>,
    pub(crate) after: SmallVec<[usize; 2]>,
}

/// An argument that outlives its launch.
pub(crate) enum OwnedArg {
    Buffer { ptr: RawPtr, bytes: usize, access: Access },
    Scalar(SmallVec<[u8; 16]>),
}

impl OwnedArg {
    pub(crate) fn all(args: &[RawArg<'_>]) -> Vec<Self> {
        args.iter()
            .map(|arg| match *arg {
                RawArg::Buffer { ptr, bytes, access, .. } => Self::Buffer { ptr, bytes, access },
                RawArg::Scalar(bytes) => Self::Scalar(SmallVec::from_slice(bytes)),
            })
            .collect()
    }
}

fn buffer<'a>(ptr: RawPtr, bytes: usize, access: Access) -> Operand<'a> {
    match access {
        Access::Read => Operand::Read(ptr, bytes),
        Access::Own | Access::Shared => Operand::Write(ptr, bytes),
    }
}

/// What operations run on: a device's memory and loaded kernels.
#[derive(Default)]
pub(crate) struct Engine {
    pub(crate) memory: Memory,
    kernels: RwLock<HashMap<u64, Arc<dyn HostKernel>>>,
    next_kernel: AtomicU64,
    #[cfg(feature = "simulate")]
    launches: AtomicU64,
}

impl Engine {
    pub(crate) fn load(&self, decl: &KernelDecl) -> Result<RawKernel, DriverCode> {
        let host = decl.host.clone().ok_or(DriverCode::NoBinaryForGpu)?;
        let id = self.next_kernel.fetch_add(1, Ordering::Relaxed) + 1;
        self.kernels.write().insert(id, host);
        Ok(RawKernel(id))
    }

    pub(crate) fn unload(&self, kernel: RawKernel) -> Result<(), DriverCode> {
        self.kernels.write().remove(&kernel.0).map(drop).ok_or(DriverCode::InvalidHandle)
    }

    #[cfg(feature = "simulate")]
    pub(crate) fn has(&self, kernel: RawKernel) -> bool {
        self.kernels.read().contains_key(&kernel.0)
    }

    #[cfg(feature = "simulate")]
    pub(crate) fn live_kernels(&self) -> usize {
        self.kernels.read().len()
    }

    #[cfg(feature = "simulate")]
    pub(crate) fn launches(&self) -> u64 {
        self.launches.load(Ordering::Relaxed)
    }

    /// Runs a launch whose arguments are at hand.
    pub(crate) fn launch(
        &self,
        kernel: RawKernel,
        grid: &Grid,
        args: &[RawArg<'_>],
    ) -> Result<(), DriverCode> {
        let operands: SmallVec<[Operand<'_>; 12]> = args
            .iter()
            .map(|arg| match *arg {
                RawArg::Buffer { ptr, bytes, access, .. } => buffer(ptr, bytes, access),
                RawArg::Scalar(bytes) => Operand::Scalar(bytes),
            })
            .collect();
        self.launch_on(kernel, grid, &operands)
    }

    fn launch_on(
        &self,
        kernel: RawKernel,
        grid: &Grid,
        operands: &[Operand<'_>],
    ) -> Result<(), DriverCode> {
        let host = self.kernels.read().get(&kernel.0).cloned().ok_or(DriverCode::InvalidHandle)?;
        #[cfg(feature = "simulate")]
        self.launches.fetch_add(1, Ordering::Relaxed);
        self.memory.with(operands, |slots| host.run(grid, slots))
    }

    pub(crate) fn copy(
        &self,
        destination: RawPtr,
        source: RawPtr,
        bytes: usize,
    ) -> Result<(), DriverCode> {
        let operands = [Operand::Read(source, bytes), Operand::Write(destination, bytes)];
        self.memory.with(&operands, |slots| {
            if let (Some(Slot::Read(from)), Some(Slot::Write(to))) = (slots.next(), slots.next()) {
                to.copy_from_slice(from);
            }
        })
    }

    pub(crate) fn fill(
        &self,
        destination: RawPtr,
        pattern: &[u8],
        count: usize,
    ) -> Result<(), DriverCode> {
        let operands = [Operand::Write(destination, pattern.len() * count)];
        self.memory.with(&operands, |slots| {
            if let Some(Slot::Write(bytes)) = slots.next() {
                match pattern {
                    [byte] => bytes.fill(*byte),
                    _ => bytes
                        .chunks_exact_mut(pattern.len())
                        .for_each(|chunk| chunk.copy_from_slice(pattern)),
                }
            }
        })
    }

    pub(crate) fn write(&self, destination: RawPtr, values: &[u8]) -> Result<(), DriverCode> {
        self.memory.with(&[Operand::Write(destination, values.len())], |slots| {
            if let Some(Slot::Write(bytes)) = slots.next() {
                bytes.copy_from_slice(values);
            }
        })
    }

    pub(crate) fn read(&self, source: RawPtr, values: &mut [u8]) -> Result<(), DriverCode> {
        self.memory.with(&[Operand::Read(source, values.len())], |slots| {
            if let Some(Slot::Read(bytes)) = slots.next() {
                values.copy_from_slice(bytes);
            }
        })
    }

    /// Runs one operation to its end.
    pub(crate) fn run(&self, op: &Op) -> Result<(), DriverCode> {
        match op {
            Op::Launch { kernel, grid, args } => {
                let operands: SmallVec<[Operand<'_>; 12]> = args
                    .iter()
                    .map(|arg| match arg {
                        OwnedArg::Buffer { ptr, bytes, access } => buffer(*ptr, *bytes, *access),
                        OwnedArg::Scalar(bytes) => Operand::Scalar(bytes),
                    })
                    .collect();
                self.launch_on(*kernel, grid, &operands)
            }
            Op::Copy { destination, source, bytes } => self.copy(*destination, *source, *bytes),
            Op::Fill { destination, pattern, count } => self.fill(*destination, pattern, *count),
            #[cfg(feature = "simulate")]
            Op::Upload { destination, bytes } => self.write(*destination, bytes),
            #[cfg(feature = "simulate")]
            Op::Child(nodes) => nodes.iter().try_for_each(|node| self.run(&node.op)),
            #[cfg(feature = "simulate")]
            Op::HostFunction(function) => {
                function();
                Ok(())
            }
            #[cfg(feature = "simulate")]
            Op::Nothing => Ok(()),
        }
    }
}
