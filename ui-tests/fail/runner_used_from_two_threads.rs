//! A runner is used from two threads at once.

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

fn run(mut runner: GraphRunner<Clear>) {
    std::thread::scope(|scope| {
        scope.spawn(|| runner.run().unwrap());
        scope.spawn(|| runner.run().unwrap());
    });
}

fn main() {}
