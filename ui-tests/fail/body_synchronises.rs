//! An enqueue-only body waits for the device.

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
        cx.fill(&self.points, 0.0)?;
        cx.wait()
    }
}

fn main() {}
