//! The simulated device itself: its order of execution, its captures and graphs, and its faults.

mod capture;
mod faults;
mod graph;
mod order;
mod programs;
mod threads;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use graph_runner::testing::{Foreign, ForeignEvent, Simulation, State};
use graph_runner::{
    Buffer, CaptureMode, Device, DriverCode, DriverError, Error, Grid, In, Kernel, KernelSpec, Out,
    Stream,
};

/// A device with an order-sensitive kernel, `out = 3 out + in + 1`.
struct Bench {
    device: Device,
    foreign: Foreign,
    step: Kernel<(In<u32>, Out<u32>)>,
    one: Buffer<u32>,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let device = Device::simulated(seed);
        let step = KernelSpec::<(In<u32>, Out<u32>)>::per_thread("step", |_, (x, y)| {
            y[0] = y[0].wrapping_mul(3).wrapping_add(x[0]).wrapping_add(1);
        });
        Self {
            foreign: Foreign::new(&device),
            step: device.load(&step).unwrap(),
            one: device.buffer(&[1]).unwrap(),
            device,
        }
    }

    fn simulation(&self) -> &Simulation {
        self.device.simulation().unwrap()
    }

    fn stream(&self) -> Stream {
        self.device.stream().unwrap()
    }

    fn buffer(&self, value: u32) -> Buffer<u32> {
        self.device.buffer(&[value]).unwrap()
    }

    fn step(&self, stream: &Stream, x: &Buffer<u32>, y: &Buffer<u32>) -> Result<(), DriverError> {
        self.foreign.launch(stream, &self.step, Grid::over(1), (x, y))
    }

    /// Makes `later` wait for what `earlier` has so far.
    fn order(&self, earlier: &Stream, later: &Stream) -> Result<(), DriverError> {
        let event = self.foreign.event()?;
        event.record(earlier)?;
        event.make_wait(later)
    }

    fn read(&self, stream: &Stream, buffer: &Buffer<u32>) -> u32 {
        stream.read(buffer).unwrap()[0]
    }
}

fn code<T>(answer: Result<T, DriverError>) -> Option<DriverCode> {
    answer.err().map(|error| error.code())
}

/// Runs `test` on a thread of its own, and fails where it hangs.
fn within_a_minute(test: impl FnOnce() + Send + 'static) {
    let (done, finished) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    match finished.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// How many of 64 seeds give `expected`.
fn right(expected: u32, run: impl Fn(&Bench) -> u32) -> usize {
    (0..64).filter(|&seed| run(&Bench::new(seed)) == expected).count()
}
