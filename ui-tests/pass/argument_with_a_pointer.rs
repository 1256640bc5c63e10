//! A kernel takes a type with a pointer in it. This is the right way.

use graph_runner::*;

fn spec() -> KernelSpec<([u8; 16], Out<f32>)> {
    KernelSpec::<([u8; 16], Out<f32>)>::per_thread("name", |_, (_, x)| x[0] = 0.0)
}

fn main() {}
