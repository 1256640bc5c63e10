//! A variant cannot be hashed.

use graph_runner::*;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Batch(u32);

struct Step;

impl Producer for Step {
    type Kind = kind::Capturable;
    type Variant = Batch;
    const NAME: &'static str = "step";
}

impl Capturable for Step {
    fn enqueue(&self, _: &Batch, _: &mut Enqueue<'_>) -> Result<()> {
        Ok(())
    }
}

fn main() {}
