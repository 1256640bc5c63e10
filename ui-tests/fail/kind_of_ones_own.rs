//! A producer has a kind of its own making.

use graph_runner::*;

enum Magic {}

struct Step;

impl Producer for Step {
    type Kind = Magic;
    type Variant = ();
    const NAME: &'static str = "step";
}

fn main() {}
