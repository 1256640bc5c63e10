//! A producer implements the trait of another kind than it declares.

use graph_runner::*;

struct Step;

impl Producer for Step {
    type Kind = kind::Legacy;
    type Variant = ();
    const NAME: &'static str = "step";
}

impl Capturable for Step {
    fn enqueue(&self, _: &(), _: &mut Enqueue<'_>) -> Result<()> {
        Ok(())
    }
}

fn main() {}
