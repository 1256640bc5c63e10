//! Producers and devices that the rule tests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use graph_runner::*;

/// Every kind of device that replays graphs: the simulated one with several orders, and a GPU where
/// there is one.
pub fn each_device(test: impl Fn(&Device)) {
    for seed in 0..16 {
        test(&Device::simulated(seed));
    }
    if let Some(device) = crate::gpu::device() {
        test(&device);
    }
}

/// One of each kind of device, for tests that take long.
pub fn each_device_once(test: impl Fn(&Device)) {
    test(&Device::simulated(1));
    if let Some(device) = crate::gpu::device() {
        test(&device);
    }
}

pub type AddArgs = (Out<u32>, u32, u32);

/// `x += amount`, element by element.
#[allow(unsafe_code)]
pub fn add_kernel() -> KernelSpec<AddArgs> {
    let spec = KernelSpec::<AddArgs>::per_thread("add", |_, (x, amount, _)| {
        x[0] = x[0].wrapping_add(amount);
    });
    // SAFETY: each thread touches its own element, below the count that every launch here passes.
    unsafe {
        spec.cuda_source(
            "extern \"C\" __global__ void add(unsigned* x, unsigned amount, unsigned n) {
                unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) x[i] += amount;
            }",
            "add",
        )
    }
}

pub type MultiplyArgs = (Out<u32>, u32, u32);

/// `x = x * factor`, element by element: does not commute with [`add_kernel`].
#[allow(unsafe_code)]
pub fn multiply_kernel() -> KernelSpec<MultiplyArgs> {
    let spec = KernelSpec::<MultiplyArgs>::per_thread("multiply", |_, (x, factor, _)| {
        x[0] = x[0].wrapping_mul(factor);
    });
    // SAFETY: each thread touches its own element, below the count that every launch here passes.
    unsafe {
        spec.cuda_source(
            "extern \"C\" __global__ void multiply(unsigned* x, unsigned factor, unsigned n) {
                unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) x[i] *= factor;
            }",
            "multiply",
        )
    }
}

/// Capturable: `x += 1 + variant`; counts how often its body ran.
pub struct Add {
    pub x: Buffer<u32>,
    pub kernel: Kernel<AddArgs>,
    pub bodies: Arc<AtomicUsize>,
}

impl Add {
    pub const LEN: usize = 4;

    pub fn new(device: &Device) -> Self {
        Self::on(device, device.zeros(Self::LEN).unwrap())
    }

    pub fn on(device: &Device, x: Buffer<u32>) -> Self {
        let kernel = device.load(&add_kernel()).unwrap();
        Self { x, kernel, bodies: Arc::default() }
    }

    pub fn bodies(&self) -> usize {
        self.bodies.load(Ordering::SeqCst)
    }
}

impl Producer for Add {
    type Kind = kind::Capturable;
    type Variant = u32;
    const NAME: &'static str = "add";
}

impl Capturable for Add {
    fn enqueue(&self, variant: &u32, cx: &mut Enqueue<'_>) -> Result<()> {
        self.bodies.fetch_add(1, Ordering::SeqCst);
        let n = self.x.len();
        cx.launch(&self.kernel, Grid::over(n), (&self.x, 1 + variant, n as u32))
    }
}

/// HostSegmented: `x += 1` on the device, `x = sum(x)` by the host, `x += 1 + variant` on the
/// device.
pub struct Gates {
    pub x: Buffer<u32>,
    pub kernel: Kernel<AddArgs>,
    pub bodies: Arc<[AtomicUsize; 3]>,
}

impl Gates {
    pub const LEN: usize = 2;

    pub fn new(device: &Device) -> Self {
        let (x, kernel) = (device.zeros(Self::LEN).unwrap(), device.load(&add_kernel()).unwrap());
        Self { x, kernel, bodies: Arc::default() }
    }

    pub fn bodies(&self) -> [usize; 3] {
        std::array::from_fn(|part| self.bodies[part].load(Ordering::SeqCst))
    }

    /// What `x` is after one more call.
    pub fn expected(x: u32, variant: u32) -> u32 {
        x.wrapping_add(1).wrapping_mul(2).wrapping_add(1 + variant)
    }

    fn count(&self, part: usize) {
        self.bodies[part].fetch_add(1, Ordering::SeqCst);
    }
}

impl Producer for Gates {
    type Kind = kind::HostSegmented;
    type Variant = u32;
    const NAME: &'static str = "gates";
}

#[derive(Default)]
pub struct Ranking {
    sums: Vec<u32>,
}

impl HostSegmented for Gates {
    type HostState = Ranking;

    fn segments(parts: Segments<Self>) -> Segments<Self> {
        parts
            .device("score", |gates, _, cx| {
                gates.count(0);
                cx.launch(&gates.kernel, Grid::over(Self::LEN), (&gates.x, 1, Self::LEN as u32))
            })
            .host("rank", |gates, _, ranking, cx| {
                gates.count(1);
                let sum = cx.read(&gates.x)?.into_iter().fold(0, u32::wrapping_add);
                ranking.sums.push(sum);
                let sum = *ranking.sums.last().unwrap();
                cx.write(&gates.x, &[sum; Self::LEN])
            })
            .device("place", |gates, variant, cx| {
                gates.count(2);
                let args = (&gates.x, 1 + variant, Self::LEN as u32);
                cx.launch(&gates.kernel, Grid::over(Self::LEN), args)
            })
    }
}

/// Legacy: `x = x * 3` on the current stream.
pub struct Triple<const CAPTURABLE: bool> {
    pub x: Buffer<u32>,
    pub kernel: Kernel<MultiplyArgs>,
    pub bodies: Arc<AtomicUsize>,
}

impl<const CAPTURABLE: bool> Triple<CAPTURABLE> {
    pub fn on(device: &Device, x: Buffer<u32>) -> Self {
        let kernel = device.load(&multiply_kernel()).unwrap();
        Self { x, kernel, bodies: Arc::default() }
    }
}

impl<const CAPTURABLE: bool> Producer for Triple<CAPTURABLE> {
    type Kind = kind::Legacy;
    type Variant = u32;
    const NAME: &'static str = "triple";
}

impl<const CAPTURABLE: bool> Legacy for Triple<CAPTURABLE> {
    const CAPTURABLE: bool = CAPTURABLE;

    fn launch(&self, _: &u32, cx: &mut LegacyLaunch<'_>) -> Result<()> {
        self.bodies.fetch_add(1, Ordering::SeqCst);
        let n = self.x.len();
        cx.launch(&self.kernel, Grid::over(n), (&self.x, 3, n as u32))
    }
}

/// The first element, after the runner's work.
pub fn first<P: Producer>(runner: &GraphRunner<P>, x: &Buffer<u32>) -> u32 {
    let values = runner.read(x).unwrap();
    assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
    values[0]
}
