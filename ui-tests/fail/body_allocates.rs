//! An enqueue-only body allocates.

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
        let scratch = cx.zeros::<f32>(16)?;
        cx.copy(&scratch, &self.points)
    }
}

fn main() {}
