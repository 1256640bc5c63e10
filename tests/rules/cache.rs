//! S20 to S23: the cache of graphs and captures that break.

use std::sync::{Arc, Mutex};

use graph_runner::testing::Foreign;
use graph_runner::*;

use crate::common::*;

/// Warnings that name this producer's limit or variant, collected for the whole process.
fn warnings() -> &'static Mutex<Vec<Warning>> {
    static WARNINGS: Mutex<Vec<Warning>> = Mutex::new(Vec::new());
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        set_warning_hook(|warning| WARNINGS.lock().unwrap().push(warning.clone()));
    });
    &WARNINGS
}

#[test]
fn s20_sixteen_variants_get_graphs_and_further_ones_run_eagerly() {
    let warnings = warnings();
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Add::new(device)).unwrap();
        runner.prepare().unwrap();
        warnings.lock().unwrap().retain(|w| !matches!(w, Warning::VariantLimit { limit: 16, .. }));
        let mut expected = 1;
        for variant in (1..=40).chain(1..=16) {
            let run = runner.call().variant(variant).run().unwrap();
            assert_eq!(run.mode == Mode::SelfGraph, variant <= 16, "{variant}");
            expected += 1 + variant;
        }
        runner.run().unwrap();
        assert_eq!(first(&runner, &runner.producer().x), expected + 1);
        let stats = runner.stats();
        assert_eq!(stats.graphs(), 17);
        assert_eq!(stats.runs(Reason::VariantLimit), 24);
        assert_eq!(stats.runs(Reason::Replayed), 16);
        let seen = warnings.lock().unwrap();
        let mine: Vec<_> =
            seen.iter().filter(|w| matches!(w, Warning::VariantLimit { limit: 16, .. })).collect();
        assert_eq!(mine.len(), 1, "{seen:?}");
        assert!(mine[0].to_string().contains("set_variant_limit"));
    });
}

#[test]
fn s20_the_limit_is_a_setting_and_counts_segmented_bodies_too() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Gates::new(device)).unwrap();
        runner.set_variant_limit(2);
        runner.prepare().unwrap();
        for (variant, mode) in [
            (1, Mode::Segmented),
            (2, Mode::Segmented),
            (3, Mode::Eager),
            (1, Mode::Segmented),
            (0, Mode::Segmented),
        ] {
            assert_eq!(runner.call().variant(variant).run().unwrap().mode, mode, "{variant}");
        }
        let mut variants: Vec<_> = runner.variants().copied().collect();
        variants.sort_unstable();
        assert_eq!(variants, [0, 1, 2]);
    });
}

/// Variants that all have one hash.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Colliding(u32);

impl std::hash::Hash for Colliding {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        0.hash(state);
    }
}

struct Fill(Buffer<u32>);

impl Producer for Fill {
    type Kind = kind::Capturable;
    type Variant = Colliding;
    const NAME: &'static str = "fill";
}

impl Capturable for Fill {
    fn enqueue(&self, variant: &Colliding, cx: &mut Enqueue<'_>) -> Result<()> {
        cx.fill(&self.0, variant.0)
    }
}

#[test]
fn s20_keys_are_compared_in_full() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Fill(device.zeros(3).unwrap())).unwrap();
        runner.prepare().unwrap();
        for variant in [1, 2, 3, 2, 1, 3] {
            runner.call().variant(Colliding(variant)).run().unwrap();
            assert_eq!(first(&runner, &runner.producer().0), variant);
        }
        assert_eq!(runner.stats().graphs(), 3);
    });
}

/// Makes another thread break the next `times` captures, each inside its window.
fn break_captures(device: &Device, times: usize) {
    fn arm(device: Device, left: usize) {
        let Some(left) = left.checked_sub(1) else { return };
        let hooked = device.clone();
        device.simulation().unwrap().on_next("cuStreamEndCapture", move || {
            std::thread::scope(|scope| {
                scope.spawn(|| Foreign::new(&hooked).context_synchronize().unwrap_err());
            });
            arm(hooked, left);
        });
    }
    arm(device.clone(), times);
}

#[test]
fn s21_a_capture_that_another_thread_broke_is_retried_once() {
    for seed in 0..16 {
        let device = Device::simulated(seed);
        let mut runner = GraphRunner::new(&device, Add::new(&device)).unwrap();
        runner.prepare().unwrap();
        break_captures(&device, 1);
        let run = runner.run().unwrap();
        assert_eq!((run.mode, run.reason), (Mode::SelfGraph, Reason::Captured));
        assert_eq!(first(&runner, &runner.producer().x), 2);
        assert_eq!(runner.stats().broken_captures(), 1);
        assert_eq!(runner.producer().bodies(), 3);
        assert_eq!(device.simulation().unwrap().live().captures, 0);
    }
}

#[test]
fn s21_broken_twice_the_call_runs_eagerly_and_a_later_one_tries_again() {
    let warnings = warnings();
    for seed in 0..16 {
        let device = Device::simulated(seed);
        let mut runner = GraphRunner::new(&device, Add::new(&device)).unwrap();
        runner.prepare().unwrap();
        let before = device.simulation().unwrap().live();
        for calls in 2..=3 {
            break_captures(&device, 2);
            let run = runner.run().unwrap();
            assert_eq!((run.mode, run.reason), (Mode::Eager, Reason::CaptureBroken));
            assert_eq!(first(&runner, &runner.producer().x), calls);
            assert!(runner.graph().is_none());
        }
        let after = device.simulation().unwrap().live();
        assert_eq!((after.graphs, after.execs, after.captures), (0, 0, 0));
        assert_eq!(after.allocations, before.allocations);
        let run = runner.run().unwrap();
        assert_eq!((run.mode, run.reason), (Mode::SelfGraph, Reason::Captured));
        assert_eq!(first(&runner, &runner.producer().x), 4);

        let mut given_up = GraphRunner::new(&device, Add::new(&device)).unwrap();
        given_up.prepare().unwrap();
        warnings.lock().unwrap().retain(|w| !matches!(w, Warning::GivenUp { .. }));
        for (calls, reason) in [
            (2, Reason::CaptureBroken),
            (3, Reason::CaptureBroken),
            (4, Reason::GivenUp),
            (5, Reason::GivenUp),
        ] {
            if calls < 5 {
                break_captures(&device, 2);
            }
            assert_eq!(given_up.run().unwrap().reason, reason);
            assert_eq!(first(&given_up, &given_up.producer().x), calls);
        }
        let seen = warnings.lock().unwrap();
        assert_eq!(seen.iter().filter(|w| matches!(w, Warning::GivenUp { .. })).count(), 1);
        drop(seen);
        given_up.drop_graphs();
        assert_eq!(given_up.run().unwrap().reason, Reason::Captured);
    }
}

#[test]
fn s21_each_part_of_a_segmented_body_is_retried_for_itself() {
    let device = Device::simulated(0);
    let mut runner = GraphRunner::new(&device, Gates::new(&device)).unwrap();
    runner.prepare().unwrap();
    break_captures(&device, 1);
    let run = runner.run().unwrap();
    assert_eq!((run.mode, run.reason), (Mode::Segmented, Reason::Captured));
    assert_eq!(runner.producer().bodies(), [3, 2, 2]);

    // The second part broken for good: nothing of the first is kept, and each part runs once.
    let mut runner = GraphRunner::new(&device, Gates::new(&device)).unwrap();
    runner.prepare().unwrap();
    let hooked = device.clone();
    device.simulation().unwrap().on_next("cuStreamEndCapture", move || break_captures(&hooked, 2));
    let run = runner.run().unwrap();
    assert_eq!((run.mode, run.reason), (Mode::Eager, Reason::CaptureBroken));
    let expected = Gates::expected(Gates::expected(0, 0), 0);
    assert_eq!(first(&runner, &runner.producer().x), expected);
    assert!(runner.segment_graphs_for(&0).is_none());
}

/// Breaks every capture from its own body.
struct Smuggler {
    add: Add,
    device: Device,
    stream: Arc<Mutex<Option<Stream>>>,
}

impl Producer for Smuggler {
    type Kind = kind::Capturable;
    type Variant = ();
    const NAME: &'static str = "smuggler";
}

impl Capturable for Smuggler {
    fn enqueue(&self, (): &(), cx: &mut Enqueue<'_>) -> Result<()> {
        self.add.enqueue(&0, cx)?;
        // What a careless helper in a body does; its error is even ignored.
        let _ = Foreign::new(&self.device).context_synchronize();
        self.add.enqueue(&0, cx)
    }
}

#[test]
fn s21_a_body_that_breaks_its_own_capture_is_an_error_that_names_the_place() {
    each_device(|device| {
        let add = Add::new(device);
        let smuggler = Smuggler { add, device: device.clone(), stream: Arc::default() };
        let mut runner = GraphRunner::new(device, smuggler).unwrap();
        runner.prepare().unwrap();
        assert_eq!(first(&runner, &runner.producer().add.x), 2);
        for _ in 0..2 {
            match runner.run() {
                Err(Error::BodyBrokeCapture { producer: "smuggler", part, place, .. }) => {
                    assert_eq!(part, "body");
                    assert!(place.contains("operation 2 (launch of `add`)"), "{place}");
                }
                other => panic!("{other:?}"),
            }
            assert!(runner.graph().is_none());
            assert_eq!(first(&runner, &runner.producer().add.x), 2);
        }
        runner.call().policy(Policy::Eager).run().unwrap();
        assert_eq!(first(&runner, &runner.producer().add.x), 4);
        assert!(runner.producer().stream.lock().unwrap().is_none());
    });
}

#[test]
fn s21_a_refusal_is_not_retried() {
    let device = Device::simulated(0);
    let mut runner = GraphRunner::new(&device, Add::new(&device)).unwrap();
    runner.prepare().unwrap();
    device.simulation().unwrap().fail_next("cuLaunchKernel", DriverCode::OutOfMemory);
    let error = runner.run().unwrap_err();
    assert!(error.to_string().contains("operation 1 (launch of `add`)"), "{error}");
    assert_eq!(error.driver().unwrap().code(), DriverCode::OutOfMemory);
    assert_eq!(runner.producer().bodies(), 2);
    assert_eq!(runner.run().unwrap().reason, Reason::Captured);
}

#[test]
fn s22_accessors() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Add::new(device)).unwrap();
        assert!(runner.graph().is_none() && runner.variants().next().is_none());
        assert!(!runner.is_prepared());
        runner.run().unwrap();
        assert!(runner.is_prepared() && runner.graph().is_none());
        runner.run().unwrap();
        runner.call().variant(9).run().unwrap();
        assert_eq!(runner.graph().unwrap().nodes(), 1);
        assert_eq!(runner.graph_for(&9).unwrap().nodes(), 1);
        assert!(runner.graph_for(&8).is_none() && runner.segment_graphs_for(&9).is_none());
        assert_eq!(runner.variants().copied().collect::<Vec<_>>(), [0, 9]);
        assert_eq!((runner.device(), runner.name()), (device, "add"));
        assert!(runner.is_capturable() && runner.default_stream().is_none());
        assert_eq!(runner.into_producer().bodies(), 3);
    });
}

#[test]
fn s23_changing_the_producer_drops_its_graphs() {
    each_device(|device| {
        let mut runner = GraphRunner::new(device, Add::new(device)).unwrap();
        runner.run().unwrap();
        runner.run().unwrap();
        let old = runner.producer().x.clone();
        runner.producer_mut().x = device.buffer(&[100; Add::LEN]).unwrap();
        assert!(runner.graph().is_none());
        let run = runner.run().unwrap();
        assert_eq!(run.reason, Reason::Captured);
        assert_eq!(first(&runner, &runner.producer().x), 101);
        assert_eq!(first(&runner, &old), 2);
    });
}
