//! The raw stream is taken without vouching for what it is used for.

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
        let _stream = cx.raw_stream();
        cx.fill(&self.points, 0.0)
    }
}

fn main() {}
