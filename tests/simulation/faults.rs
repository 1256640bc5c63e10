//! Faults, real and injected, and what can be seen of calls and objects.

use super::*;

fn driver_code<T>(answer: Result<T, Error>) -> Option<DriverCode> {
    answer.err().and_then(|error| error.driver().map(DriverError::code))
}

#[test]
fn a_graph_whose_memory_is_gone_faults_and_the_context_is_lost() {
    let bench = Bench::new(0);
    let (stream, x) = (bench.stream(), bench.buffer(0));
    bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
    bench.step(&stream, &bench.one, &x).unwrap();
    let graph = bench.foreign.end_capture(&stream).unwrap();
    let exec = graph.instantiate().unwrap();
    drop(x);
    exec.launch(&stream).unwrap();
    let lost = Some(DriverCode::IllegalAddress);
    assert_eq!(driver_code(stream.synchronize()), lost);
    assert_eq!(code(exec.launch(&stream)), lost);
    assert_eq!(code(bench.foreign.mem_alloc(4)), lost);
    assert_eq!(driver_code(bench.device.stream()), lost);
    assert_eq!(bench.simulation().pending(), 0);
}

#[test]
fn a_graph_whose_kernel_is_gone_faults() {
    let bench = Bench::new(0);
    let (stream, x) = (bench.stream(), bench.buffer(0));
    let clear = KernelSpec::<(Out<u32>,)>::per_thread("clear", |_, (x,)| x[0] = 0);
    let kernel = bench.device.load(&clear).unwrap();
    bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
    bench.foreign.launch(&stream, &kernel, Grid::over(1), (&x,)).unwrap();
    let graph = bench.foreign.end_capture(&stream).unwrap();
    let exec = graph.instantiate().unwrap();
    drop(kernel);
    exec.launch(&stream).unwrap();
    assert_eq!(driver_code(stream.synchronize()), Some(DriverCode::LaunchFailed));
}

#[test]
fn a_kernel_that_panics_loses_the_context_and_hangs_nobody() {
    within_a_minute(|| {
        let device = Device::simulated(0);
        let (foreign, stream) = (Foreign::new(&device), device.stream().unwrap());
        let panics = KernelSpec::<(Out<u32>,)>::per_thread("panics", |_, (x,)| x[1] = 0);
        let kernel = device.load(&panics).unwrap();
        let x = device.zeros(1).unwrap();
        foreign.launch(&stream, &kernel, Grid::over(1), (&x,)).unwrap();
        assert_eq!(driver_code(stream.synchronize()), Some(DriverCode::LaunchFailed));
        assert_eq!(driver_code(device.zeros::<u32>(1)), Some(DriverCode::LaunchFailed));
    });
}

#[test]
fn a_kernel_takes_a_buffer_of_no_elements() {
    let bench = Bench::new(0);
    let (stream, x) = (bench.stream(), bench.buffer(0));
    let none = bench.device.zeros::<u32>(0).unwrap();
    let sum = KernelSpec::<(In<u32>, Out<u32>)>::per_thread("sum", |_, (x, sum)| {
        sum[0] = x.iter().sum::<u32>() + 1;
    });
    let kernel = bench.device.load(&sum).unwrap();
    bench.foreign.launch(&stream, &kernel, Grid::over(1), (&none, &x)).unwrap();
    assert_eq!(bench.read(&stream, &x), 1);
}

#[test]
fn a_host_function_may_hold_the_last_handle_of_a_buffer() {
    within_a_minute(|| {
        let bench = Bench::new(0);
        let (stream, x, y, z) = (bench.stream(), bench.buffer(0), bench.buffer(0), bench.buffer(0));
        let hold = |held: Buffer<u32>| move || assert_eq!(held.len(), 1);
        let before = bench.simulation().live().allocations - 3;
        // Let go when it has run, with the capture that gives no graph, and with a lost context.
        bench.foreign.launch_host_function(&stream, hold(x)).unwrap();
        bench.foreign.stream_synchronize(&stream).unwrap();
        bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
        bench.foreign.launch_host_function(&stream, hold(y)).unwrap();
        bench.foreign.context_synchronize().unwrap_err();
        bench.foreign.end_capture(&stream).unwrap_err();
        assert_eq!(bench.simulation().live().allocations, before + 1);
        bench.foreign.launch_host_function(&stream, hold(z)).unwrap();
        bench.simulation().lose_context(DriverCode::Deinitialized);
    });
}

#[test]
fn a_lost_context_answers_and_dropping_handles_is_quiet() {
    let bench = Bench::new(0);
    let (stream, x) = (bench.stream(), bench.buffer(0));
    bench.step(&stream, &bench.one, &x).unwrap();
    bench.simulation().lose_context(DriverCode::Deinitialized);
    assert_eq!(bench.simulation().pending(), 0);
    assert_eq!(driver_code(stream.read(&x)), Some(DriverCode::Deinitialized));
    assert_eq!(
        bench.foreign.exchange_capture_mode(CaptureMode::Global),
        Ok(CaptureMode::Global),
        "no bracket is left open"
    );
    drop((x, stream, bench));
}

#[test]
fn a_host_function_may_not_call_the_driver() {
    within_a_minute(|| {
        let bench = Bench::new(0);
        let stream = bench.stream();
        let (send, answers) = mpsc::channel();
        let foreign = bench.foreign.clone();
        let function = move || send.send(code(foreign.context_synchronize())).unwrap();
        bench.foreign.launch_host_function(&stream, function).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(answers.recv(), Ok(Some(DriverCode::NotPermitted)));
        assert!(bench.foreign.context_synchronize().is_ok());
    });
}

#[test]
fn the_nth_call_fails_and_changes_nothing() {
    let bench = Bench::new(0);
    let (stream, x) = (bench.stream(), bench.buffer(0));
    let simulation = bench.simulation();
    simulation.fail_call(1, DriverCode::Unknown);
    bench.step(&stream, &bench.one, &x).unwrap();
    assert_eq!(code(bench.step(&stream, &bench.one, &x)), Some(DriverCode::Unknown));
    bench.step(&stream, &bench.one, &x).unwrap();
    assert_eq!(bench.read(&stream, &x), 8);
}

#[test]
fn faults_by_name_come_one_by_one() {
    let bench = Bench::new(0);
    let simulation = bench.simulation();
    simulation.fail_next("cuMemAlloc", DriverCode::OutOfMemory);
    simulation.fail_next("cuMemAlloc", DriverCode::Unknown);
    let event = bench.foreign.event().unwrap();
    assert_eq!(code(bench.foreign.mem_alloc(4)), Some(DriverCode::OutOfMemory));
    assert_eq!(code(bench.foreign.mem_alloc(4)), Some(DriverCode::Unknown));
    assert!(bench.foreign.mem_alloc(4).is_ok());
    simulation.fail_next("cuEventDestroy", DriverCode::Unknown);
    drop(event);
    assert_eq!(simulation.live().events, 1, "a failed destroy leaves its object");
}

#[test]
fn a_failed_end_ends_the_capture_with_no_graph() {
    let bench = Bench::new(0);
    let stream = bench.stream();
    for number in [901, 904, 905, 1].map(DriverCode::from_number) {
        bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
        bench.simulation().fail_next("cuStreamEndCapture", number);
        assert_eq!(code(bench.foreign.end_capture(&stream)), Some(number));
        assert_eq!(bench.foreign.state(&stream), Ok(State::Idle));
    }
    let live = bench.simulation().live();
    assert_eq!((live.captures, live.graphs), (0, 0));
}

#[test]
fn a_hook_lets_another_thread_in_before_a_call_takes_effect() {
    let bench = Bench::new(0);
    let stream = bench.stream();
    bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
    let foreign = bench.foreign.clone();
    let hook = move || {
        let thread = std::thread::spawn(move || foreign.context_synchronize());
        assert!(thread.join().unwrap().is_err());
    };
    bench.simulation().on_next("cuStreamEndCapture", hook);
    let ended = bench.foreign.end_capture(&stream);
    assert_eq!(code(ended), Some(DriverCode::CaptureInvalidated));
}

#[test]
fn the_log_tells_call_thread_and_answer() {
    let bench = Bench::new(0);
    let stream = bench.stream();
    let simulation = bench.simulation();
    simulation.clear_log();
    let calls = simulation.calls();
    let end = || bench.foreign.end_capture(&stream);
    std::thread::scope(|scope| scope.spawn(end).join().unwrap()).unwrap_err();
    bench.foreign.stream_query(&stream).unwrap();
    assert_eq!(simulation.calls(), calls + 2);
    let log = simulation.log();
    let [end, query] = &log[..] else { panic!("{log:?}") };
    assert_eq!((end.name, end.result), ("cuStreamEndCapture", Err(DriverCode::IllegalState)));
    assert_eq!((query.name, query.result), ("cuStreamQuery", Ok(())));
    assert!(query.thread == std::thread::current().id() && end.thread != query.thread);
}

#[test]
fn everything_that_is_dropped_is_gone() {
    let bench = Bench::new(0);
    let before = bench.simulation().live();
    {
        let (stream, x) = (bench.stream(), bench.buffer(0));
        let _event = bench.foreign.event().unwrap();
        bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
        bench.step(&stream, &bench.one, &x).unwrap();
        let graph = bench.foreign.end_capture(&stream).unwrap();
        let exec = graph.instantiate().unwrap();
        exec.launch(&stream).unwrap();
        let live = bench.simulation().live();
        assert_eq!((live.graphs, live.execs, live.events), (1, 1, 1));
        assert_eq!((live.kernels, live.streams), (1, 3));
    }
    assert_eq!(bench.simulation().live(), before);
}
