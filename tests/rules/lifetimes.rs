//! S7 and S30 to S35: captures of others, lifetimes, unwinding.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use graph_runner::testing::Foreign;
use graph_runner::*;

use crate::common::*;

const MODES: [CaptureMode; 3] =
    [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];

#[test]
fn s01_a_capture_that_somebody_else_began_is_recorded_into() {
    each_device(|device| {
        for mode in MODES {
            let foreign = Foreign::new(device);
            let mut runner = GraphRunner::new(device, Add::new(device)).unwrap();
            let stream = device.stream().unwrap();
            foreign.begin_capture(&stream, mode).unwrap();
            let run = runner.call().on(&stream).sync(true).run().unwrap();
            assert_eq!(run.mode, Mode::Record);
            let x = runner.producer().x.clone();
            drop(runner);
            let graph = foreign.end_capture(&stream).unwrap();
            let exec = graph.instantiate().unwrap();
            exec.launch(&stream).unwrap();
            exec.launch(&stream).unwrap();
            assert_eq!(stream.read(&x).unwrap(), [2; Add::LEN], "{mode:?}");
        }
    });
}

#[test]
fn s07_an_invalid_capture_is_reported_and_left_alone() {
    each_device(|device| {
        let foreign = Foreign::new(device);
        let mut runner = GraphRunner::new(device, Add::new(device)).unwrap();
        runner.prepare().unwrap();
        let stream = device.stream().unwrap();
        foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
        foreign.stream_synchronize(&stream).unwrap_err();
        for _ in 0..2 {
            let error = runner.call().on(&stream).run().unwrap_err();
            assert!(matches!(error, Error::Invalidated { .. }), "{error}");
            let error = stream.synchronize().unwrap_err();
            assert!(matches!(error, Error::Invalidated { .. }), "{error}");
        }
        assert_eq!(runner.producer().bodies(), 1);
        assert!(stream.is_capturing().unwrap(), "still for its owner to end");
        foreign.end_capture(&stream).unwrap_err();
        runner.call().on(&stream).run().unwrap();
        assert_eq!(first(&runner, &runner.producer().x), 2);
    });
}

#[test]
fn s30_a_self_graph_outlives_every_handle() {
    each_device(|device| {
        let x = device.zeros(Add::LEN).unwrap();
        let stream = device.stream().unwrap();
        let graph = {
            let mut runner = GraphRunner::new(device, Add::on(device, x.clone())).unwrap();
            runner.prepare().unwrap();
            runner.call().on(&stream).run().unwrap();
            runner.graph().unwrap().clone()
        };
        graph.launch(&stream).unwrap();
        assert_eq!(stream.read(&x).unwrap(), [3; Add::LEN]);
        let before = device.simulation().map(|simulation| simulation.live());
        drop(x);
        graph.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        if let (Some(simulation), Some(before)) = (device.simulation(), before) {
            assert_eq!(simulation.live().allocations, before.allocations);
            assert_eq!(simulation.live().kernels, before.kernels);
            drop(graph);
            assert_eq!(simulation.live().allocations, before.allocations - 1);
            assert_eq!(simulation.live().kernels, before.kernels - 1);
        }
    });
}

#[test]
fn s30_a_callers_graph_outlives_every_handle() {
    each_device(|device| {
        let stream = device.stream().unwrap();
        let out = device.zeros(Add::LEN).unwrap();
        let graph = {
            let x = device.zeros(Add::LEN).unwrap();
            let mut runner = GraphRunner::new(device, Add::on(device, x.clone())).unwrap();
            stream
                .capture(|capture| {
                    runner.record(capture)?;
                    capture.enqueue().copy(&x, &out)
                })
                .unwrap()
        };
        for launches in 1..=3 {
            graph.launch(&stream).unwrap();
            assert_eq!(stream.read(&out).unwrap(), [launches; Add::LEN]);
        }
    });
}

#[test]
fn s30_a_foreign_graph_anchors_what_was_recorded_and_lets_go_of_it_in_the_end() {
    each_device(|device| {
        let foreign = Foreign::new(device);
        let stream = device.stream().unwrap();
        let out = device.zeros(Add::LEN).unwrap();
        let before = device.simulation().map(|simulation| simulation.live());
        foreign.begin_capture(&stream, CaptureMode::Global).unwrap();
        {
            let x = device.zeros(Add::LEN).unwrap();
            stream.enqueue(|cx| cx.fill(&x, 5)).unwrap();
            // Two captures at once would be made here, were construction not refused elsewhere.
            stream.enqueue(|cx| cx.copy(&x, &out)).unwrap();
        }
        let graph = foreign.end_capture(&stream).unwrap();
        let exec = graph.instantiate().unwrap();
        drop(graph);
        exec.launch(&stream).unwrap();
        assert_eq!(stream.read(&out).unwrap(), [5; Add::LEN]);
        drop(exec);
        if let (Some(simulation), Some(before)) = (device.simulation(), before) {
            // What the driver handed back is dropped by a thread of this crate's own.
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
            while simulation.live().allocations != before.allocations {
                assert!(std::time::Instant::now() < deadline, "{:?}", simulation.live());
                std::thread::yield_now();
            }
        }
    });
}

#[test]
fn s31_housekeeping_harms_no_capture_of_any_mode_on_any_thread() {
    each_device(|device| {
        let foreign = Foreign::new(device);
        for mode in MODES {
            for other_thread in [false, true] {
                let mut runner = GraphRunner::new(device, Add::new(device)).unwrap();
                runner.run().unwrap();
                runner.run().unwrap();
                let stream = device.stream().unwrap();
                foreign.begin_capture(&stream, mode).unwrap();
                let housekeeping = || {
                    let x = device.buffer(&[1_u32; 8]).unwrap();
                    let other = device.stream().unwrap();
                    assert_eq!(other.read(&x).unwrap(), [1; 8]);
                    other.wait_for(&device.current_stream()).unwrap();
                    other.synchronize().unwrap();
                    let kernel = device.load(&add_kernel()).unwrap();
                    let mut again = GraphRunner::new(device, Add::on(device, x)).unwrap();
                    again.prepare().unwrap();
                    again.run().unwrap();
                    again.call().variant(3).on(&other).sync(true).run().unwrap();
                    drop((kernel, again));
                };
                if other_thread {
                    std::thread::scope(|scope| {
                        scope.spawn(housekeeping).join().unwrap();
                    });
                    runner.drop_graphs();
                } else {
                    housekeeping();
                    runner.drop_graphs();
                }
                let run = runner.call().on(&stream).run().unwrap();
                assert_eq!(run.mode, Mode::Record);
                drop(runner);
                foreign
                    .end_capture(&stream)
                    .unwrap_or_else(|e| panic!("{mode:?}, other thread {other_thread}: {e}"));
            }
        }
    });
}

/// Fails or panics in its body on demand.
struct Moody {
    add: Add,
    calls: Arc<AtomicUsize>,
    fails_at: usize,
    panics: bool,
}

impl Producer for Moody {
    type Kind = kind::Capturable;
    type Variant = ();
    const NAME: &'static str = "moody";
}

impl Capturable for Moody {
    fn enqueue(&self, (): &(), cx: &mut Enqueue<'_>) -> Result<()> {
        self.add.enqueue(&0, cx)?;
        if self.calls.fetch_add(1, Ordering::SeqCst) + 1 == self.fails_at {
            if self.panics {
                panic!("a bad mood");
            }
            return Err(Error::other("a bad mood"));
        }
        Ok(())
    }
}

#[test]
fn s32_an_error_or_panic_in_a_body_unwinds_cleanly() {
    each_device(|device| {
        for panics in [false, true] {
            // 1: the preparing run; 2: the capture.
            for fails_at in 1..=2 {
                let calls = Arc::default();
                let moody = Moody { add: Add::new(device), calls, fails_at, panics };
                let mut runner = GraphRunner::new(device, moody).unwrap();
                let before = device.simulation().map(|simulation| simulation.live());
                let failed = (0..2).find_map(|_| {
                    let result = catch_unwind(AssertUnwindSafe(|| runner.run()));
                    match result {
                        Ok(Ok(_)) => None,
                        Ok(Err(error)) => Some(error.root().to_string()),
                        Err(panic) => Some((*panic.downcast_ref::<&str>().unwrap()).to_owned()),
                    }
                });
                assert_eq!(failed.as_deref(), Some("a bad mood"));
                if let (Some(simulation), Some(before)) = (device.simulation(), before) {
                    let after = simulation.live();
                    assert_eq!(after.captures, 0);
                    assert_eq!((after.graphs, after.execs), (before.graphs, before.execs));
                    assert_eq!(after.allocations, before.allocations);
                }
                let so_far = first(&runner, &runner.producer().add.x);
                for more in 1..=3 {
                    runner.run().unwrap();
                    assert_eq!(first(&runner, &runner.producer().add.x), so_far + more);
                }
                assert!(runner.graph().is_some());
            }
        }
    });
}

#[test]
fn s32_a_callers_capture_ends_when_its_closure_fails_or_panics() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Add::new(device)).unwrap();
        let stream = device.stream().unwrap();
        let failed = stream.capture(|capture| {
            runner.record(capture)?;
            Err(Error::other("a bad mood"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "a bad mood");
        assert!(!stream.is_capturing().unwrap());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            stream.capture(|capture| {
                runner.record(capture)?;
                panic!("a bad mood")
            })
        }));
        assert!(panicked.is_err());
        assert!(!stream.is_capturing().unwrap());
        runner.call().on(&stream).run().unwrap();
        assert_eq!(first(&runner, &runner.producer().x), 1);
        if let Some(simulation) = device.simulation() {
            assert_eq!((simulation.live().graphs, simulation.live().captures), (0, 0));
        }
    });
}

#[test]
fn s33_sync_blocks_except_when_recording_or_under_a_foreign_capture() {
    for seed in 0..16 {
        let device = Device::simulated(seed);
        let simulation = device.simulation().unwrap();
        let mut runner = GraphRunner::new(&device, Add::new(&device)).unwrap();
        runner.prepare().unwrap();
        runner.run().unwrap();
        assert!(simulation.pending() > 0, "an enqueued replay has not run yet");
        runner.call().sync(true).run().unwrap();
        assert_eq!(simulation.pending(), 0);

        let stream = device.stream().unwrap();
        let graph = stream.capture(|_| {
            runner.call().on(&stream).sync(true).run()?;
            Ok(())
        });
        assert_eq!(graph.unwrap().nodes(), 1);

        let (probed, theirs) = (device.clone(), stream.clone());
        let probe = register_foreign_probe(move |device| {
            (*device == probed && theirs.is_capturing().unwrap_or(false)).then(|| theirs.clone())
        });
        let graph = stream.capture(|_| {
            runner.call().on(&device.current_stream()).sync(true).run()?;
            assert!(simulation.pending() > 0);
            Ok(())
        });
        assert_eq!(graph.unwrap().nodes(), 0);
        drop(probe);
    }
}

#[test]
fn s34_every_reason_is_counted() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Add::new(device)).unwrap();
        runner.set_variant_limit(0);
        let stream = device.stream().unwrap();
        let mut reasons = Vec::new();
        for _ in 0..3 {
            reasons.push(runner.run().unwrap().reason);
        }
        reasons.push(runner.call().variant(1).run().unwrap().reason);
        reasons.push(runner.call().policy(Policy::Eager).run().unwrap().reason);
        stream
            .capture(|capture| {
                reasons.push(runner.record(capture)?.reason);
                Ok(())
            })
            .unwrap();
        use Reason::{CallerCapture, Captured, Prepared, Replayed, VariantLimit};
        let expected = [Prepared, Captured, Replayed, VariantLimit, Reason::Policy, CallerCapture];
        assert_eq!(reasons, expected);
        for reason in expected {
            assert_eq!(runner.stats().runs(reason), 1, "{reason}");
            assert_eq!(reason.is_downgrade(), reason == VariantLimit);
        }
    });
}

#[test]
fn s35_a_refused_driver_call_is_an_error_value_wherever_it_happens() {
    // Every driver call of a whole life, refused once: no panic, and the next run works.
    for call in 0.. {
        let device = Device::simulated(call);
        let simulation = device.simulation().unwrap();
        let x = device.zeros(Add::LEN).unwrap();
        let kernel = device.load(&add_kernel()).unwrap();
        let stream = device.stream().unwrap();
        let add = Add { x: x.clone(), kernel, bodies: Arc::default() };
        simulation.fail_call(call, DriverCode::OutOfMemory);
        let before = simulation.calls();
        let lived = (|| -> Result<GraphRunner<Add>> {
            let mut runner = GraphRunner::new(&device, add)?;
            runner.run()?;
            runner.run()?;
            runner.call().variant(2).on(&stream).run()?;
            let graph = stream.capture(|capture| runner.record(capture).map(drop))?;
            graph.launch(&stream)?;
            runner.call().policy(Policy::Eager).sync(true).run()?;
            Ok(runner)
        })();
        let reached = simulation.calls() - before > call;
        if let Err(error) = &lived {
            assert!(error.driver().is_some(), "{error}");
            assert!(!error.to_string().is_empty() && !format!("{error:?}").is_empty());
        }
        drop(lived);
        assert_eq!(simulation.live().captures, 0, "call {call}");
        stream.synchronize().unwrap();
        let so_far = stream.read(&x).unwrap()[0];
        let mut runner = GraphRunner::new(&device, Add::on(&device, x)).unwrap();
        runner.run().unwrap();
        runner.run().unwrap();
        assert_eq!(first(&runner, &runner.producer().x), so_far + 2, "call {call}");
        if !reached {
            assert!(call > 20, "the life has driver calls: {call}");
            break;
        }
    }
}
