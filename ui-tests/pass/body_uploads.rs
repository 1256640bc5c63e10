//! An enqueue-only body uploads. This is the right way.

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
        parts.host("upload", |gates, _, _, cx| cx.write(&gates.points, &[1.0; 4]))
    }
}

fn main() {}
