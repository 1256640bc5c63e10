//! The context of a HOST part is sent to another thread. This is the right way.

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
        parts.host("rank", |gates, _, _, cx| {
            let points = cx.read(&gates.points)?;
            let most = std::thread::scope(|scope| {
                scope.spawn(|| points.iter().copied().fold(0.0, f32::max)).join().unwrap()
            });
            cx.fill(&gates.points, most)
        })
    }
}

fn main() {}
