//! An enqueue-only body reads back. This is the right way.

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
        parts.host("clear", |gates, _, _, cx| {
            let points = cx.read(&gates.points)?;
            cx.fill(&gates.points, points[0])
        })
    }
}

fn main() {}
