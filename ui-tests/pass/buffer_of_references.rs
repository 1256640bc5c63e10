//! A buffer holds a type with a pointer in it. This is the right way.

use graph_runner::*;

fn names(device: &Device) -> Result<Buffer<[u8; 16]>> {
    device.zeros(16)
}

fn main() {}
