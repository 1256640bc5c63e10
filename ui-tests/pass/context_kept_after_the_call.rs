//! A context is kept after its call. This is the right way.

use graph_runner::*;

fn enqueue(stream: &Stream, points: &Buffer<f32>) -> Result<()> {
    stream.enqueue(|cx| cx.fill(points, 0.0))
}

fn main() {}
