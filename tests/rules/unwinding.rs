//! S21 and S32: captures that are really broken, and what is left after each.

use std::sync::atomic::{AtomicUsize, Ordering};

use graph_runner::testing::Foreign;
use graph_runner::*;

use crate::common::*;

/// Adds 1, does what `misdeed` does while it is captured, and adds 1 again.
struct Careless {
    add: Add,
    device: Device,
    other: Stream,
    runs: AtomicUsize,
    misdeed: fn(&Self, &mut Enqueue<'_>, usize),
}

impl Producer for Careless {
    type Kind = kind::Capturable;
    type Variant = ();
    const NAME: &'static str = "careless";
}

impl Capturable for Careless {
    fn enqueue(&self, (): &(), cx: &mut Enqueue<'_>) -> Result<()> {
        self.add.enqueue(&0, cx)?;
        (self.misdeed)(self, cx, self.runs.fetch_add(1, Ordering::SeqCst));
        self.add.enqueue(&0, cx)
    }
}

#[allow(unsafe_code)]
fn stream_of(careless: &Careless, cx: &mut Enqueue<'_>) -> Stream {
    // SAFETY: the misdeeds here are played on devices that answer them with errors.
    unsafe { careless.device.stream_from_raw(cx.raw_stream()) }
}

/// Runs a careless producer and checks what is left after each call.
fn play(misdeed: fn(&Careless, &mut Enqueue<'_>, usize), check: impl Fn(usize, Result<Run>)) {
    each_device(|device| {
        let careless = Careless {
            add: Add::new(device),
            device: device.clone(),
            other: device.stream().unwrap(),
            runs: AtomicUsize::new(0),
            misdeed,
        };
        let mut runner = GraphRunner::new(device, careless).unwrap();
        runner.prepare().unwrap();
        let before = device.simulation().map(|simulation| simulation.live());
        for call in 0..2 {
            check(call, runner.call().sync(true).run());
            let other = &runner.producer().other;
            assert!(!other.is_capturing().unwrap());
            other.enqueue(|cx| cx.fill(&runner.producer().add.x, 7)).unwrap();
            assert_eq!(other.read(&runner.producer().add.x).unwrap(), [7; Add::LEN]);
            if let (Some(simulation), Some(before)) = (device.simulation(), before)
                && runner.graph().is_none()
            {
                let after = simulation.live();
                assert_eq!(after.captures, 0);
                assert_eq!((after.graphs, after.execs), (before.graphs, before.execs));
                assert_eq!(after.allocations, before.allocations);
                assert_eq!(after.events, before.events);
            }
            runner.call().policy(Policy::Eager).sync(true).run().unwrap();
            assert_eq!(first(&runner, &runner.producer().add.x), 9);
        }
    });
}

#[test]
fn s21_a_synchronisation_smuggled_into_the_body() {
    play(
        |careless, cx, _| {
            let stream = stream_of(careless, cx);
            let _ = Foreign::new(&careless.device).stream_synchronize(&stream);
        },
        |_, result| match result {
            Err(Error::BodyBrokeCapture { producer: "careless", part, place, .. }) => {
                assert_eq!(part, "body");
                assert!(place.contains("operation 2 (launch of `add`)"), "{place}");
            }
            other => panic!("{other:?}"),
        },
    );
}

#[test]
fn s21_an_allocation_smuggled_into_the_body() {
    play(
        |careless, _, _| {
            let foreign = Foreign::new(&careless.device);
            if let Ok(address) = foreign.mem_alloc(64) {
                foreign.mem_free(address).unwrap();
            }
        },
        |_, result| match result {
            Err(Error::BodyBrokeCapture { place, source, .. }) => {
                assert!(place.contains("operation 2 (launch of `add`)"), "{place}");
                assert_eq!(source.code(), DriverCode::CaptureInvalidated);
            }
            other => panic!("{other:?}"),
        },
    );
}

#[test]
fn s21_a_fork_that_never_joins() {
    play(
        |careless, cx, _| {
            let (stream, foreign) = (stream_of(careless, cx), Foreign::new(&careless.device));
            if !stream.is_capturing().unwrap() {
                return;
            }
            let event = foreign.event().unwrap();
            event.record(&stream).unwrap();
            event.make_wait(&careless.other).unwrap();
            careless.other.enqueue(|cx| cx.fill(&careless.add.x, 3)).unwrap();
        },
        |_, result| match result {
            Err(Error::BodyBrokeCapture { producer: "careless", place, source, .. }) => {
                assert!(place.contains("never joins"), "{place}");
                assert_eq!(source.code(), DriverCode::CaptureUnjoined);
            }
            other => panic!("{other:?}"),
        },
    );
}

#[test]
fn s21_another_thread_synchronises_the_context_in_the_capture_window() {
    // Runs: 0 prepares, 1 is the broken capture, 2 its retry.
    play(
        |careless, _, run| {
            if run == 1 {
                let foreign = Foreign::new(&careless.device);
                std::thread::scope(|scope| {
                    scope.spawn(|| foreign.context_synchronize().unwrap_err());
                });
            }
        },
        |call, result| {
            let run = result.unwrap();
            assert_eq!(run.mode, Mode::SelfGraph);
            let reasons = [Reason::Captured, Reason::Replayed];
            assert_eq!(run.reason, reasons[call]);
        },
    );
}

#[test]
fn s03_work_that_goes_to_another_stream_is_an_error_and_no_empty_replay() {
    /// All of its work goes elsewhere.
    struct Astray(Buffer<u32>, Stream);
    impl Producer for Astray {
        type Kind = kind::Capturable;
        type Variant = ();
        const NAME: &'static str = "astray";
    }
    impl Capturable for Astray {
        fn enqueue(&self, (): &(), _: &mut Enqueue<'_>) -> Result<()> {
            self.1.enqueue(|cx| cx.fill(&self.0, 1))
        }
    }
    each_device(|device| {
        for stream in [device.stream().unwrap(), device.legacy_stream()] {
            let astray = Astray(device.zeros(4).unwrap(), stream);
            let mut runner = GraphRunner::new(device, astray).unwrap();
            runner.prepare().unwrap();
            match runner.run() {
                Err(Error::EmptyCapture { producer: "astray", enqueued: 1, nodes: 0, .. }) => {}
                other => panic!("{other:?}"),
            }
            assert!(runner.graph().is_none());
            runner.call().policy(Policy::Eager).run().unwrap();
        }
    });
}

#[test]
fn s03_a_variant_that_enqueues_nothing_is_an_empty_graph_and_right() {
    struct Sized(Buffer<u32>);
    impl Producer for Sized {
        type Kind = kind::Capturable;
        type Variant = usize;
        const NAME: &'static str = "sized";
    }
    impl Capturable for Sized {
        fn enqueue(&self, n: &usize, cx: &mut Enqueue<'_>) -> Result<()> {
            cx.fill(&self.0.slice(..*n)?, 1)
        }
    }
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Sized(device.zeros(4).unwrap())).unwrap();
        for n in [0, 0, 2, 0, 2] {
            runner.call().variant(n).run().unwrap();
        }
        assert_eq!(runner.read(&runner.producer().0).unwrap(), [1, 1, 0, 0]);
        assert_eq!(runner.graph_for(&0).unwrap().nodes(), 0);
    });
}

#[test]
fn s03_graphs_take_the_priority_of_the_default_stream() {
    each_device(|device| {
        let urgent = device.stream_with_priority(-2).unwrap();
        assert_eq!(urgent.priority().unwrap(), -2);
        assert_eq!(device.stream_with_priority(9).unwrap().priority().unwrap(), 0);
        /// Notes the priority of the streams that it is enqueued on.
        struct Noting(Device, std::sync::Mutex<Vec<i32>>, Buffer<u32>);
        impl Producer for Noting {
            type Kind = kind::Capturable;
            type Variant = ();
            const NAME: &'static str = "noting";
        }
        #[allow(unsafe_code)]
        impl Capturable for Noting {
            fn enqueue(&self, (): &(), cx: &mut Enqueue<'_>) -> Result<()> {
                // SAFETY: only its priority is asked.
                let stream = unsafe { self.0.stream_from_raw(cx.raw_stream()) };
                self.1.lock().unwrap().push(stream.priority()?);
                cx.fill(&self.2, 1)
            }
        }
        let noting = Noting(device.clone(), Default::default(), device.zeros(1).unwrap());
        let mut runner = GraphRunner::with_default_stream(device, noting, &urgent).unwrap();
        runner.run().unwrap();
        runner.run().unwrap();
        assert_eq!(*runner.producer().1.lock().unwrap(), [-2, -2]);
    });
}
