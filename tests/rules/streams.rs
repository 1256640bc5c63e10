//! S15 to S17: which stream a call goes to, and how calls are ordered.

use std::cell::RefCell;

use graph_runner::testing::Foreign;
use graph_runner::*;

use crate::common::*;

#[test]
fn s15_explicit_before_default_before_current() {
    each_device(|device| {
        let (explicit, default) = (device.stream().unwrap(), device.stream().unwrap());
        let mut plain = GraphRunner::new(device, Add::new(device)).unwrap();
        assert_eq!(plain.run().unwrap().stream, device.current_stream());
        let mut runner =
            GraphRunner::with_default_stream(device, Add::new(device), &default).unwrap();
        assert_eq!(runner.run().unwrap().stream, default);
        assert_eq!(runner.call().on(&explicit).run().unwrap().stream, explicit);
        assert_eq!(runner.default_stream(), Some(&default));

        let current = device.stream().unwrap();
        let before = device.set_current_stream(&current).unwrap();
        assert_eq!(plain.run().unwrap().stream, current);
        device.set_current_stream(&before).unwrap();
    });
}

/// Runs another runner from inside its body.
struct Outer {
    inner: RefCell<GraphRunner<Add>>,
    seen: RefCell<Vec<Run>>,
}

impl Producer for Outer {
    type Kind = kind::Capturable;
    type Variant = ();
    const NAME: &'static str = "outer";
}

impl Capturable for Outer {
    fn enqueue(&self, (): &(), _: &mut Enqueue<'_>) -> Result<()> {
        let run = self.inner.borrow_mut().run()?;
        self.seen.borrow_mut().push(run);
        Ok(())
    }
}

#[test]
fn s15_a_running_body_is_the_ambient_scope_of_what_it_calls() {
    each_device(|device| {
        let default = device.stream().unwrap();
        let inner = GraphRunner::with_default_stream(device, Add::new(device), &default).unwrap();
        let x = inner.producer().x.clone();
        let outer = Outer { inner: RefCell::new(inner), seen: RefCell::default() };
        let mut runner = GraphRunner::new(device, outer).unwrap();
        let stream = device.stream().unwrap();
        for _ in 0..3 {
            runner.call().on(&stream).run().unwrap();
        }
        assert_eq!(stream.read(&x).unwrap(), [3; Add::LEN]);
        let seen = runner.producer().seen.borrow();
        // Prepared inside the preparing run, recorded into the outer self-graph, then replayed.
        assert_eq!(seen.len(), 2);
        assert_eq!((seen[0].mode, &seen[0].stream), (Mode::Eager, &stream));
        assert_eq!(seen[1].mode, Mode::Record);
        assert!(seen[1].stream != stream && seen[1].stream != default);
    });
}

#[test]
fn s15_the_closure_of_a_capture_is_an_ambient_scope_too() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Add::new(device)).unwrap();
        let stream = device.stream().unwrap();
        let graph = stream.capture(|_| {
            assert_eq!(runner.run()?.mode, Mode::Record);
            Ok(())
        });
        assert_eq!(graph.unwrap().nodes(), 1);
        assert_eq!(runner.run().unwrap().stream, device.current_stream());
    });
}

#[test]
fn s15_a_foreign_capture_in_this_thread_comes_before_the_current_stream() {
    let device = Device::simulated(3);
    let stream = device.stream().unwrap();
    let mut runner = GraphRunner::new(&device, Add::new(&device)).unwrap();
    runner.prepare().unwrap();
    let (theirs, default) = (stream.clone(), device.stream().unwrap());
    let probed = device.clone();
    let probe = register_foreign_probe(move |device| {
        (*device == probed && theirs.is_capturing().unwrap_or(false)).then(|| theirs.clone())
    });
    let mut with_default =
        GraphRunner::with_default_stream(&device, Add::new(&device), &default).unwrap();
    with_default.prepare().unwrap();
    let foreign = Foreign::new(&device);
    foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
    assert_eq!(runner.run().unwrap().mode, Mode::Record);
    assert_eq!(with_default.run().unwrap().mode, Mode::SelfGraph);
    assert_eq!(foreign.end_capture(&stream).unwrap().nodes().unwrap(), 1);
    drop(probe);
    assert_eq!(runner.run().unwrap().stream, device.current_stream());
}

#[test]
fn s16_streams_of_another_device_are_refused() {
    each_device(|device| {
        let foreign = Device::simulated(99).stream().unwrap();
        let made = GraphRunner::with_default_stream(device, Add::new(device), &foreign);
        assert!(matches!(made, Err(Error::WrongDevice { .. })));
        let mut runner = GraphRunner::new(device, Add::new(device)).unwrap();
        let error = runner.call().on(&foreign).run().unwrap_err();
        assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
        assert!(matches!(device.set_current_stream(&foreign), Err(Error::WrongDevice { .. })));
        assert_eq!(runner.producer().bodies(), 0);
    });
}

#[test]
fn s16_a_host_device_accepts_and_ignores_streams() {
    let (device, foreign) = (Device::host(), Device::simulated(99).stream().unwrap());
    let mut runner =
        GraphRunner::with_default_stream(&device, Add::new(&device), &foreign).unwrap();
    assert_eq!(runner.default_stream(), None);
    runner.call().on(&foreign).run().unwrap();
    assert_eq!(first(&runner, &runner.producer().x), 1);
}

/// Alternates between two streams and multiplies in between: any pair out of order shows.
#[test]
fn s17_consecutive_calls_on_different_streams_are_ordered() {
    each_device(|device| {
        let x = device.buffer(&[1; 4]).unwrap();
        let program =
            Program::new(Add::on(device, x.clone()), Triple::<false>::on(device, x.clone()));
        let streams =
            [device.stream().unwrap(), device.stream().unwrap(), device.stream().unwrap()];
        let mut add = GraphRunner::new(device, Add::on(device, x.clone())).unwrap();
        add.prepare().unwrap();
        let mut expected = 2;
        for call in 0..6 {
            add.call().on(&streams[call % 3]).variant(call as u32).run().unwrap();
            expected += 1 + call as u32;
        }
        assert_eq!(first(&add, &x), expected);

        let mut runner = GraphRunner::new(device, program).unwrap();
        streams[0].wait_for(&streams[2]).unwrap();
        for call in 0..6 {
            let policy = if call % 2 == 0 { Policy::Auto } else { Policy::Eager };
            runner.call().on(&streams[call % 3]).policy(policy).run().unwrap();
            expected = (expected + 1) * 3;
        }
        assert_eq!(first(&runner, &x), expected);
    });
}

#[test]
fn s17_the_same_stream_costs_no_event() {
    let device = Device::simulated(5);
    let mut runner = GraphRunner::new(&device, Add::new(&device)).unwrap();
    runner.run().unwrap();
    runner.run().unwrap();
    let simulation = device.simulation().unwrap();
    simulation.clear_log();
    runner.run().unwrap();
    let names: Vec<_> = simulation.log().iter().map(|call| call.name).collect();
    assert_eq!(names, ["cuStreamIsCapturing", "cuGraphLaunch"]);
}

#[test]
fn s17_a_stream_that_began_to_capture_is_refused_as_the_one_before() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Add::new(device)).unwrap();
        runner.prepare().unwrap();
        let (one, two) = (device.stream().unwrap(), device.stream().unwrap());
        runner.call().on(&one).run().unwrap();
        let graph = one.capture(|_| {
            let error = runner.call().on(&two).run().unwrap_err();
            assert!(matches!(error, Error::PreviousStreamCapturing { .. }), "{error}");
            Ok(())
        });
        assert_eq!(graph.unwrap().nodes(), 0);
        runner.call().on(&two).run().unwrap();
        assert_eq!(first(&runner, &runner.producer().x), 3);
    });
}

/// Adds on one stream and multiplies on another, with or without the order between them.
fn unordered_pair(device: &Device, ordered: bool) -> u32 {
    let x = device.buffer(&[1; 4]).unwrap();
    let (add, triple) =
        (device.load(&add_kernel()).unwrap(), device.load(&multiply_kernel()).unwrap());
    let (one, two) = (device.stream().unwrap(), device.stream().unwrap());
    one.enqueue(|cx| cx.launch(&add, Grid::over(4), (&x, 1, 4))).unwrap();
    if ordered {
        two.wait_for(&one).unwrap();
    }
    two.enqueue(|cx| cx.launch(&triple, Grid::over(4), (&x, 3, 4))).unwrap();
    one.synchronize().unwrap();
    two.read(&x).unwrap()[0]
}

#[test]
fn s17_a_missing_wait_shows_as_a_wrong_result_under_some_seed() {
    let right = |ordered| {
        let seeds = 0..64;
        seeds.filter(|&seed| unordered_pair(&Device::simulated(seed), ordered) == 6).count()
    };
    assert_eq!(right(true), 64);
    let by_luck = right(false);
    assert!((8..=56).contains(&by_luck), "{by_luck} of 64");
}

#[test]
fn s19_work_that_nobody_waits_for_is_late() {
    // What preparing would see, did it not wait for the current stream.
    let stale = (0..64).filter(|&seed| {
        let device = Device::simulated(seed);
        let x = device.zeros(4).unwrap();
        let stream = device.stream().unwrap();
        device.current_stream().enqueue(|cx| cx.fill(&x, 7)).unwrap();
        stream.enqueue(|cx| cx.fill(&x, 1)).unwrap();
        stream.synchronize().unwrap();
        device.current_stream().read(&x).unwrap() == [7; 4]
    });
    let late = stale.count();
    assert!((8..=56).contains(&late), "{late} of 64");
}
