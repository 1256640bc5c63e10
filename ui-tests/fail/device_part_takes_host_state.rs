//! A device part asks for the HostState.

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
    type HostState = Vec<f32>;

    fn segments(parts: Segments<Self>) -> Segments<Self> {
        parts.device("place", |gates, _, ranking: &mut Vec<f32>, cx| {
            cx.fill(&gates.points, ranking[0])
        })
    }
}

fn main() {}
