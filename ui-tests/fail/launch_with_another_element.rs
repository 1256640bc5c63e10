//! A kernel is launched with a buffer of another element type.

use graph_runner::*;

struct Step {
    kernel: Kernel<(f32, In<f32>, Out<f32>)>,
    x: Buffer<f32>,
    y: Buffer<f32>,
    n: Buffer<u32>,
}

impl Producer for Step {
    type Kind = kind::Capturable;
    type Variant = ();
    const NAME: &'static str = "step";
}

impl Capturable for Step {
    fn enqueue(&self, _: &(), cx: &mut Enqueue<'_>) -> Result<()> {
        cx.launch(&self.kernel, Grid::over(self.y.len()), (0.5, &self.n, &self.y))
    }
}

fn main() {}
