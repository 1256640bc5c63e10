//! A producer is changed while one of its graphs is borrowed.

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

fn change(runner: &mut GraphRunner<Clear>, points: Buffer<f32>) -> usize {
    let graph = runner.graph().unwrap();
    runner.producer_mut().points = points;
    graph.nodes()
}

fn main() {}
