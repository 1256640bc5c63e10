//! A runner is cloned. This is the right way.

use graph_runner::*;

struct Clear {
    points: Buffer<f32>,
}

impl Producer for Clear {
    type Kind = kind::Capturable;
    type Variant = ();
    const NAME: &'static str = "clear";
}

impl Capturable for Clear {
    fn enqueue(&self, _: &(), cx: &mut Enqueue<'_>) -> Result<()> {
        cx.fill(&self.points, 0.0)
    }
}

fn both(device: &Device, points: &Buffer<f32>) -> Result<[GraphRunner<Clear>; 2]> {
    let clear = || GraphRunner::new(device, Clear { points: points.clone() });
    Ok([clear()?, clear()?])
}

fn main() {}
