//! A device part captures a value of the host.

use graph_runner::*;

struct Gates {
    points: Buffer<f32>,
}

impl Producer for Gates {
    type Kind = kind::HostSegmented;
    type Variant = ();
    const NAME: &'static str = "gates";
}

impl HostSegmented for Gates {
    type HostState = ();

    fn segments(parts: Segments<Self>) -> Segments<Self> {
        let level = 0.5;
        parts.device("place", |gates, _, cx| cx.fill(&gates.points, level))
    }
}

fn main() {}
