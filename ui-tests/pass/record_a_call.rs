//! A call of a segmented producer is recorded into a capture. This is the right way.

use graph_runner::*;

struct Clear {
    points: Buffer<f32>,
}

impl Producer for Clear {
    type Kind = kind::Capturable;
    type Variant = ();
    const NAME: &'static str = "clear";
}

impl Capturable for Clear {
    fn enqueue(&self, _: &(), cx: &mut Enqueue<'_>) -> Result<()> {
        cx.fill(&self.points, 0.0)
    }
}

fn record(runner: &mut GraphRunner<Clear>, capture: &mut Capture<'_>) -> Result<Run> {
    runner.call().sync(true).record(capture)
}

fn main() {}
