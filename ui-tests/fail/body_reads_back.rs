//! An enqueue-only body reads back.

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
        let points = cx.read(&self.points)?;
        cx.fill(&self.points, points[0])
    }
}

fn main() {}
