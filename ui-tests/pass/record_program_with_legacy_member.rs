//! A program with a legacy member is recorded into a capture. This is the right way.

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

struct Solver;

impl Producer for Solver {
    type Kind = kind::Legacy;
    type Variant = ();
    const NAME: &'static str = "solver";
}

impl Legacy for Solver {
    fn launch(&self, _: &(), cx: &mut LegacyLaunch<'_>) -> Result<()> {
        let _ = cx.stream();
        Ok(())
    }
}

fn run(runner: &mut GraphRunner<Program<Clear, Solver>>) -> Result<Run> {
    runner.run()
}

fn main() {}
