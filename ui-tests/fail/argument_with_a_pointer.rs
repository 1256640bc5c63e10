//! A kernel takes a type with a pointer in it.

use graph_runner::*;

fn spec() -> KernelSpec<(String, Out<f32>)> {
    KernelSpec::<(String, Out<f32>)>::per_thread("name", |_, (_, x)| x[0] = 0.0)
}

fn main() {}
