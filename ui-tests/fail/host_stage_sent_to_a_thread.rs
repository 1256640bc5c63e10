//! The context of a HOST part is sent to another thread.

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
            std::thread::scope(|scope| {
                scope.spawn(|| cx.read(&gates.points)).join().unwrap().map(drop)
            })
        })
    }
}

fn main() {}
