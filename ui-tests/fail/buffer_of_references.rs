//! A buffer holds a type with a pointer in it.

use graph_runner::*;

fn names(device: &Device) -> Result<Buffer<String>> {
    device.zeros(16)
}

fn main() {}
