//! An enqueue-only body allocates. This is the right way.

use graph_runner::*;

struct Step {
    points: Buffer<f32>,
    scratch: Buffer<f32>,
}

impl Producer for Step {
    type Kind = kind::Capturable;
    type Variant = ();
    const NAME: &'static str = "step";
}

impl Capturable for Step {
    fn enqueue(&self, _: &(), cx: &mut Enqueue<'_>) -> Result<()> {
        cx.copy(&self.scratch, &self.points)
    }
}

fn main() {}
