//! The CUDA device on a real GPU: kernels, memory, streams, and what it shares with cudarc. The
//! rules of captures are in `rules` and `conformance`, which run on a GPU too.

#![cfg(feature = "cuda")]

#[path = "../rules/gpu.rs"]
mod gpu;

mod kernels;
mod lifetimes;
mod memory;
mod sharing;

use graph_runner::*;

use parking_lot::{Mutex, MutexGuard};

/// Tests take turns: some capture in GLOBAL mode, which any other thread can break, and some measure
/// the memory that is free.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock()
}

/// A turn and the GPU, or the end of a test that says why there is none.
macro_rules! device_or_return {
    () => {
        match (crate::turn(), crate::gpu::device()) {
            (turn, Some(device)) => (turn, device),
            (_, None) => return,
        }
    };
}
use device_or_return;

type AddArgs = (Shared<u32>, u32, u32);

/// `x += amount` for `n` elements.
#[allow(unsafe_code)]
fn add() -> KernelSpec<AddArgs> {
    // SAFETY: each thread touches its own element, below the count that every launch here passes.
    unsafe {
        KernelSpec::device_only("add").cuda_source(
            "extern \"C\" __global__ void add(unsigned* x, unsigned amount, unsigned n) {
                unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) x[i] += amount;
            }",
            "add",
        )
    }
}

/// Takes its time: tens of milliseconds, so that a missing wait shows.
#[allow(unsafe_code)]
fn slow_add() -> KernelSpec<AddArgs> {
    // SAFETY: as for `add`.
    unsafe {
        KernelSpec::device_only("slow add").cuda_source(
            "extern \"C\" __global__ void slow(unsigned* x, unsigned amount, unsigned n) {
                unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
                for (int k = 0; k < 30; k++) __nanosleep(1000000);
                if (i < n) x[i] += amount;
            }",
            "slow",
        )
    }
}

/// Numbers without a pattern that a wrong offset would keep.
fn noise(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 11) as u8
    };
    (0..len).map(|_| next()).collect()
}
