//! Everything at once, for a while: producers of every kind made, run, recorded and dropped by many
//! threads, on the current stream and elsewhere, with and without somebody who breaks captures.
//!
//! Every result is compared with what the same calls give one after the other. A simulated device
//! runs a bounded number of rounds under several seeds; a GPU runs for `GRAPH_RUNNER_STRESS_SECONDS`
//! (20).
//!
//! What a GPU is spared: calls that break another thread's capture while that thread is inside a call
//! on it. The driver itself crashes then (580.159: one thread in a loop of `cuStreamBeginCapture`,
//! twenty `cuMemsetD8Async` and `cuStreamEndCapture`, another in a loop of `cuCtxSynchronize`, or of
//! `cuMemAlloc` if the capture is GLOBAL; no line of this crate, and a segmentation fault within
//! seconds). The simulated device plays those too.

#![allow(unreachable_pub)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use graph_runner::testing::Foreign;
use graph_runner::*;

#[allow(dead_code)]
#[path = "rules/common.rs"]
mod common;
#[path = "rules/gpu.rs"]
mod gpu;

use common::{Add, Gates, Triple};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

#[derive(Default, Debug)]
struct Counts {
    runs: AtomicU64,
    recorded: AtomicU64,
    refused: AtomicU64,
    broken: AtomicU64,
}

/// What somebody else does meanwhile.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Chaos {
    Nothing,
    /// Allocates, frees, synchronises a stream, makes and destroys graphs, while nobody captures in
    /// GLOBAL mode.
    Harmless,
    /// Breaks captures too.
    BreaksCaptures,
}

struct Bench<'d> {
    device: &'d Device,
    counts: &'d Counts,
    chaos: Chaos,
}

impl Bench<'_> {
    /// Runs a producer some times on some streams; `step` is what one run with a variant does to
    /// each element.
    fn play<P: Producer<Variant: From<u32>>>(
        &self,
        random: &mut Random,
        streams: &[Stream],
        x: &Buffer<u32>,
        producer: P,
        variants: u64,
        step: impl Fn(u32, u32) -> u32,
    ) {
        let mut runner = if random.below(2) == 0 {
            GraphRunner::new(self.device, producer).unwrap()
        } else {
            GraphRunner::with_default_stream(self.device, producer, &streams[0]).unwrap()
        };
        let mut expected = 0;
        for call in 0..4 + random.below(8) {
            let variant = if call == 0 { 0 } else { random.below(variants) as u32 };
            let value = P::Variant::from(variant);
            let eager = call > 0 && random.below(8) == 0;
            let policy = if eager { Policy::Eager } else { Policy::Auto };
            let mut made = runner.call().variant(value).policy(policy).sync(random.below(4) == 0);
            if call > 0 && random.below(3) == 0 {
                made = made.on(&streams[random.below(streams.len() as u64) as usize]);
            }
            let run = made.run().unwrap_or_else(|error| panic!("{error}: {:?}", error));
            assert_ne!(run.mode, Mode::Record, "nobody's capture is ours");
            if self.chaos != Chaos::BreaksCaptures {
                assert!(!matches!(run.reason, Reason::CaptureBroken | Reason::GivenUp));
            }
            expected = step(expected, variant);
            self.counts.runs.fetch_add(1, Ordering::Relaxed);
            if random.below(16) == 0 {
                runner.drop_graphs();
            }
        }
        self.counts.broken.fetch_add(runner.stats().broken_captures(), Ordering::Relaxed);
        let values = runner.read(x).unwrap();
        assert!(values.iter().all(|value| *value == expected), "{values:?}, not {expected}");
    }

    /// Records a producer into a capture of one's own, drops it, and launches the graph.
    fn record(&self, random: &mut Random, stream: &Stream) {
        let x = self.device.zeros(Add::LEN).unwrap();
        let mut runner =
            GraphRunner::with_default_stream(self.device, Add::on(self.device, x.clone()), stream)
                .unwrap();
        let modes = [CaptureMode::ThreadLocal, CaptureMode::Relaxed, CaptureMode::Global];
        let mode = modes[random.below(if self.chaos == Chaos::Harmless { 2 } else { 3 }) as usize];
        let times = 1 + random.below(4) as u32;
        let captured = stream.capture_with(mode, |capture| {
            for variant in 0..times {
                runner.call().variant(variant).record(capture)?;
            }
            Ok(())
        });
        drop(runner);
        match captured {
            Ok(graph) => {
                for launches in 1..=2 {
                    graph.launch(stream).unwrap();
                    let sum: u32 = (1..=times).sum();
                    assert_eq!(stream.read(&x).unwrap(), [launches * sum; Add::LEN]);
                }
                self.counts.recorded.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                assert_eq!(self.chaos, Chaos::BreaksCaptures, "{mode:?} capture harmed: {error}");
                let broken = matches!(error.root(), Error::Invalidated { .. })
                    || error.driver().is_some_and(|e| e.code() == DriverCode::CaptureInvalidated);
                assert!(broken, "{error}");
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn work(&self, seed: u64, go_on: impl Fn(u64) -> bool) {
        let mut random = Random(seed);
        let device = self.device;
        let streams = [device.stream().unwrap(), device.stream().unwrap()];
        let mut round = 0;
        while go_on(round) {
            round += 1;
            let x = device.zeros(Add::LEN).unwrap();
            match random.below(7) {
                0 | 1 => {
                    let add = Add::on(device, x.clone());
                    self.play(&mut random, &streams, &x, add, 20, |x, v| x.wrapping_add(1 + v));
                }
                2 => {
                    let gates = Gates::new(device);
                    let x = gates.x.clone();
                    self.play(&mut random, &streams, &x, gates, 4, Gates::expected);
                }
                3 => {
                    let add = Add::on(device, x.clone());
                    let triple = Triple::<true>::on(device, x.clone());
                    let program = Renamed(Program::new(add, triple));
                    let step = |x: u32, v: u32| x.wrapping_add(1 + v).wrapping_mul(3);
                    self.play(&mut random, &streams, &x, program, 3, step);
                }
                4 => {
                    let triple = Triple::<true>::on(device, x.clone());
                    device.set_to_one(&x, &streams[0]);
                    let step = |x: u32, _| if x == 0 { 3 } else { x.wrapping_mul(3) };
                    self.play(&mut random, &streams, &x, triple, 3, step);
                }
                5 => {
                    let triple = Triple::<false>::on(device, x.clone());
                    device.set_to_one(&x, &streams[0]);
                    let step = |x: u32, _| if x == 0 { 3 } else { x.wrapping_mul(3) };
                    self.play(&mut random, &streams, &x, triple, 3, step);
                }
                _ => self.record(&mut random, &streams[1]),
            }
        }
    }

    /// Allocates, frees, makes and destroys graphs, queries the legacy stream and synchronises the
    /// context, without any precaution.
    fn break_things(&self, seed: u64, stop: &AtomicBool) {
        let (foreign, mut random) = (Foreign::new(self.device), Random(seed));
        let own = self.device.stream().unwrap();
        let legacy = self.device.legacy_stream();
        while !stop.load(Ordering::Relaxed) {
            match random.below(if self.chaos == Chaos::Harmless { 3 } else { 5 }) {
                0 => {
                    if let Ok(address) = foreign.mem_alloc(256) {
                        // Refused while a GLOBAL capture is open somewhere.
                        while let Err(error) = foreign.mem_free(address) {
                            assert_eq!(error.code(), DriverCode::CaptureUnsupported);
                            std::thread::yield_now();
                        }
                    }
                }
                1 => drop(foreign.stream_synchronize(&own)),
                3 => drop(foreign.context_synchronize()),
                4 => drop(foreign.stream_query(&legacy)),
                _ => {
                    if foreign.begin_capture(&own, CaptureMode::Relaxed).is_ok()
                        && let Ok(graph) = foreign.end_capture(&own)
                    {
                        drop(graph.instantiate());
                    }
                }
            }
            std::thread::sleep(Duration::from_micros(random.below(40)));
        }
    }

    fn run(&self, threads: u64, seed: u64, go_on: impl Fn(u64) -> bool + Sync) {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            if self.chaos != Chaos::Nothing {
                scope.spawn(|| self.break_things(seed ^ 0xC4A05, &stop));
            }
            let workers: Vec<_> = (0..threads)
                .map(|thread| {
                    let go_on = &go_on;
                    scope.spawn(move || self.work(seed * 1000 + thread, go_on))
                })
                .collect();
            let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            stop.store(true, Ordering::Relaxed);
            for outcome in outcomes {
                if let Err(panic) = outcome {
                    std::panic::resume_unwind(panic);
                }
            }
        });
    }
}

trait SetToOne {
    fn set_to_one(&self, x: &Buffer<u32>, stream: &Stream);
}

impl SetToOne for Device {
    fn set_to_one(&self, x: &Buffer<u32>, stream: &Stream) {
        stream.enqueue(|cx| cx.fill(x, 1)).unwrap();
        stream.synchronize().unwrap();
    }
}

/// A program under one number: the variant of its first member.
struct Renamed<P>(P);

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct FirstOnly(u32);

impl From<u32> for FirstOnly {
    fn from(variant: u32) -> Self {
        Self(variant)
    }
}

impl Producer for Renamed<Program<Add, Triple<true>>> {
    type Kind = kind::Legacy;
    type Variant = FirstOnly;
    const NAME: &'static str = "add_and_triple";
}

impl Legacy for Renamed<Program<Add, Triple<true>>> {
    fn launch(&self, variant: &FirstOnly, cx: &mut LegacyLaunch<'_>) -> Result<()> {
        self.0.first.enqueue(&variant.0, cx)?;
        self.0.second.launch(&0, cx)
    }
}

fn settled(device: &Device, before: testing::Live) {
    let simulation = device.simulation().unwrap();
    // What foreign graphs kept is dropped by a thread of the crate's own.
    let deadline = Instant::now() + Duration::from_secs(20);
    while simulation.live() != before {
        assert!(Instant::now() < deadline, "{:?}, and before {before:?}", simulation.live());
        std::thread::yield_now();
    }
}

#[test]
fn many_threads_on_a_simulated_device() {
    let counts = Counts::default();
    for seed in 0..24 {
        let device = Device::simulated(seed);
        let before = device.simulation().unwrap().live();
        let chaos = [Chaos::Nothing, Chaos::BreaksCaptures, Chaos::Harmless][seed as usize % 3];
        let bench = Bench { device: &device, counts: &counts, chaos };
        bench.run(16, seed, |round| round < 40);
        settled(&device, before);
    }
    println!("{counts:?}");
    assert!(counts.runs.load(Ordering::Relaxed) > 50_000);
    assert!(counts.recorded.load(Ordering::Relaxed) > 1000);
}

#[test]
fn many_threads_on_a_gpu() {
    let Some(device) = gpu::device() else { return };
    let seconds = std::env::var("GRAPH_RUNNER_STRESS_SECONDS");
    let seconds = seconds.ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    for chaos in [Chaos::Nothing, Chaos::Harmless] {
        let counts = Counts::default();
        let bench = Bench { device: &device, counts: &counts, chaos };
        let end = Instant::now() + Duration::from_secs_f64(f64::from(seconds) / 2.0);
        bench.run(16, 7, |_| Instant::now() < end);
        println!("{chaos:?}: {counts:?}");
        assert!(counts.runs.load(Ordering::Relaxed) > 0);
    }
}
