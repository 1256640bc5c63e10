//! A legacy body is recorded into a capture.

use graph_runner::*;

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

fn record(runner: &mut GraphRunner<Solver>, capture: &mut Capture<'_>) -> Result<Run> {
    runner.record(capture)
}

fn main() {}
