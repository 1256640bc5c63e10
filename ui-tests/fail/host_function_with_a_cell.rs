//! A host function shares a cell between threads.

use graph_runner::*;

fn spec() -> KernelSpec<(Out<f32>,)> {
    let calls = std::rc::Rc::new(std::cell::Cell::new(0));
    KernelSpec::<(Out<f32>,)>::per_thread("count", move |_, (x,)| {
        calls.set(calls.get() + 1);
        x[0] = 0.0;
    })
}

fn main() {}
