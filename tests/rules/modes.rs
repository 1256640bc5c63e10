//! S1 to S8: the four modes.

use graph_runner::*;

use crate::common::*;

#[test]
fn s01_a_capturing_stream_records_once_and_runs_nothing() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Add::new(device)).unwrap();
        runner.prepare().unwrap();
        let stream = device.stream().unwrap();
        let graph = stream
            .capture(|_| {
                let run = runner.call().on(&stream).run()?;
                assert_eq!((run.mode, run.reason), (Mode::Record, Reason::CallerCapture));
                Ok(())
            })
            .unwrap();
        assert_eq!(graph.nodes(), 1);
        assert_eq!(runner.producer().bodies(), 2);
        assert_eq!(runner.stats().graphs(), 0);
        let x = runner.producer().x.clone();
        assert_eq!(stream.read(&x).unwrap(), [1; Add::LEN]);
        for launches in 1..=3 {
            graph.launch(&stream).unwrap();
            assert_eq!(stream.read(&x).unwrap(), [1 + launches; Add::LEN]);
        }
    });
}

#[test]
fn s01_the_typed_token_records_the_same() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Add::new(device)).unwrap();
        let stream = device.stream().unwrap();
        let graph = stream
            .capture(|capture| {
                runner.record(capture)?;
                runner.call().variant(4).record(capture)?;
                Ok(())
            })
            .unwrap();
        assert_eq!(graph.nodes(), 2);
        graph.launch(&stream).unwrap();
        assert_eq!(stream.read(&runner.producer().x).unwrap(), [6; Add::LEN]);
    });
}

#[test]
fn s02_eager_runs_the_body_every_time() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Add::new(device)).unwrap();
        for calls in 1..=3 {
            let run = runner.call().policy(Policy::Eager).run().unwrap();
            assert_eq!((run.mode, run.reason), (Mode::Eager, Reason::Policy));
            assert_eq!(runner.producer().bodies(), calls);
        }
        assert_eq!(first(&runner, &runner.producer().x), 3);
        assert_eq!(runner.stats().graphs(), 0);
        assert!(!runner.is_prepared());
    });
}

#[test]
fn s02_a_capturing_stream_records_even_under_the_eager_policy() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Add::new(device)).unwrap();
        let stream = device.stream().unwrap();
        let graph = stream
            .capture(|_| {
                let run = runner.call().on(&stream).policy(Policy::Eager).run()?;
                assert_eq!(run.mode, Mode::Record);
                Ok(())
            })
            .unwrap();
        assert_eq!(stream.read(&runner.producer().x).unwrap(), [0; Add::LEN]);
        graph.launch(&stream).unwrap();
        assert_eq!(stream.read(&runner.producer().x).unwrap(), [1; Add::LEN]);
    });
}

#[test]
fn s02_a_host_device_is_always_eager() {
    let device = Device::host();
    let mut runner = GraphRunner::new(&device, Add::new(&device)).unwrap();
    for calls in 1..=3 {
        let run = runner.call().variant(calls).run().unwrap();
        assert_eq!((run.mode, run.reason), (Mode::Eager, Reason::HostDevice));
    }
    assert_eq!(first(&runner, &runner.producer().x), 2 + 3 + 4);
}

#[test]
fn s03_captured_once_a_variant_and_replayed_from_then_on() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Add::new(device)).unwrap();
        runner.prepare().unwrap();
        let mut expected = 1;
        for (variant, reason, bodies) in [
            (0, Reason::Captured, 2),
            (0, Reason::Replayed, 2),
            (7, Reason::Captured, 3),
            (0, Reason::Replayed, 3),
            (7, Reason::Replayed, 3),
        ] {
            let run = runner.call().variant(variant).run().unwrap();
            assert_eq!((run.mode, run.reason), (Mode::SelfGraph, reason));
            assert_eq!(runner.producer().bodies(), bodies);
            expected += 1 + variant;
            assert_eq!(first(&runner, &runner.producer().x), expected);
        }
    });
}

#[test]
fn s04_device_parts_replay_around_host_parts() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Gates::new(device)).unwrap();
        runner.prepare().unwrap();
        let mut expected = Gates::expected(0, 0);
        for (variant, reason, bodies) in [
            (0, Reason::Captured, [2, 2, 2]),
            (0, Reason::Replayed, [2, 3, 2]),
            (3, Reason::Captured, [3, 4, 3]),
            (0, Reason::Replayed, [3, 5, 3]),
        ] {
            let run = runner.call().variant(variant).run().unwrap();
            assert_eq!((run.mode, run.reason), (Mode::Segmented, reason));
            assert_eq!(runner.producer().bodies(), bodies);
            expected = Gates::expected(expected, variant);
            assert_eq!(first(&runner, &runner.producer().x), expected);
        }
        let graphs = runner.segment_graphs_for(&3).unwrap();
        assert!(graphs[0].is_some() && graphs[1].is_none() && graphs[2].is_some());
        assert!(runner.graph_for(&3).is_none());
    });
}

#[test]
fn s04_every_part_is_captured_before_anything_is_launched() {
    let device = Device::simulated(0);
    let mut runner = GraphRunner::new(&device, Gates::new(&device)).unwrap();
    runner.prepare().unwrap();
    let simulation = device.simulation().unwrap();
    simulation.clear_log();
    runner.run().unwrap();
    let names: Vec<_> = simulation.log().iter().map(|call| call.name).collect();
    let last_begin = names.iter().rposition(|name| *name == "cuStreamBeginCapture").unwrap();
    let first_launch = names.iter().position(|name| *name == "cuGraphLaunch").unwrap();
    assert!(last_begin < first_launch, "{names:?}");
    assert_eq!(names.iter().filter(|name| **name == "cuStreamBeginCapture").count(), 2);
}

#[test]
fn s05_bodies_and_kernels_run_as_often_as_the_table_says() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Add::new(device)).unwrap();
        let seen = |runner: &GraphRunner<Add>| {
            (runner.producer().bodies(), first(runner, &runner.producer().x))
        };
        runner.prepare().unwrap();
        assert_eq!(seen(&runner), (1, 1), "prepare");
        runner.run().unwrap();
        assert_eq!(seen(&runner), (2, 2), "capture and first replay");
        runner.run().unwrap();
        assert_eq!(seen(&runner), (2, 3), "replay");
        runner.call().policy(Policy::Eager).run().unwrap();
        assert_eq!(seen(&runner), (3, 4), "eager");
        let stream = device.stream().unwrap();
        let graph = stream.capture(|capture| runner.record(capture).map(drop)).unwrap();
        assert_eq!(seen(&runner), (4, 4), "recording");
        graph.launch(&stream).unwrap();
        graph.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(seen(&runner), (4, 6), "the caller's replays");
    });
}

/// A host value that the body reads once, when it is captured.
struct Frozen {
    x: Buffer<u32>,
    value: std::sync::Arc<std::sync::atomic::AtomicU32>,
}

impl Producer for Frozen {
    type Kind = kind::Capturable;
    type Variant = ();
    const NAME: &'static str = "frozen";
}

impl Capturable for Frozen {
    fn enqueue(&self, (): &(), cx: &mut Enqueue<'_>) -> Result<()> {
        cx.fill(&self.x, self.value.load(std::sync::atomic::Ordering::SeqCst))
    }
}

#[test]
fn s05_host_scalars_freeze_when_they_are_captured() {
    each_device(|device| {
        let value = std::sync::Arc::new(1.into());
        let producer = Frozen { x: device.zeros(1).unwrap(), value: std::sync::Arc::clone(&value) };
        let mut runner = GraphRunner::new(device, producer).unwrap();
        let mut seen = Vec::new();
        for next in 1..=4 {
            value.store(next, std::sync::atomic::Ordering::SeqCst);
            runner.run().unwrap();
            seen.push(first(&runner, &runner.producer().x));
        }
        assert_eq!(seen, [1, 2, 2, 2]);
        value.store(9, std::sync::atomic::Ordering::SeqCst);
        runner.call().policy(Policy::Eager).run().unwrap();
        assert_eq!(first(&runner, &runner.producer().x), 9);
    });
}

#[test]
fn s06_refusals_leave_the_capture_valid_and_its_nodes_unchanged() {
    each_device(|device| {
        let mut gates = GraphRunner::new(device, Gates::new(device)).unwrap();
        let mut add = GraphRunner::new(device, Add::new(device)).unwrap();
        gates.prepare().unwrap();
        let stream = device.stream().unwrap();
        let graph = stream
            .capture(|_| {
                add.call().on(&stream).run()?;
                let error = gates.call().on(&stream).run().unwrap_err();
                assert!(matches!(error, Error::NotCapturable { .. }), "{error}");
                let before = gates.producer().bodies();
                assert!(gates.call().on(&stream).policy(Policy::Eager).run().is_err());
                assert_eq!(gates.producer().bodies(), before);
                add.call().on(&stream).run()?;
                Ok(())
            })
            .unwrap();
        assert_eq!(graph.nodes(), 2);
        gates.run().unwrap();
        assert_eq!(first(&gates, &gates.producer().x), Gates::expected(Gates::expected(0, 0), 0));
    });
}

#[test]
fn s08_a_plan_says_what_a_run_then_does_and_runs_nothing() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Add::new(device)).unwrap();
        runner.set_variant_limit(1);
        let calls: [(u32, Policy); 7] = [
            (0, Policy::Auto),
            (0, Policy::Auto),
            (0, Policy::Auto),
            (1, Policy::Auto),
            (2, Policy::Auto),
            (1, Policy::Auto),
            (0, Policy::Eager),
        ];
        let mut reasons = Vec::new();
        for (variant, policy) in calls {
            let before = runner.producer().bodies();
            let plan = runner.call().variant(variant).policy(policy).plan().unwrap();
            assert_eq!(runner.producer().bodies(), before);
            let run = runner.call().variant(variant).policy(policy).run().unwrap();
            assert_eq!((plan.mode, plan.reason), (run.mode, run.reason));
            assert_eq!(plan.stream, run.stream);
            reasons.push(run.reason);
        }
        use Reason::{Captured, Policy as ByPolicy, Prepared, Replayed, VariantLimit};
        let expected = [Prepared, Captured, Replayed, Captured, VariantLimit, Replayed, ByPolicy];
        assert_eq!(reasons, expected);
    });
}

#[test]
fn s08_a_plan_gives_the_refusal_that_a_run_would_get() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Gates::new(device)).unwrap();
        let stream = device.stream().unwrap();
        let graph = stream.capture(|_| {
            let planned = runner.call().on(&stream).plan().unwrap_err().to_string();
            assert_eq!(planned, runner.call().on(&stream).run().unwrap_err().to_string());
            assert!(planned.contains("gates") && planned.contains("rank"), "{planned}");
            Ok(())
        });
        assert_eq!(graph.unwrap().nodes(), 0);
        let planned = runner.call().variant(1).plan().unwrap_err().to_string();
        assert_eq!(planned, runner.call().variant(1).run().unwrap_err().to_string());
        assert_eq!(runner.producer().bodies(), [0; 3]);
    });
}
