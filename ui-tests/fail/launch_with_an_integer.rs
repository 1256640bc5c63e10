//! A kernel is launched with an integer for a float.

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
        cx.launch(&self.kernel, Grid::over(self.y.len()), (1_u32, &self.x, &self.y))
    }
}

fn main() {}
