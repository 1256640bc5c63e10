//! A context is kept after its call.

use graph_runner::*;

fn keep(stream: &Stream, points: &Buffer<f32>) -> Result<()> {
    let mut kept = None;
    stream.enqueue(|cx| {
        kept = Some(cx);
        Ok(())
    })?;
    kept.unwrap().fill(points, 0.0)
}

fn main() {}
