//! S18, S19: construction and preparing.

use graph_runner::testing::Foreign;
use graph_runner::*;

use crate::common::*;

fn is_capture_error<T>(result: Result<T>, expected: OpenCapture) {
    match result {
        Err(Error::Capture { open, .. }) => assert_eq!(open, expected),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("not refused"),
    }
}

#[test]
fn s18_construction_and_preparing_are_refused_while_a_capture_is_open() {
    each_device(|device| {
        let stream = device.stream().unwrap();
        let build = |default: Option<&Stream>| match default {
            Some(stream) => GraphRunner::with_default_stream(device, Add::new(device), stream),
            None => GraphRunner::new(device, Add::new(device)),
        };
        let mut early = build(Some(&stream)).unwrap();
        let graph = stream.capture(|_| {
            is_capture_error(build(Some(&stream)), OpenCapture::Resolved);
            is_capture_error(
                device.ensure_not_capturing(Some(&stream), "a test"),
                OpenCapture::Resolved,
            );
            is_capture_error(early.prepare(), OpenCapture::Resolved);
            Ok(())
        });
        assert_eq!(graph.unwrap().nodes(), 0);
        let foreign = Foreign::new(device);
        foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
        device.ensure_not_capturing(None, "a test").unwrap();
        is_capture_error(early.prepare(), OpenCapture::Resolved);
        assert_eq!(foreign.end_capture(&stream).unwrap().nodes().unwrap(), 0);
        assert!(!early.is_prepared());
        assert_eq!(early.producer().bodies(), 0);

        let current = device.current_stream();
        let mut elsewhere = build(Some(&stream)).unwrap();
        foreign.begin_capture(&current, CaptureMode::ThreadLocal).unwrap();
        is_capture_error(build(Some(&stream)), OpenCapture::Current);
        is_capture_error(elsewhere.prepare(), OpenCapture::Current);
        is_capture_error(elsewhere.run(), OpenCapture::Current);
        assert_eq!(elsewhere.producer().bodies(), 0);
        assert_eq!(foreign.end_capture(&current).unwrap().nodes().unwrap(), 0);
        elsewhere.run().unwrap();
    });
}

#[test]
fn s18_refused_before_the_first_driver_call_that_changes_something() {
    let device = Device::simulated(0);
    let producer = Add::new(&device);
    let current = device.current_stream();
    let simulation = device.simulation().unwrap();
    let graph = current.capture(|_| {
        let before = simulation.live();
        simulation.clear_log();
        is_capture_error(GraphRunner::new(&device, producer), OpenCapture::Resolved);
        let names: Vec<_> = simulation.log().iter().map(|call| call.name).collect();
        assert_eq!(names[0], "cuStreamIsCapturing");
        assert!(!names.iter().any(|name| name.contains("Create") || name.contains("Alloc")));
        assert!(simulation.live().streams <= before.streams);
        Ok(())
    });
    assert_eq!(graph.unwrap().nodes(), 0);
}

#[test]
fn s18_a_foreign_capture_in_this_thread_counts() {
    let device = Device::simulated(0);
    let theirs = device.stream().unwrap();
    let (probed, stream) = (device.clone(), theirs.clone());
    let _probe = register_foreign_probe(move |device| {
        (*device == probed && stream.is_capturing().unwrap_or(false)).then(|| stream.clone())
    });
    let default = device.stream().unwrap();
    let foreign = Foreign::new(&device);
    foreign.begin_capture(&theirs, CaptureMode::ThreadLocal).unwrap();
    let made = GraphRunner::with_default_stream(&device, Add::new(&device), &default);
    is_capture_error(made, OpenCapture::Foreign);
    assert_eq!(foreign.end_capture(&theirs).unwrap().nodes().unwrap(), 0);
}

#[test]
fn s18_a_host_capture_counts_in_its_thread() {
    let device = Device::host();
    let graph = device.current_stream().capture(|_| {
        is_capture_error(GraphRunner::new(&device, Add::new(&device)), OpenCapture::Host);
        std::thread::scope(|scope| {
            scope.spawn(|| GraphRunner::new(&device, Add::new(&device)).unwrap().run().unwrap());
        });
        Ok(())
    });
    assert_eq!(graph.unwrap().nodes(), 0);
}

/// Work on the current stream that the producer's buffers come from.
#[test]
fn s19_preparing_waits_for_the_current_stream_and_blocks_until_done() {
    each_device(|device| {
        let stream = device.stream().unwrap();
        let x = device.zeros(Add::LEN).unwrap();
        let mut runner =
            GraphRunner::with_default_stream(device, Add::on(device, x.clone()), &stream).unwrap();
        device.current_stream().enqueue(|cx| cx.fill(&x, 10)).unwrap();
        runner.prepare().unwrap();
        // Complete for any stream, without an event.
        assert_eq!(device.stream().unwrap().read(&x).unwrap(), [11; Add::LEN]);
        assert!(runner.is_prepared());
    });
}

#[test]
fn s19_the_first_default_run_prepares_and_has_thereby_run() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Add::new(device)).unwrap();
        for calls in 1..=4 {
            let run = runner.run().unwrap();
            assert_eq!(run.reason == Reason::Prepared, calls == 1);
            assert_eq!(first(&runner, &runner.producer().x), calls);
        }
    });
}

#[test]
fn s19_another_variant_before_preparing_is_refused() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Add::new(device)).unwrap();
        match runner.call().variant(5).run() {
            Err(Error::NotPrepared { producer: "add", variant }) => assert_eq!(variant, "5"),
            other => panic!("{other:?}"),
        }
        assert_eq!(runner.producer().bodies(), 0);
        runner.call().variant(5).policy(Policy::Eager).run().unwrap();
        assert!(matches!(runner.call().variant(5).run(), Err(Error::NotPrepared { .. })));
        runner.run().unwrap();
        runner.call().variant(5).run().unwrap();
        assert_eq!(first(&runner, &runner.producer().x), 6 + 1 + 6);
    });
}

/// Doubles until a flag is set; then harmless.
struct Looped {
    x: Buffer<u32>,
    done: Buffer<u32>,
    kernel: Kernel<AddArgs>,
    iterations: std::sync::atomic::AtomicUsize,
}

impl Producer for Looped {
    type Kind = kind::Capturable;
    type Variant = ();
    const NAME: &'static str = "looped";
}

impl Capturable for Looped {
    fn enqueue(&self, (): &(), cx: &mut Enqueue<'_>) -> Result<()> {
        cx.bounded_loop(7, &self.done, |cx, _| {
            self.iterations.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            cx.launch(&self.kernel, Grid::over(1), (&self.x, 0, 1))
        })
    }
}

#[test]
fn s19_preparing_unrolls_every_loop_to_its_bound() {
    each_device(|device| {
        let producer = Looped {
            x: device.zeros(1).unwrap(),
            done: device.buffer(&[1]).unwrap(),
            kernel: device.load(&add_kernel()).unwrap(),
            iterations: Default::default(),
        };
        let mut runner = GraphRunner::new(device, producer).unwrap();
        runner.prepare().unwrap();
        let iterations = &runner.producer().iterations;
        assert_eq!(iterations.load(std::sync::atomic::Ordering::SeqCst), 7);
    });
}
