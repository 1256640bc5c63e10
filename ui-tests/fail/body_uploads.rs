//! An enqueue-only body uploads.

use graph_runner::*;

struct Step {
    points: Buffer<f32>,
}

impl Producer for Step {
    type Kind = kind::Capturable;
    type Variant = ();
    const NAME: &'static str = "step";
}

impl Capturable for Step {
    fn enqueue(&self, _: &(), cx: &mut Enqueue<'_>) -> Result<()> {
        cx.write(&self.points, &[1.0; 4])
    }
}

fn main() {}
