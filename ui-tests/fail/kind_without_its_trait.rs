//! A producer declares a kind and does not implement its trait.

use graph_runner::*;

struct Step;

impl Producer for Step {
    type Kind = kind::Capturable;
    type Variant = ();
    const NAME: &'static str = "step";
}

fn main() {}
