//! S10 to S14: what is left of the kinds at run time; the rest is checked by the compiler, in
//! `ui-tests`.

use graph_runner::*;

use crate::common::*;

#[test]
fn s10_host_parts_read_write_and_keep_their_state() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Gates::new(device)).unwrap();
        let mut expected = 0;
        for _ in 0..4 {
            runner.run().unwrap();
            expected = Gates::expected(expected, 0);
            assert_eq!(first(&runner, &runner.producer().x), expected);
        }
    });
    let device = Device::host();
    let mut runner = GraphRunner::new(&device, Gates::new(&device)).unwrap();
    runner.run().unwrap();
    assert_eq!(first(&runner, &runner.producer().x), Gates::expected(0, 0));
}

#[test]
fn s11_a_legacy_producer_runs_on_the_current_stream() {
    each_device(|device| {
        let x = device.buffer(&[1; 4]).unwrap();
        let mut runner = GraphRunner::new(device, Triple::<true>::on(device, x.clone())).unwrap();
        let elsewhere = device.stream().unwrap();
        runner.call().on(&elsewhere).policy(Policy::Eager).run().unwrap();
        assert_eq!(elsewhere.read(&x).unwrap(), [3; 4]);
        for (reason, bodies) in
            [(Reason::Prepared, 2), (Reason::Captured, 3), (Reason::Replayed, 3)]
        {
            let run = runner.run().unwrap();
            assert_eq!(run.reason, reason);
            assert_eq!(runner.producer().bodies.load(std::sync::atomic::Ordering::SeqCst), bodies);
        }
        assert_eq!(first(&runner, &x), 81);
    });
}

/// Notes the stream that it is given.
struct Noting(std::sync::Mutex<Vec<u64>>);

impl Producer for Noting {
    type Kind = kind::Legacy;
    type Variant = ();
    const NAME: &'static str = "noting";
}

impl Legacy for Noting {
    fn launch(&self, (): &(), cx: &mut LegacyLaunch<'_>) -> Result<()> {
        let stream = cx.stream().handle();
        self.0.lock().unwrap().push(stream);
        Ok(())
    }
}

#[test]
fn s11_whatever_stream_the_call_names_the_body_gets_the_current_one() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Noting(Default::default())).unwrap();
        let elsewhere = device.stream().unwrap();
        for _ in 0..2 {
            runner.call().on(&elsewhere).policy(Policy::Eager).run().unwrap();
        }
        let current = device.current_stream().handle();
        assert_eq!(*runner.producer().0.lock().unwrap(), [current; 2]);
    });
}

#[test]
fn s13_a_segmented_producer_names_its_host_stages() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Gates::new(device)).unwrap();
        let stream = device.stream().unwrap();
        let graph = stream.capture(|_| {
            match runner.call().on(&stream).run() {
                Err(Error::NotCapturable { producer: "gates", host_stages }) => {
                    assert_eq!(host_stages, ["rank"]);
                }
                other => panic!("{other:?}"),
            }
            Ok(())
        });
        assert_eq!(graph.unwrap().nodes(), 0);
    });
}

#[test]
fn s13_also_under_a_host_capture() {
    let device = Device::host();
    let mut gates = GraphRunner::new(&device, Gates::new(&device)).unwrap();
    let mut add = GraphRunner::new(&device, Add::new(&device)).unwrap();
    let graph = device
        .current_stream()
        .capture(|_| {
            assert!(matches!(gates.run(), Err(Error::NotCapturable { .. })));
            assert_eq!(add.run()?.mode, Mode::Record);
            Ok(())
        })
        .unwrap();
    let stream = device.current_stream();
    assert_eq!(stream.read(&add.producer().x).unwrap(), [0; Add::LEN]);
    graph.launch(&stream).unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!(stream.read(&add.producer().x).unwrap(), [2; Add::LEN]);
    assert_eq!(add.producer().bodies(), 1);
}

#[test]
fn s13_a_legacy_producer_is_recorded_on_the_current_stream_alone() {
    each_device(|device| {
        let x = device.buffer(&[1; 4]).unwrap();
        let mut runner = GraphRunner::new(device, Triple::<true>::on(device, x.clone())).unwrap();
        let stream = device.stream().unwrap();
        let graph = stream.capture(|_| {
            let error = runner.call().on(&stream).run().unwrap_err();
            assert!(matches!(error, Error::LegacyStream { producer: "triple", .. }), "{error}");
            Ok(())
        });
        assert_eq!(graph.unwrap().nodes(), 0);

        let before = device.set_current_stream(&stream).unwrap();
        let graph = stream.capture(|_| {
            assert_eq!(runner.call().on(&stream).run()?.mode, Mode::Record);
            Ok(())
        });
        device.set_current_stream(&before).unwrap();
        graph.unwrap().launch(&stream).unwrap();
        assert_eq!(stream.read(&x).unwrap(), [3; 4]);
    });
}

#[test]
fn s14_a_program_of_capturable_members_is_one_graph() {
    each_device(|device| {
        let x = device.zeros(4).unwrap();
        let add = || Add::on(device, x.clone());
        let program = Program::new(add(), add()).then(add());
        let mut runner = GraphRunner::new(device, program).unwrap();
        assert!(runner.is_capturable());
        runner.prepare().unwrap();
        runner.run().unwrap();
        assert_eq!(runner.graph().unwrap().nodes(), 3);
        runner.call().variant(((1, 2), 3)).run().unwrap();
        assert_eq!(first(&runner, &x), 3 + 3 + (2 + 3 + 4));
        let stream = device.stream().unwrap();
        let graph = stream.capture(|capture| runner.record(capture).map(drop)).unwrap();
        assert_eq!(graph.nodes(), 3);
    });
}

#[test]
fn s14_a_host_member_makes_the_program_segmented_and_the_rest_still_replays() {
    each_device(|device| {
        let gates = Gates::new(device);
        let x = gates.x.clone();
        let program = Program::new(Add::on(device, x.clone()), gates);
        let mut runner = GraphRunner::new(device, program).unwrap();
        let mut expected = 0;
        for reason in [Reason::Prepared, Reason::Captured, Reason::Replayed] {
            assert_eq!(runner.run().unwrap().reason, reason);
            expected = Gates::expected(expected + 1, 0);
            assert_eq!(first(&runner, &x), expected);
        }
        assert_eq!(runner.producer().first.bodies(), 2);
        assert_eq!(runner.producer().second.bodies(), [2, 3, 2]);
        let variant = (0, 0);
        let graphs = runner.segment_graphs_for(&variant).unwrap();
        assert_eq!(
            graphs.iter().map(Option::is_some).collect::<Vec<_>>(),
            [true, true, false, true]
        );
        let stream = device.stream().unwrap();
        let refused = stream.capture(|_| {
            let error = runner.call().on(&stream).run().unwrap_err().to_string();
            assert!(error.contains("gates/rank"), "{error}");
            Ok(())
        });
        assert_eq!(refused.unwrap().nodes(), 0);
    });
}

#[test]
fn s14_a_legacy_member_that_cannot_be_captured_becomes_a_host_segment() {
    each_device(|device| {
        let x = device.buffer(&[1; 4]).unwrap();
        let program =
            Program::new(Add::on(device, x.clone()), Triple::<false>::on(device, x.clone()))
                .then(Add::on(device, x.clone()));
        let mut runner = GraphRunner::new(device, program).unwrap();
        let stream = device.stream().unwrap();
        let mut expected = 1;
        for mode in [Mode::Eager, Mode::Segmented, Mode::Segmented] {
            let run = runner.call().on(&stream).run().unwrap();
            assert_eq!(run.mode, mode);
            expected = (expected + 1) * 3 + 1;
            assert_eq!(stream.read(&x).unwrap(), [expected; 4]);
        }
        assert_eq!(runner.producer().first.first.bodies(), 2);
        assert!(!runner.is_capturable());
    });
}

#[test]
fn s14_a_capturable_legacy_member_makes_the_program_legacy() {
    each_device(|device| {
        let x = device.buffer(&[1; 4]).unwrap();
        let program =
            Program::new(Add::on(device, x.clone()), Triple::<true>::on(device, x.clone()));
        let mut runner = GraphRunner::new(device, program).unwrap();
        let mut expected = 1;
        for mode in [Mode::Eager, Mode::SelfGraph, Mode::SelfGraph] {
            assert_eq!(runner.run().unwrap().mode, mode);
            expected = (expected + 1) * 3;
            assert_eq!(first(&runner, &x), expected);
        }
        let run = runner.call().variant((1, 0)).run().unwrap();
        assert_eq!(run.reason, Reason::LegacyVariant);
        assert_eq!(first(&runner, &x), (expected + 2) * 3);
    });
}

#[test]
fn s14_errors_name_the_member_and_its_part() {
    let device = Device::simulated(1);
    let other = Device::simulated(2);
    let x = device.zeros(4).unwrap();
    let wrong = Add::on(&device, other.zeros(4).unwrap());
    let program = Program::new(Add::on(&device, x), wrong);
    let mut runner = GraphRunner::new(&device, program).unwrap();
    let error = runner.run().unwrap_err();
    assert!(matches!(error.root(), Error::WrongDevice { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("`add`") && message.contains("launch of `add`"), "{message}");
}
