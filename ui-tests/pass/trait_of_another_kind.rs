//! A producer implements the trait of another kind than it declares. This is the right way.

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

fn main() {}
