//! Three ways to bring code that launches by itself under the policy, and what the runner does with
//! each.
//!
//! ```text
//! cargo run --example legacy_plugin -- --device host|cuda
//! cargo run --features simulate --example legacy_plugin -- --device simulated
//! ```
//!
//! A legacy body cannot be handed a stream of the library's choice: it launches on the device's
//! current stream, which the whole process shares. The runner captures it there, once, under the
//! process-wide capture lock, and replays that graph on any stream. All it asks of the body is to
//! launch on `LegacyLaunch::stream` and to keep alive what the library launches with.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::{Parser, ValueEnum};
use graph_runner::{
    Buffer, Device, DriverCode, Error, GraphRunner, Grid, Kernel, KernelSpec, Legacy, LegacyLaunch,
    Out, Producer, Result, Stream, kind,
};

#[derive(Parser, Debug)]
#[command(about = "Three ways to write a legacy plugin")]
struct Options {
    /// Where to run.
    #[arg(long, value_enum, default_value_t = Where::Auto)]
    device: Where,
}

#[derive(Clone, Copy, ValueEnum, Debug)]
enum Where {
    Auto,
    Host,
    Simulated,
    Cuda,
}

/// An existing library: it launches on a stream by its raw handle, as a C library would, and knows
/// nothing of this crate's contexts.
struct Solver {
    device: Device,
    kernel: Kernel<(Out<f32>, f32, u32)>,
    x: Buffer<f32>,
    /// The stream that it is bound to, for code that calls it without one.
    bound: AtomicU64,
}

impl Solver {
    fn new(device: &Device) -> Result<Arc<Self>> {
        let spec = KernelSpec::<(Out<f32>, f32, u32)>::per_thread("halve", |_, (x, by, _)| {
            x[0] = x[0] * by + 1.0;
        });
        let cuda = "extern \"C\" __global__ void halve(float* x, float by, unsigned n) {
            unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) x[i] = x[i] * by + 1.0f;
        }";
        // SAFETY: the function takes these arguments and stays below the count it is given.
        let spec = unsafe { spec.cuda_source(cuda, "halve") };
        Ok(Arc::new(Self {
            kernel: device.load(&spec)?,
            x: device.buffer(&[10.0; 1000])?,
            device: device.clone(),
            bound: AtomicU64::new(0),
        }))
    }

    fn bind(&self, stream: u64) {
        self.bound.store(stream, Ordering::SeqCst);
    }

    fn solve(&self, stream: u64) -> Result<()> {
        // SAFETY: whoever passes a stream keeps it alive for the call.
        let stream: Stream = unsafe { self.device.stream_from_raw(stream) };
        let n = self.x.len();
        stream.enqueue(|cx| cx.launch(&self.kernel, Grid::over(n), (&self.x, 0.5, n as u32)))
    }
}

/// 1. Rust code: launches through the context, or with anything that takes the current stream.
struct RustPlugin(Arc<Solver>);

impl Producer for RustPlugin {
    type Kind = kind::Legacy;
    type Variant = ();
    const NAME: &'static str = "rust_code";
}

impl Legacy for RustPlugin {
    fn launch(&self, (): &(), cx: &mut LegacyLaunch<'_>) -> Result<()> {
        let n = self.0.x.len();
        cx.launch(&self.0.kernel, Grid::over(n), (&self.0.x, 0.5, n as u32))
    }
}

/// 2. A C function pointer that takes a `CUstream`.
struct CPlugin(Arc<Solver>);

unsafe extern "C" fn solve(stream: *mut c_void, solver: *mut c_void) -> c_int {
    // SAFETY: `CPlugin` passes a solver that it keeps alive.
    match unsafe { &*solver.cast::<Solver>() }.solve(stream as u64) {
        Ok(()) => 0,
        // A plugin that says what the driver answered gets better errors.
        Err(error) => error.driver().map_or(DriverCode::Unknown, |e| e.code()).number(),
    }
}

impl Producer for CPlugin {
    type Kind = kind::Legacy;
    type Variant = ();
    const NAME: &'static str = "c_function";
}

impl Legacy for CPlugin {
    fn launch(&self, (): &(), cx: &mut LegacyLaunch<'_>) -> Result<()> {
        // A graph that this is captured into launches with the solver's memory.
        cx.keep_alive(&self.0);
        // SAFETY: `solve` takes a solver, which outlives the call and every graph of it.
        unsafe { cx.call(solve, Arc::as_ptr(&self.0).cast_mut().cast()) }
    }
}

/// 3. A library handle that is bound to a stream, such as cuBLAS's. This one also reads back between
///    its launches, so it cannot be captured and says so.
struct HandlePlugin(Arc<Solver>);

impl Producer for HandlePlugin {
    type Kind = kind::Legacy;
    type Variant = ();
    const NAME: &'static str = "library_handle";
}

impl Legacy for HandlePlugin {
    const CAPTURABLE: bool = false;

    fn launch(&self, (): &(), cx: &mut LegacyLaunch<'_>) -> Result<()> {
        // The current stream may be another one than last time: bind every time.
        self.0.bind(cx.stream().handle());
        self.0.solve(self.0.bound.load(Ordering::SeqCst))?;
        let first = cx.stream().read(&self.0.x.slice(..1)?)?[0];
        if first.is_nan() {
            return Err(Error::other("the solver diverged"));
        }
        Ok(())
    }
}

fn show<P: Producer>(device: &Device, plugin: P, solver: &Solver) -> Result<String> {
    let stream = device.stream()?;
    let mut runner = GraphRunner::new(device, plugin)?;
    let mut expected = 10.0_f32;
    let mut mode = String::new();
    for call in 1..=3 {
        let run = runner.call().on(&stream).run()?;
        expected = expected * 0.5 + 1.0;
        println!("{:<15} call {call}: {:<10} because {}", P::NAME, run.mode, run.reason);
        mode = run.mode.to_string();
    }
    let x = stream.read(&solver.x)?;
    if x.iter().any(|value| *value != expected) {
        return Err(Error::other(format!("{} gave {}, not {expected}", P::NAME, x[0])));
    }
    Ok(mode)
}

fn device(wanted: Where) -> Result<Device> {
    match wanted {
        Where::Auto => Ok(Device::best()),
        Where::Host => Ok(Device::host()),
        #[cfg(feature = "simulate")]
        Where::Simulated => Ok(Device::simulated(1)),
        #[cfg(not(feature = "simulate"))]
        Where::Simulated => Err(Error::other("the simulated device needs `--features simulate`")),
        #[cfg(feature = "cuda")]
        Where::Cuda => Device::cuda(0),
        #[cfg(not(feature = "cuda"))]
        Where::Cuda => Err(Error::other("this was built without the feature `cuda`")),
    }
}

fn run(options: &Options) -> Result<()> {
    let device = device(options.device)?;
    println!("on {}:", device.name());
    let solver = || Solver::new(&device);
    let (rust, c, handle) = (solver()?, solver()?, solver()?);
    let modes = [
        show(&device, RustPlugin(Arc::clone(&rust)), &rust)?,
        show(&device, CPlugin(Arc::clone(&c)), &c)?,
        show(&device, HandlePlugin(Arc::clone(&handle)), &handle)?,
    ];
    println!("legacy_plugin device={} modes={}", device.kind(), modes.join(","));
    Ok(())
}

fn main() -> std::process::ExitCode {
    match run(&Options::parse()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            std::process::ExitCode::from(2)
        }
    }
}
