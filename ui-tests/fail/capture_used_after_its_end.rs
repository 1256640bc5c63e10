//! A capture token is used after its end.

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

fn record(stream: &Stream, runner: &mut GraphRunner<Clear>) -> Result<()> {
    let mut kept = None;
    stream.capture(|capture| {
        kept = Some(capture);
        Ok(())
    })?;
    runner.record(kept.unwrap()).map(drop)
}

fn main() {}
