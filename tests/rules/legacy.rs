//! S24 to S27: legacy producers and the calls that meet them.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use graph_runner::testing::Foreign;
use graph_runner::*;

use crate::common::*;

fn triple(device: &Device, x: &Buffer<u32>) -> Triple<true> {
    Triple::on(device, x.clone())
}

#[test]
fn s24_the_default_variant_is_captured_on_the_current_stream_and_others_run_eagerly() {
    each_device(|device| {
        let x = device.buffer(&[1; 4]).unwrap();
        let mut runner = GraphRunner::new(device, triple(device, &x)).unwrap();
        let elsewhere = device.stream().unwrap();
        let mut expected = 1;
        for (variant, reason) in [
            (0, Reason::Prepared),
            (0, Reason::Captured),
            (5, Reason::LegacyVariant),
            (0, Reason::Replayed),
            (5, Reason::LegacyVariant),
        ] {
            let run = runner.call().variant(variant).on(&elsewhere).run().unwrap();
            assert_eq!(run.reason, reason);
            expected *= 3;
            assert_eq!(elsewhere.read(&x).unwrap(), [expected; 4]);
        }
        assert_eq!(runner.variants().count(), 1);
    });
}

#[test]
fn s24_one_that_cannot_be_captured_always_runs_eagerly() {
    each_device(|device| {
        let x = device.buffer(&[1; 4]).unwrap();
        let mut runner = GraphRunner::new(device, Triple::<false>::on(device, x.clone())).unwrap();
        for calls in 1..=3 {
            assert_eq!(runner.run().unwrap().reason, Reason::LegacyNotCapturable);
            assert_eq!(first(&runner, &x), 3_u32.pow(calls));
        }
        let stream = device.current_stream();
        let refused = stream.capture(|_| match runner.call().on(&stream).run() {
            Err(Error::NotCapturable { host_stages, .. }) => {
                assert_eq!(host_stages, ["triple"]);
                Ok(())
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(refused.unwrap().nodes(), 0);
    });
}

#[test]
fn s25_eager_legacy_work_is_ordered_on_both_sides_of_the_callers_stream() {
    each_device(|device| {
        let x = device.zeros(4).unwrap();
        let mut runner = GraphRunner::new(device, triple(device, &x)).unwrap();
        let stream = device.stream().unwrap();
        for round in 1..=5 {
            stream.enqueue(|cx| cx.fill(&x, round)).unwrap();
            runner.call().on(&stream).policy(Policy::Eager).run().unwrap();
            assert_eq!(stream.read(&x).unwrap(), [3 * round; 4]);
        }
    });
}

#[test]
fn s25_nothing_is_launched_into_somebody_elses_capture_of_the_current_stream() {
    each_device(|device| {
        let x = device.buffer(&[1; 4]).unwrap();
        let (foreign, stream) = (Foreign::new(device), device.stream().unwrap());
        let producer = triple(device, &x);
        let mut runner = GraphRunner::with_default_stream(device, producer, &stream).unwrap();
        runner.prepare().unwrap();
        foreign.begin_capture(&device.current_stream(), CaptureMode::ThreadLocal).unwrap();
        for policy in [Policy::Eager, Policy::Auto] {
            let error = runner.call().on(&stream).policy(policy).run().unwrap_err();
            assert!(matches!(error, Error::LegacyStream { producer: "triple", .. }), "{error}");
            let planned = runner.call().on(&stream).policy(policy).plan().unwrap_err();
            assert_eq!(planned.to_string(), error.to_string());
        }
        let graph = foreign.end_capture(&device.current_stream()).unwrap();
        assert_eq!(graph.nodes().unwrap(), 0);
        assert_eq!(stream.read(&x).unwrap(), [3; 4]);
        runner.call().on(&stream).run().unwrap();
        assert_eq!(stream.read(&x).unwrap(), [9; 4]);
    });
}

/// Runs `call` on a thread while this one holds the lock; whether it came back by itself.
fn returns_without_the_lock(
    device: &Device,
    patience: Duration,
    call: impl FnOnce() + Send,
) -> bool {
    let x = device.zeros(4).unwrap();
    let pending = GraphRunner::new(device, triple(device, &x)).unwrap();
    let serial = pending.serial(None).unwrap();
    assert!(serial.is_held());
    std::thread::scope(|scope| {
        let (done, wait) = mpsc::channel();
        scope.spawn(move || {
            call();
            let _ = done.send(());
        });
        let came_back = wait.recv_timeout(patience).is_ok();
        drop(serial);
        came_back
    })
}

#[test]
fn s26_calls_on_the_current_stream_wait_while_a_legacy_producer_is_pending_and_no_others_do() {
    each_device_once(|device| {
        let stream = device.stream().unwrap();
        let mut elsewhere =
            GraphRunner::with_default_stream(device, Add::new(device), &stream).unwrap();
        let mut on_current = GraphRunner::new(device, Add::new(device)).unwrap();
        let mut gates =
            GraphRunner::with_default_stream(device, Gates::new(device), &stream).unwrap();
        elsewhere.run().unwrap();
        on_current.run().unwrap();
        gates.run().unwrap();
        assert!(returns_without_the_lock(device, Duration::from_secs(60), || {
            for variant in [0, 0, 1, 1] {
                elsewhere.call().variant(variant).sync(true).run().unwrap();
                gates.call().variant(variant).sync(true).run().unwrap();
            }
        }));
        let patience = Duration::from_millis(400);
        assert!(!returns_without_the_lock(device, patience, || drop(on_current.run().unwrap())));
        assert_eq!(first(&on_current, &on_current.producer().x), 2);
    });
}

#[test]
fn s26_nobody_waits_for_a_runner_that_captured_or_is_gone() {
    each_device_once(|device| {
        let x = device.zeros(4).unwrap();
        let mut add = GraphRunner::new(device, Add::new(device)).unwrap();
        let mut legacy = GraphRunner::new(device, triple(device, &x)).unwrap();
        assert!(add.serial(None).unwrap().is_held());
        legacy.run().unwrap();
        assert!(add.serial(None).unwrap().is_held(), "prepared, not captured");
        legacy.run().unwrap();
        assert!(!add.serial(None).unwrap().is_held());
        legacy.drop_graphs();
        assert!(add.serial(None).unwrap().is_held());
        drop(legacy);
        assert!(!add.serial(None).unwrap().is_held());
        add.run().unwrap();
    });
}

#[test]
fn s27_the_lock_is_reentrant_and_callers_may_hold_it_around_a_run() {
    each_device(|device| {
        let x = device.zeros(4).unwrap();
        let mut legacy = GraphRunner::new(device, triple(device, &x)).unwrap();
        for round in 1..=4 {
            let _outer = legacy.serial(None).unwrap();
            let _inner = legacy.serial(None).unwrap();
            device.current_stream().enqueue(|cx| cx.fill(&x, round)).unwrap();
            legacy.run().unwrap();
            assert_eq!(first(&legacy, &x), 3 * round);
        }
    });
}

#[test]
fn s27_a_legacy_capture_is_never_taken_for_a_callers() {
    // A legacy producer prepares and captures over and over, while calls on the current stream ask
    // its state: none may find a capture there.
    each_device_once(|device| {
        let rounds = 60;
        std::thread::scope(|scope| {
            let x = device.zeros(4).unwrap();
            let mut legacy = GraphRunner::new(device, triple(device, &x)).unwrap();
            scope.spawn(move || {
                for _ in 0..rounds {
                    legacy.run().unwrap();
                    legacy.run().unwrap();
                    assert_eq!(legacy.graph().unwrap().nodes(), 1);
                    legacy.drop_graphs();
                }
            });
            for _ in 0..3 {
                let mut add = GraphRunner::new(device, Add::new(device)).unwrap();
                let mut gates = GraphRunner::new(device, Gates::new(device)).unwrap();
                scope.spawn(move || {
                    let mut expected = 0;
                    for round in 0..rounds {
                        let run = add.run().unwrap();
                        assert_ne!(run.mode, Mode::Record);
                        assert_ne!(gates.run().unwrap().mode, Mode::Record);
                        expected = Gates::expected(expected, 0);
                        assert_eq!(first(&gates, &gates.producer().x), expected);
                        if round % 16 == 0 {
                            add.drop_graphs();
                        }
                    }
                    assert_eq!(first(&add, &add.producer().x), rounds);
                });
            }
        });
    });
}

#[test]
fn s26_calls_on_another_devices_current_stream_keep_no_legacy_capture_waiting() {
    let (one, two) = (Device::simulated(1), Device::simulated(2));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut add = GraphRunner::new(&one, Add::new(&one)).unwrap();
                (0..4000).for_each(|_| drop(add.run().unwrap()));
                assert_eq!(first(&add, &add.producer().x), 4000);
            });
        }
        scope.spawn(|| {
            let x = two.zeros(4).unwrap();
            let mut legacy = GraphRunner::new(&two, triple(&two, &x)).unwrap();
            for _ in 0..2000 {
                legacy.run().unwrap();
                legacy.run().unwrap();
                legacy.drop_graphs();
            }
        });
    });
}

/// Does what `meet` asks for in the middle of its capture.
struct Met<F: Fn(usize)> {
    triple: Triple<true>,
    runs: AtomicUsize,
    meet: F,
}

impl<F: Fn(usize)> Producer for Met<F> {
    type Kind = kind::Legacy;
    type Variant = ();
    const NAME: &'static str = "met";
}

impl<F: Fn(usize)> Legacy for Met<F> {
    fn launch(&self, (): &(), cx: &mut LegacyLaunch<'_>) -> Result<()> {
        (self.meet)(self.runs.fetch_add(1, Ordering::SeqCst));
        self.triple.launch(&0, cx)
    }
}

#[test]
fn s27_whatever_touches_the_current_stream_waits_for_a_legacy_capture() {
    each_device_once(|device| {
        let elsewhere = device.stream().unwrap();
        // One that ran on the current stream and goes elsewhere now, one that is made and prepares
        // elsewhere, and one that reads what it did on the current stream.
        let mut moves = GraphRunner::new(device, Add::new(device)).unwrap();
        moves.run().unwrap();
        moves.run().unwrap();
        let mut reads = GraphRunner::new(device, Add::new(device)).unwrap();
        reads.run().unwrap();
        let (go, wait) = mpsc::channel::<()>();
        let go = std::sync::Mutex::new(Some(go));
        std::thread::scope(|scope| {
            let elsewhere = &elsewhere;
            let meeting = scope.spawn(move || {
                wait.recv().unwrap_err();
                moves.call().on(elsewhere).run().unwrap();
                assert_eq!(first(&reads, &reads.producer().x), 1);
                let made = Add::new(device);
                let mut made = GraphRunner::with_default_stream(device, made, elsewhere).unwrap();
                made.run().unwrap();
                made.run().unwrap();
                assert_eq!(first(&moves, &moves.producer().x), 3);
                assert_eq!(first(&made, &made.producer().x), 2);
            });
            let x = device.buffer(&[1; 4]).unwrap();
            let met = Met {
                triple: triple(device, &x),
                runs: AtomicUsize::new(0),
                // The second run is the capture: let the others go, and give them time.
                meet: |run| {
                    if run == 1 {
                        drop(go.lock().unwrap().take());
                        std::thread::sleep(Duration::from_millis(100));
                    }
                },
            };
            let mut legacy = GraphRunner::new(device, met).unwrap();
            legacy.run().unwrap();
            assert_eq!(legacy.run().unwrap().reason, Reason::Captured);
            assert_eq!(legacy.graph().unwrap().nodes(), 1);
            meeting.join().unwrap();
            assert_eq!(first(&legacy, &x), 9);
        });
    });
}

/// What a C library keeps, behind a pointer: everything it needs to launch on a stream.
struct Library {
    device: Device,
    x: Buffer<u32>,
    kernel: Kernel<MultiplyArgs>,
    calls: AtomicUsize,
    /// Whether it forgets about the stream it is given.
    careless: bool,
    /// Whether it tells what the driver answered.
    honest: bool,
}

impl Library {
    #[allow(unsafe_code)]
    fn scale(&self, stream: u64) -> c_int {
        self.calls.fetch_add(1, Ordering::SeqCst);
        // SAFETY: whoever calls a library with a stream keeps that alive.
        let stream = unsafe { self.device.stream_from_raw(if self.careless { 0 } else { stream }) };
        let n = self.x.len();
        let launched =
            stream.enqueue(|cx| cx.launch(&self.kernel, Grid::over(n), (&self.x, 3, n as u32)));
        match launched {
            Ok(()) => 0,
            Err(_) if !self.honest => 0,
            Err(error) => match error.root() {
                Error::ImplicitCapture { .. } => DriverCode::CaptureImplicit.number(),
                _ => error.driver().map_or(999, |error| error.code().number()),
            },
        }
    }
}

#[allow(unsafe_code)]
unsafe extern "C" fn library_scale(stream: *mut c_void, data: *mut c_void) -> c_int {
    // SAFETY: called with the library's own data.
    unsafe { &*data.cast::<Library>() }.scale(stream as u64)
}

struct ThroughC(Arc<Library>);

impl Producer for ThroughC {
    type Kind = kind::Legacy;
    type Variant = ();
    const NAME: &'static str = "through_c";
}

#[allow(unsafe_code)]
impl Legacy for ThroughC {
    fn launch(&self, (): &(), cx: &mut LegacyLaunch<'_>) -> Result<()> {
        cx.keep_alive(&self.0);
        // SAFETY: the function takes a library, which the graph keeps alive.
        unsafe { cx.call(library_scale, Arc::as_ptr(&self.0).cast_mut().cast()) }
    }
}

fn library(device: &Device, x: &Buffer<u32>, careless: bool, honest: bool) -> Arc<Library> {
    let kernel = device.load(&multiply_kernel()).unwrap();
    let (device, x, calls) = (device.clone(), x.clone(), AtomicUsize::new(0));
    Arc::new(Library { device, x, kernel, calls, careless, honest })
}

#[test]
fn s24_a_c_function_is_captured_through_the_stream_it_is_given() {
    each_device(|device| {
        let x = device.buffer(&[1; 4]).unwrap();
        let library = library(device, &x, false, true);
        let mut runner = GraphRunner::new(device, ThroughC(Arc::clone(&library))).unwrap();
        for calls in 1..=5 {
            runner.run().unwrap();
            assert_eq!(first(&runner, &x), 3_u32.pow(calls));
        }
        assert_eq!(library.calls.load(Ordering::SeqCst), 2);
        assert_eq!(runner.graph().unwrap().nodes(), 1);
    });
}

#[test]
fn s24_a_launch_on_the_legacy_default_stream_is_found_and_named() {
    each_device(|device| {
        let x = device.buffer(&[1; 4]).unwrap();
        for honest in [true, false] {
            let library = library(device, &x, true, honest);
            let mut runner = GraphRunner::new(device, ThroughC(library)).unwrap();
            runner.run().unwrap();
            let error = runner.run().unwrap_err();
            let named = matches!(error, Error::LegacyDefaultStream { producer: "through_c", .. });
            assert_eq!(named, honest, "{error}");
            assert!(error.to_string().contains("legacy default stream"), "{error}");
            assert!(runner.graph().is_none());
            assert!(!device.current_stream().is_capturing().unwrap());
            runner.call().policy(Policy::Eager).sync(true).run().unwrap();
        }

        // On a non-blocking current stream CUDA lets it run, and leaves it out of the graph.
        let open = device.stream().unwrap();
        let before = device.set_current_stream(&open).unwrap();
        let mut runner =
            GraphRunner::new(device, ThroughC(library(device, &x, true, true))).unwrap();
        runner.run().unwrap();
        let error = runner.run().unwrap_err();
        device.set_current_stream(&before).unwrap();
        assert!(matches!(error, Error::EmptyCapture { nodes: 0, .. }), "{error}");
        assert!(error.to_string().contains("legacy default stream"), "{error}");
    });
}
