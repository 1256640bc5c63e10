//! Graphs: replays, children, memory nodes, and what they keep.

use super::*;

#[test]
fn a_replay_runs_the_recording_and_never_the_host_code() {
    let bench = Bench::new(9);
    let (stream, x) = (bench.stream(), bench.buffer(0));
    bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
    bench.step(&stream, &bench.one, &x).unwrap();
    let graph = bench.foreign.end_capture(&stream).unwrap();
    let exec = graph.instantiate().unwrap();
    let (calls, run) = (bench.simulation().calls(), bench.simulation().kernels_run());
    (0..3).for_each(|_| exec.launch(&stream).unwrap());
    assert_eq!(bench.simulation().calls(), calls + 3);
    assert_eq!(bench.read(&stream, &x), 26);
    assert_eq!(bench.simulation().kernels_run(), run + 3);
}

#[test]
fn an_exec_never_runs_beside_itself() {
    let run = |bench: &Bench| {
        let (a, b) = (bench.stream(), bench.stream());
        let (x, y) = (bench.buffer(0), bench.buffer(0));
        bench.foreign.begin_capture(&a, CaptureMode::ThreadLocal).unwrap();
        bench.step(&a, &x, &y).unwrap();
        bench.foreign.copy(&a, &y, &x).unwrap();
        let graph = bench.foreign.end_capture(&a).unwrap();
        let exec = graph.instantiate().unwrap();
        exec.launch(&a).unwrap();
        exec.launch(&b).unwrap();
        bench.foreign.context_synchronize().unwrap();
        bench.read(&a, &x)
    };
    // y = 1, x = 1; y = 3 + 1 + 1
    assert_eq!(right(5, run), 64);
}

#[test]
fn two_execs_of_one_graph_may_run_beside_each_other() {
    let run = |bench: &Bench| {
        let (a, b) = (bench.stream(), bench.stream());
        let (x, y) = (bench.buffer(0), bench.buffer(0));
        bench.foreign.begin_capture(&a, CaptureMode::ThreadLocal).unwrap();
        bench.step(&a, &x, &y).unwrap();
        bench.foreign.copy(&a, &y, &x).unwrap();
        let graph = bench.foreign.end_capture(&a).unwrap();
        let execs = [(); 2].map(|()| graph.instantiate().unwrap());
        execs[0].launch(&a).unwrap();
        execs[1].launch(&b).unwrap();
        bench.foreign.context_synchronize().unwrap();
        bench.read(&a, &x)
    };
    let right = right(5, run);
    assert!((1..64).contains(&right), "{right}");
}

#[test]
fn an_empty_graph_keeps_the_order_of_its_stream() {
    let run = |bench: &Bench| {
        let (stream, x) = (bench.stream(), bench.buffer(0));
        bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
        let graph = bench.foreign.end_capture(&stream).unwrap();
        let exec = graph.instantiate().unwrap();
        bench.step(&stream, &bench.one, &x).unwrap();
        exec.launch(&stream).unwrap();
        bench.foreign.copy(&stream, &bench.one, &x).unwrap();
        bench.foreign.context_synchronize().unwrap();
        bench.read(&stream, &x)
    };
    assert_eq!(right(1, run), 64);
}

#[test]
fn a_child_graph_runs_in_its_place() {
    let run = |bench: &Bench| {
        let (stream, side) = (bench.stream(), bench.stream());
        let (x, y) = (bench.buffer(0), bench.buffer(0));
        bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
        bench.step(&stream, &bench.one, &x).unwrap();
        bench.order(&stream, &side).unwrap();
        bench.step(&side, &bench.one, &y).unwrap();
        bench.order(&side, &stream).unwrap();
        let child = bench.foreign.end_capture(&stream).unwrap();
        bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
        bench.step(&stream, &bench.one, &x).unwrap();
        bench.foreign.add_child_graph(&stream, &child).unwrap();
        bench.foreign.add_child_graph(&stream, &child).unwrap();
        bench.step(&stream, &y, &x).unwrap();
        let graph = bench.foreign.end_capture(&stream).unwrap();
        assert_eq!(graph.nodes(), Ok(4));
        let exec = graph.instantiate().unwrap();
        drop(child);
        exec.launch(&stream).unwrap();
        bench.read(&stream, &x)
    };
    // x: 2, 8, 26, then 78 + y + 1 with y: 2, 8
    assert_eq!(right(87, run), 64);
}

#[test]
fn a_child_graph_outside_a_capture_or_with_memory_nodes_is_refused() {
    let bench = Bench::new(0);
    let stream = bench.stream();
    bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
    let memory = bench.foreign.mem_alloc_async(64, &stream).unwrap();
    bench.foreign.mem_free_async(memory, &stream).unwrap();
    let child = bench.foreign.end_capture(&stream).unwrap();
    let refused = bench.foreign.add_child_graph(&stream, &child);
    assert_eq!(code(refused), Some(DriverCode::NotSupported));
    bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
    let empty = bench.foreign.end_capture(&stream).unwrap();
    let refused = bench.foreign.add_child_graph(&stream, &empty);
    assert_eq!(code(refused), Some(DriverCode::IllegalState));
}

#[test]
fn memory_nodes_allocate_and_free_at_each_launch() {
    let bench = Bench::new(0);
    let stream = bench.stream();
    let before = bench.simulation().live();
    bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
    let memory = bench.foreign.mem_alloc_async(64, &stream).unwrap();
    bench.foreign.mem_free_async(memory, &stream).unwrap();
    let kept = bench.foreign.mem_alloc_async(32, &stream).unwrap();
    let graph = bench.foreign.end_capture(&stream).unwrap();
    assert_eq!(bench.simulation().live().allocations, before.allocations);
    let exec = graph.instantiate().unwrap();
    (0..2).for_each(|_| exec.launch(&stream).unwrap());
    stream.synchronize().unwrap();
    assert_eq!(bench.simulation().live().bytes, before.bytes + 32);
    bench.foreign.mem_free(kept).unwrap();
    assert_eq!(bench.simulation().live().bytes, before.bytes);
}

#[test]
fn a_host_function_runs_at_every_replay_and_is_dropped_once() {
    let bench = Bench::new(0);
    let stream = bench.stream();
    let (runs, held) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
    let function = {
        let (runs, held) = (Arc::clone(&runs), Arc::clone(&held));
        move || {
            let _ = &held;
            runs.fetch_add(1, Ordering::SeqCst);
        }
    };
    bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
    bench.foreign.launch_host_function(&stream, function).unwrap();
    let graph = bench.foreign.end_capture(&stream).unwrap();
    let exec = graph.instantiate().unwrap();
    (0..5).for_each(|_| exec.launch(&stream).unwrap());
    stream.synchronize().unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 5);
    drop((graph, exec));
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn what_a_graph_retains_outlives_a_launch_that_is_pending() {
    let bench = Bench::new(0);
    let (stream, x) = (bench.stream(), bench.buffer(0));
    let released = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&released);
    bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
    bench.step(&stream, &bench.one, &x).unwrap();
    let retain = move || {
        let _ = count.fetch_add(1, Ordering::SeqCst);
    };
    bench.foreign.retain(&stream, retain).unwrap();
    let graph = bench.foreign.end_capture(&stream).unwrap();
    let exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    drop((graph, exec));
    assert_eq!(released.load(Ordering::SeqCst), 0);
    stream.synchronize().unwrap();
    assert_eq!(released.load(Ordering::SeqCst), 1);
}

#[test]
fn a_capture_that_gives_no_graph_releases_what_it_retained() {
    let bench = Bench::new(0);
    let stream = bench.stream();
    let released = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&released);
    bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
    let retain = move || {
        let _ = count.fetch_add(1, Ordering::SeqCst);
    };
    bench.foreign.retain(&stream, retain).unwrap();
    assert!(bench.foreign.context_synchronize().is_err());
    assert!(bench.foreign.end_capture(&stream).is_err());
    assert_eq!(released.load(Ordering::SeqCst), 1);
}
