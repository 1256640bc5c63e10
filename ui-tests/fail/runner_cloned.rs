//! A runner is cloned.

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

fn both(runner: GraphRunner<Clear>) -> [GraphRunner<Clear>; 2] {
    [runner.clone(), runner]
}

fn main() {}
