//! Captures: forks and joins, what ends and breaks them, and whose they are.

use super::*;

/// Adds to `x` on the origin and to `y` on a fork, and joins them if `joined`.
fn fork(bench: &Bench, origin: &Stream, side: &Stream, joined: bool) -> [Buffer<u32>; 2] {
    let (x, y) = (bench.buffer(0), bench.buffer(0));
    bench.foreign.begin_capture(origin, CaptureMode::ThreadLocal).unwrap();
    bench.step(origin, &bench.one, &x).unwrap();
    bench.order(origin, side).unwrap();
    assert_eq!(bench.foreign.state(side), Ok(State::Capturing));
    bench.step(side, &x, &y).unwrap();
    if joined {
        bench.order(side, origin).unwrap();
    }
    bench.step(origin, &y, &x).unwrap();
    [x, y]
}

#[test]
fn a_fork_that_is_joined_replays_in_order_for_every_seed() {
    let run = |bench: &Bench| {
        let (origin, side) = (bench.stream(), bench.stream());
        let [x, _y] = fork(bench, &origin, &side, true);
        let graph = bench.foreign.end_capture(&origin).unwrap();
        assert_eq!(bench.foreign.state(&side), Ok(State::Idle));
        assert_eq!(graph.nodes(), Ok(3));
        graph.instantiate().unwrap().launch(&side).unwrap();
        bench.read(&side, &x)
    };
    // x = 2, y = 3, x = 6 + 3 + 1
    assert_eq!(right(10, run), 64);
}

#[test]
fn branches_of_a_graph_run_in_any_order() {
    let run = |bench: &Bench| {
        let (origin, side) = (bench.stream(), bench.stream());
        let [x, _y] = fork(bench, &origin, &side, false);
        // Joined too late: the origin's second step read `y` without waiting.
        bench.order(&side, &origin).unwrap();
        let graph = bench.foreign.end_capture(&origin).unwrap();
        graph.instantiate().unwrap().launch(&side).unwrap();
        bench.read(&side, &x)
    };
    assert!((8..56).contains(&right(10, run)));
}

#[test]
fn an_unjoined_fork_ends_without_a_graph_and_releases_every_stream() {
    let bench = Bench::new(0);
    let (origin, side) = (bench.stream(), bench.stream());
    let before = bench.simulation().live();
    let buffers = fork(&bench, &origin, &side, false);
    let ended = bench.foreign.end_capture(&origin);
    assert_eq!(code(ended), Some(DriverCode::CaptureUnjoined));
    for stream in [&origin, &side] {
        assert_eq!(bench.foreign.state(stream), Ok(State::Idle));
    }
    drop(buffers);
    assert_eq!(bench.simulation().live(), before);
}

#[test]
fn a_fork_without_work_must_be_joined_too_and_may_wait_again_after_it() {
    let bench = Bench::new(0);
    let (origin, side) = (bench.stream(), bench.stream());
    let begin = || bench.foreign.begin_capture(&origin, CaptureMode::ThreadLocal).unwrap();
    begin();
    bench.order(&origin, &side).unwrap();
    assert_eq!(code(bench.foreign.end_capture(&origin)), Some(DriverCode::CaptureUnjoined));
    begin();
    bench.order(&origin, &side).unwrap();
    bench.order(&side, &origin).unwrap();
    bench.order(&origin, &side).unwrap();
    assert!(bench.foreign.end_capture(&origin).is_ok());
}

#[test]
fn a_join_through_a_third_stream_counts() {
    let bench = Bench::new(0);
    let (a, b, c) = (bench.stream(), bench.stream(), bench.stream());
    let x = bench.buffer(0);
    bench.foreign.begin_capture(&a, CaptureMode::ThreadLocal).unwrap();
    bench.order(&a, &b).unwrap();
    bench.step(&b, &bench.one, &x).unwrap();
    bench.order(&b, &c).unwrap();
    bench.order(&c, &a).unwrap();
    let graph = bench.foreign.end_capture(&a).unwrap();
    assert_eq!(graph.nodes(), Ok(1));
}

#[test]
fn two_captures_do_not_merge() {
    let bench = Bench::new(0);
    let (a, b) = (bench.stream(), bench.stream());
    for stream in [&a, &b] {
        bench.foreign.begin_capture(stream, CaptureMode::ThreadLocal).unwrap();
    }
    assert_eq!(code(bench.order(&a, &b)), Some(DriverCode::CaptureMerge));
    for stream in [&a, &b] {
        assert_eq!(bench.foreign.state(stream), Ok(State::Invalidated));
        let ended = bench.foreign.end_capture(stream);
        assert_eq!(code(ended), Some(DriverCode::CaptureInvalidated));
    }
}

#[test]
fn only_the_origin_ends_a_capture() {
    let bench = Bench::new(0);
    let (a, b) = (bench.stream(), bench.stream());
    bench.foreign.begin_capture(&a, CaptureMode::ThreadLocal).unwrap();
    bench.order(&a, &b).unwrap();
    assert_eq!(code(bench.foreign.end_capture(&b)), Some(DriverCode::CaptureUnmatched));
    bench.order(&b, &a).unwrap();
    assert!(bench.foreign.end_capture(&a).is_ok());
    assert_eq!(bench.simulation().live().captures, 0);
}

#[test]
fn a_relaxed_capture_ends_on_any_thread() {
    let bench = Bench::new(0);
    let stream = bench.stream();
    bench.foreign.begin_capture(&stream, CaptureMode::Relaxed).unwrap();
    let end = || bench.foreign.end_capture(&stream);
    let ended = std::thread::scope(|scope| scope.spawn(end).join().unwrap());
    assert!(ended.is_ok());
}

#[test]
fn an_invalid_capture_refuses_work_until_it_ends() {
    let bench = Bench::new(0);
    let (stream, x) = (bench.stream(), bench.buffer(0));
    let event = bench.foreign.event().unwrap();
    bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
    event.record(&stream).unwrap();
    assert!(bench.foreign.context_synchronize().is_err());
    let invalid = Some(DriverCode::CaptureInvalidated);
    assert_eq!(code(bench.step(&stream, &bench.one, &x)), invalid);
    assert_eq!(code(event.record(&stream)), invalid);
    assert_eq!(code(event.make_wait(&bench.stream())), invalid);
    assert_eq!(code(bench.foreign.end_capture(&stream)), invalid);
    assert_eq!(bench.foreign.captured_nodes(&stream), Ok(None));
    bench.step(&stream, &bench.one, &x).unwrap();
    assert_eq!(bench.read(&stream, &x), 2);
}

#[test]
fn an_event_of_a_capture_that_ended_stands_for_nothing() {
    let bench = Bench::new(0);
    let (stream, x) = (bench.stream(), bench.buffer(0));
    let event = bench.foreign.event().unwrap();
    bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
    bench.step(&stream, &bench.one, &x).unwrap();
    event.record(&stream).unwrap();
    bench.foreign.end_capture(&stream).unwrap();
    let captured = Some(DriverCode::CapturedEvent);
    assert_eq!(code(event.make_wait(&stream)), captured);
    assert_eq!(code(event.query()), captured);
    event.record(&stream).unwrap();
    assert_eq!(event.query(), Ok(()));
}

#[test]
fn captures_of_one_device_do_not_know_another_device() {
    let (bench, other) = (Bench::new(0), Bench::new(1));
    let stream = bench.stream();
    bench.foreign.begin_capture(&stream, CaptureMode::Global).unwrap();
    let calls = || {
        let memory = other.foreign.mem_alloc(64).unwrap();
        other.foreign.mem_free(memory).unwrap();
        other.foreign.context_synchronize().unwrap();
        other.foreign.stream_query(&other.device.legacy_stream()).unwrap();
    };
    calls();
    std::thread::scope(|scope| scope.spawn(calls).join().unwrap());
    assert!(bench.foreign.end_capture(&stream).is_ok());
}

#[test]
fn the_legacy_stream_is_refused_in_any_way_while_a_blocking_stream_captures() {
    let bench = Bench::new(0);
    let (legacy, exec) = (bench.device.legacy_stream(), {
        let stream = bench.stream();
        bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
        let graph = bench.foreign.end_capture(&stream).unwrap();
        graph.instantiate().unwrap()
    });
    let event = bench.foreign.event().unwrap();
    type Use<'a> = (&'a str, &'a dyn Fn() -> Result<(), DriverError>);
    let uses: [Use<'_>; 6] = [
        ("memcpy", &|| bench.foreign.memcpy_htod(&bench.one, &[1])),
        ("record", &|| event.record(&legacy)),
        ("wait", &|| event.make_wait(&legacy)),
        ("graph", &|| exec.launch(&legacy)),
        ("query", &|| bench.foreign.stream_query(&legacy)),
        ("synchronize", &|| bench.foreign.relaxed(|foreign| foreign.stream_synchronize(&legacy))),
    ];
    for (name, harm) in uses {
        let stream = bench.foreign.stream_create(true).unwrap();
        bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
        assert_eq!(code(harm()), Some(DriverCode::CaptureImplicit), "{name}");
        assert_eq!(bench.foreign.state(&stream), Ok(State::Invalidated), "{name}");
        assert!(bench.foreign.end_capture(&stream).is_err(), "{name}");
        assert_eq!(code(harm()), None, "{name} afterwards");
        bench.foreign.stream_destroy(&stream).unwrap();
    }
}

#[test]
fn the_thread_mode_is_exchanged_and_is_the_threads() {
    let foreign = Foreign::new(&Device::simulated(0));
    assert_eq!(foreign.exchange_capture_mode(CaptureMode::Relaxed), Ok(CaptureMode::Global));
    let elsewhere = || foreign.exchange_capture_mode(CaptureMode::ThreadLocal);
    let found = std::thread::scope(|scope| scope.spawn(elsewhere).join().unwrap());
    assert_eq!(found, Ok(CaptureMode::Global));
    assert_eq!(foreign.exchange_capture_mode(CaptureMode::Global), Ok(CaptureMode::Relaxed));
}

#[test]
fn a_thread_local_thread_mode_ignores_other_threads_global_captures() {
    let bench = Bench::new(0);
    let stream = bench.stream();
    bench.foreign.begin_capture(&stream, CaptureMode::Global).unwrap();
    let call = || {
        bench.foreign.exchange_capture_mode(CaptureMode::ThreadLocal).unwrap();
        let memory = bench.foreign.mem_alloc(64).unwrap();
        bench.foreign.mem_free(memory).unwrap();
    };
    std::thread::scope(|scope| scope.spawn(call).join().unwrap());
    assert!(bench.foreign.end_capture(&stream).is_ok());
}

#[test]
fn a_stream_ordered_allocation_elsewhere_breaks_a_global_capture_by_itself() {
    let bench = Bench::new(0);
    let (stream, other) = (bench.stream(), bench.stream());
    bench.foreign.begin_capture(&stream, CaptureMode::Global).unwrap();
    let allocate = || bench.foreign.mem_alloc_async(64, &other);
    let answer = std::thread::scope(|scope| scope.spawn(allocate).join().unwrap());
    assert_eq!(code(answer), Some(DriverCode::CaptureUnsupported));
    assert_eq!(bench.foreign.state(&stream), Ok(State::Invalidated));
    assert!(bench.foreign.end_capture(&stream).is_err());
}

#[test]
fn destroying_the_origin_ends_its_capture_without_a_graph() {
    let bench = Bench::new(0);
    let (stream, side) = (bench.foreign.stream_create(false).unwrap(), bench.stream());
    bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
    bench.order(&stream, &side).unwrap();
    bench.foreign.stream_destroy(&stream).unwrap();
    assert_eq!(bench.foreign.state(&side), Ok(State::Idle));
    assert_eq!(bench.simulation().live().captures, 0);
}
