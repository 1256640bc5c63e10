//! A device part asks for the HostState. This is the right way.

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
        parts.host("place", |gates, _, ranking: &mut Vec<f32>, cx| {
            ranking.push(1.0);
            cx.fill(&gates.points, ranking[0])
        })
    }
}

fn main() {}
