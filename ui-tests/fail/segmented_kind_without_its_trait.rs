//! A producer declares HOST stages and does not implement them.

use graph_runner::*;

struct Gates;

impl Producer for Gates {
    type Kind = kind::HostSegmented;
    type Variant = ();
    const NAME: &'static str = "gates";
}

fn main() {}
