//! When enqueued work runs: late, in any order that streams and events allow.

use super::*;

/// `writes` steps on one stream, then a copy after `delay` steps on another: with an event
/// between them if `ordered`.
fn write_then_copy(bench: &Bench, writes: usize, delay: usize, ordered: bool) -> u32 {
    let (a, b) = (bench.stream(), bench.stream());
    let (x, y, z) = (bench.buffer(0), bench.buffer(0), bench.buffer(0));
    for _ in 0..writes {
        bench.step(&a, &bench.one, &x).unwrap();
    }
    if ordered {
        bench.order(&a, &b).unwrap();
    }
    for _ in 0..delay {
        bench.step(&b, &bench.one, &z).unwrap();
    }
    bench.foreign.copy(&b, &x, &y).unwrap();
    bench.read(&b, &y)
}

#[test]
fn streams_without_an_event_go_wrong_for_some_seed() {
    for (writes, delay, expected) in [(1, 0, 2), (1, 8, 2), (4, 0, 80), (4, 4, 80)] {
        let right = right(expected, |bench| write_then_copy(bench, writes, delay, false));
        assert!((8..56).contains(&right), "{writes} writes, {delay} before: {right} of 64");
    }
}

#[test]
fn an_event_orders_streams_for_every_seed() {
    for (writes, delay, expected) in [(1, 0, 2), (1, 8, 2), (4, 0, 80), (4, 4, 80)] {
        assert_eq!(right(expected, |bench| write_then_copy(bench, writes, delay, true)), 64);
    }
}

#[test]
fn a_wait_means_the_record_before_it() {
    // The event is recorded again after the wait, behind work that reads what the waiting
    // stream writes: were the wait for the second record, the two would wait for each other.
    let run = |bench: &Bench| {
        let (a, b) = (bench.stream(), bench.stream());
        let (x, y) = (bench.buffer(0), bench.buffer(0));
        let event = bench.foreign.event().unwrap();
        bench.step(&a, &bench.one, &x).unwrap();
        event.record(&a).unwrap();
        event.make_wait(&b).unwrap();
        bench.step(&b, &x, &y).unwrap();
        bench.order(&b, &a).unwrap();
        bench.step(&a, &y, &x).unwrap();
        event.record(&a).unwrap();
        event.make_wait(&b).unwrap();
        bench.foreign.copy(&b, &x, &y).unwrap();
        bench.read(&b, &y)
    };
    assert_eq!(right(10, run), 64);
}

#[test]
fn an_event_that_was_never_recorded_orders_nothing() {
    let run = |bench: &Bench| {
        let (a, b) = (bench.stream(), bench.stream());
        let (x, y) = (bench.buffer(0), bench.buffer(0));
        let event = bench.foreign.event().unwrap();
        bench.step(&a, &bench.one, &x).unwrap();
        event.make_wait(&b).unwrap();
        bench.foreign.copy(&b, &x, &y).unwrap();
        bench.read(&b, &y)
    };
    assert!((8..56).contains(&right(2, run)));
}

/// A step on `first`, then a copy on `second`, each made by the bench.
fn two_streams(bench: &Bench, first: &Stream, second: &Stream) -> u32 {
    let (x, y) = (bench.buffer(0), bench.buffer(0));
    bench.step(first, &bench.one, &x).unwrap();
    bench.foreign.copy(second, &x, &y).unwrap();
    bench.foreign.stream_synchronize(second).unwrap();
    let value = bench.read(second, &y);
    bench.foreign.context_synchronize().unwrap();
    value
}

#[test]
fn the_legacy_stream_and_blocking_streams_wait_for_each_other() {
    let with_blocking = |bench: &Bench, flip: bool| {
        let blocking = bench.foreign.stream_create(true).unwrap();
        let (mut first, mut second) = (blocking.clone(), bench.device.legacy_stream());
        if flip {
            std::mem::swap(&mut first, &mut second);
        }
        let value = two_streams(bench, &first, &second);
        bench.foreign.stream_destroy(&blocking).unwrap();
        value
    };
    assert_eq!(right(2, |bench| with_blocking(bench, false)), 64);
    assert_eq!(right(2, |bench| with_blocking(bench, true)), 64);
}

#[test]
fn the_legacy_stream_and_independent_streams_do_not() {
    let legacy_second =
        |bench: &Bench| two_streams(bench, &bench.stream(), &bench.device.legacy_stream());
    let legacy_first =
        |bench: &Bench| two_streams(bench, &bench.device.legacy_stream(), &bench.stream());
    assert!((8..56).contains(&right(2, legacy_second)));
    assert!((8..56).contains(&right(2, legacy_first)));
}

#[test]
fn two_blocking_streams_are_ordered_by_work_on_the_legacy_stream_between_them() {
    let run = |bench: &Bench, between: bool| {
        let first = bench.foreign.stream_create(true).unwrap();
        let second = bench.foreign.stream_create(true).unwrap();
        let (x, y, z) = (bench.buffer(0), bench.buffer(0), bench.buffer(0));
        bench.step(&first, &bench.one, &x).unwrap();
        // The stream is gone, its work is not.
        bench.foreign.stream_destroy(&first).unwrap();
        if between {
            bench.step(&bench.device.legacy_stream(), &bench.one, &z).unwrap();
        }
        bench.foreign.copy(&second, &x, &y).unwrap();
        let value = bench.read(&second, &y);
        bench.foreign.stream_destroy(&second).unwrap();
        value
    };
    assert_eq!(right(2, |bench| run(bench, true)), 64);
    assert!((8..56).contains(&right(2, |bench| run(bench, false))));
}

#[test]
fn nothing_runs_before_something_waits_and_others_lag() {
    let mut lagged = 0;
    for seed in 0..64 {
        let bench = Bench::new(seed);
        let (a, b) = (bench.stream(), bench.stream());
        let (x, y) = (bench.buffer(0), bench.buffer(0));
        bench.step(&a, &bench.one, &x).unwrap();
        bench.step(&b, &bench.one, &y).unwrap();
        assert_eq!(bench.simulation().pending(), 2);
        bench.foreign.stream_synchronize(&b).unwrap();
        lagged += bench.simulation().pending();
        bench.foreign.stream_synchronize(&a).unwrap();
        assert_eq!(bench.simulation().pending(), 0);
    }
    assert!((8..56).contains(&lagged), "{lagged}");
}

#[test]
fn a_seed_gives_one_order() {
    let order = |seed| {
        let bench = Bench::new(seed);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let streams: Vec<_> = (0..4).map(|_| bench.stream()).collect();
        for number in 0..16 {
            let seen = Arc::clone(&seen);
            let push = move || seen.lock().unwrap().push(number);
            bench.foreign.launch_host_function(&streams[number % 4], push).unwrap();
        }
        bench.foreign.context_synchronize().unwrap();
        seen.lock().unwrap().clone()
    };
    let orders: std::collections::HashSet<_> = (0..8).map(order).collect();
    assert!(orders.len() > 4, "seeds differ");
    (0..8).for_each(|seed| assert_eq!(order(seed), order(seed)));
}

#[test]
fn polling_gets_there() {
    let bench = Bench::new(3);
    let (stream, x) = (bench.stream(), bench.buffer(0));
    let event = bench.foreign.event().unwrap();
    for _ in 0..5 {
        bench.step(&stream, &bench.one, &x).unwrap();
    }
    event.record(&stream).unwrap();
    assert_eq!(code(event.query()), Some(DriverCode::NotReady));
    assert_eq!(code(bench.foreign.stream_query(&stream)), Some(DriverCode::NotReady));
    let polls = (0..100).find(|_| event.query().is_ok());
    assert_eq!(polls, Some(2), "a poll runs one operation");
    assert_eq!(bench.foreign.stream_query(&stream), Ok(()));
}

#[test]
fn an_upload_copies_and_memory_is_freed_after_its_last_use() {
    let bench = Bench::new(5);
    let (stream, x, y) = (bench.stream(), bench.buffer(0), bench.buffer(0));
    let mut values = [7];
    stream.write(&x, &values).unwrap();
    values[0] = 8;
    bench.foreign.copy(&stream, &x, &y).unwrap();
    drop(x);
    assert_eq!(values, [8]);
    assert_eq!(bench.read(&stream, &y), 7);
}

#[test]
fn fresh_memory_is_not_zero_by_chance() {
    let bench = Bench::new(0);
    let (stream, x) = (bench.stream(), bench.buffer(0));
    let memory = bench.foreign.mem_alloc_async(4, &stream).unwrap();
    bench.foreign.mem_free_async(memory, &stream).unwrap();
    assert_eq!(bench.read(&stream, &x), 0);
    let live = bench.simulation().live();
    assert_eq!(live.allocations, 2, "{live:?}");
}
