//! A body with HOST stages is recorded into a capture.

use graph_runner::*;

struct Gates {
    scores: Buffer<f32>,
}

impl Producer for Gates {
    type Kind = kind::HostSegmented;
    type Variant = ();
    const NAME: &'static str = "gates";
}

impl HostSegmented for Gates {
    type HostState = Vec<f32>;

    fn segments(parts: Segments<Self>) -> Segments<Self> {
        parts.host("rank", |gates, _, ranking, cx| {
            *ranking = cx.read(&gates.scores)?;
            Ok(())
        })
    }
}

fn record(runner: &mut GraphRunner<Gates>, capture: &mut Capture<'_>) -> Result<Run> {
    runner.record(capture)
}

fn main() {}
