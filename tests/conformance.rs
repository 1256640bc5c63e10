//! What a driver answers while a stream captures, and what becomes of the capture: measured on a
//! real GPU, held as a table, and played on every device that claims to be CUDA.

use graph_runner::testing::{CallResult, Foreign, ForeignExec, ForeignGraph, State};
use graph_runner::*;

#[path = "rules/gpu.rs"]
mod gpu;

fn devices() -> Vec<Device> {
    (0..4).map(Device::simulated).chain(gpu::device()).collect()
}

/// What a call finds: somebody's driver, a stream that captures, one that does not, and things that
/// were made before the capture began.
struct Bench {
    foreign: Foreign,
    stream: Stream,
    other: Stream,
    legacy: Stream,
    buffer: Buffer<u32>,
    graph: ForeignGraph,
    exec: ForeignExec,
    module: u64,
    address: u64,
}

impl Bench {
    fn new(device: &Device) -> Self {
        let foreign = Foreign::new(device);
        let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
        let buffer = device.zeros(4).unwrap();
        foreign.begin_capture(&other, CaptureMode::ThreadLocal).unwrap();
        other.enqueue(|cx| cx.fill(&buffer, 9)).unwrap();
        let graph = foreign.end_capture(&other).unwrap();
        let exec = graph.instantiate().unwrap();
        let module = foreign.module_load().unwrap();
        let address = foreign.mem_alloc_async(64, &other).unwrap();
        foreign.stream_synchronize(&other).unwrap();
        let legacy = device.legacy_stream();
        Self { foreign, stream, other, legacy, buffer, graph, exec, module, address }
    }

    /// The capture goes on: it takes a node and ends in a graph that has it.
    fn alive(&self, before: usize) {
        assert_eq!(self.foreign.state(&self.stream).unwrap(), State::Capturing);
        self.stream.enqueue(|cx| cx.fill(&self.buffer, 1)).unwrap();
        let graph = self.foreign.end_capture(&self.stream).unwrap();
        assert_eq!(graph.nodes().unwrap(), before + 1);
        let exec = graph.instantiate().unwrap();
        exec.launch(&self.other).unwrap();
        assert_eq!(self.other.read(&self.buffer).unwrap(), [1; 4]);
        drop((exec, graph));
        // The thread that drops what graphs kept gets its turn before the process may end.
        std::thread::sleep(std::time::Duration::from_millis(2));
    }

    /// The capture goes on, into a graph that is not launched here.
    fn captured(&self, nodes: usize) {
        assert_eq!(self.foreign.state(&self.stream).unwrap(), State::Capturing);
        assert_eq!(self.foreign.end_capture(&self.stream).unwrap().nodes().unwrap(), nodes);
        self.usable();
    }

    /// The capture is broken, says so, and ends in nothing; then the stream works again.
    fn invalidated(&self) {
        assert_eq!(self.foreign.state(&self.stream).unwrap(), State::Invalidated);
        let ended = self.foreign.end_capture(&self.stream).unwrap_err();
        assert_eq!(ended.code(), DriverCode::CaptureInvalidated);
        self.usable();
    }

    fn usable(&self) {
        assert_eq!(self.foreign.state(&self.stream).unwrap(), State::Idle);
        self.stream.enqueue(|cx| cx.fill(&self.buffer, 3)).unwrap();
        assert_eq!(self.stream.read(&self.buffer).unwrap(), [3; 4]);
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.foreign.relaxed(|foreign| {
            // Taken back already where a row plays that.
            let _ = foreign.mem_free_async(self.address, &self.other);
            let _ = foreign.module_unload(self.module);
            let _ = foreign.stream_synchronize(&self.other);
        });
    }
}

fn answers<T: std::fmt::Debug>(result: CallResult<T>, expected: DriverCode) {
    assert_eq!(result.unwrap_err().code(), expected);
}

/// One row: the call, made on the capturing thread, and the nodes it adds if the capture lives.
macro_rules! rows {
    ($($name:ident: $call:expr => $after:tt $(+ $nodes:literal)?;)*) => {$(
        #[test]
        fn $name() {
            for device in devices() {
                for mode in [CaptureMode::ThreadLocal, CaptureMode::Global] {
                    let mut bench = Bench::new(&device);
                    bench.foreign.begin_capture(&bench.stream, mode).unwrap();
                    #[allow(clippy::redundant_closure_call)]
                    ($call as fn(&mut Bench))(&mut bench);
                    rows!(@ bench $after $(+ $nodes)?);
                }
            }
        }
    )*};
    (@ $bench:ident alive) => { $bench.alive(0) };
    (@ $bench:ident alive + $nodes:literal) => { $bench.alive($nodes) };
    (@ $bench:ident invalidated) => { $bench.invalidated() };
    (@ $bench:ident captured + $nodes:literal) => { $bench.captured($nodes) };
    (@ $bench:ident done) => { $bench.usable() };
}

rows! {
    stream_synchronize: |b| answers(
        b.foreign.stream_synchronize(&b.stream), DriverCode::CaptureUnsupported) => invalidated;
    context_synchronize: |b| answers(
        b.foreign.context_synchronize(), DriverCode::CaptureUnsupported) => invalidated;
    stream_query: |b| answers(
        b.foreign.stream_query(&b.stream), DriverCode::CaptureUnsupported) => invalidated;
    stream_query_of_the_legacy_stream: |b| answers(
        b.foreign.stream_query(&b.legacy), DriverCode::CaptureUnsupported) => invalidated;
    mem_alloc: |b| answers(
        b.foreign.mem_alloc(64), DriverCode::CaptureUnsupported) => invalidated;
    mem_alloc_async_becomes_a_node: |b| {
        b.foreign.mem_alloc_async(64, &b.stream).unwrap();
    } => captured + 1;
    is_capturing_of_the_legacy_stream: |b| {
        assert_eq!(b.foreign.state(&b.legacy).unwrap(), State::Idle);
    } => alive;
    synchronous_memcpy_runs_now: |b| {
        b.foreign.memcpy_htod(&b.buffer, &[5; 4]).unwrap();
        assert_eq!(b.foreign.relaxed(|_| b.other.read(&b.buffer)).unwrap(), [5; 4]);
    } => alive;
    memcpy_async_of_pageable_memory_is_recorded: |b| {
        static VALUES: [u32; 4] = [7; 4];
        b.foreign.memcpy_htod_async(&b.buffer, &VALUES, &b.stream).unwrap();
    } => alive + 1;
    module_load: |b| {
        let module = b.foreign.module_load().unwrap();
        let _ = b.foreign.relaxed(|foreign| foreign.module_unload(module));
    } => alive;
    wait_for_an_event_from_outside: |b| {
        let event = b.foreign.event().unwrap();
        event.record(&b.other).unwrap();
        answers(event.make_wait(&b.stream), DriverCode::CaptureIsolation);
    } => invalidated;
    a_fork_that_never_joins: |b| {
        let event = b.foreign.event().unwrap();
        event.record(&b.stream).unwrap();
        event.make_wait(&b.other).unwrap();
        b.other.enqueue(|cx| cx.fill(&b.buffer, 2)).unwrap();
        answers(b.foreign.end_capture(&b.stream), DriverCode::CaptureUnjoined);
    } => done;
    a_fork_that_joins: |b| {
        let (fork, join) = (b.foreign.event().unwrap(), b.foreign.event().unwrap());
        fork.record(&b.stream).unwrap();
        fork.make_wait(&b.other).unwrap();
        b.other.enqueue(|cx| cx.fill(&b.buffer, 2)).unwrap();
        join.record(&b.other).unwrap();
        join.make_wait(&b.stream).unwrap();
    } => alive + 1;
    event_synchronize_of_a_captured_event: |b| {
        let event = b.foreign.event().unwrap();
        event.record(&b.stream).unwrap();
        answers(event.synchronize(), DriverCode::CapturedEvent);
    } => invalidated;
    begin_again: |b| answers(
        b.foreign.begin_capture(&b.stream, CaptureMode::ThreadLocal),
        DriverCode::IllegalState) => alive;
    begin_on_the_legacy_stream: |b| answers(
        b.foreign.begin_capture(&b.legacy, CaptureMode::ThreadLocal),
        DriverCode::CaptureUnsupported) => alive;
    a_launch_on_the_legacy_stream_runs_now: |b| {
        b.legacy.enqueue(|cx| cx.fill(&b.buffer, 6)).unwrap();
        let seen = b.foreign.relaxed(|_| b.legacy.read(&b.buffer)).unwrap();
        assert_eq!(seen, [6; 4]);
    } => alive;
    launch_host_function: |b| {
        b.foreign.launch_host_function(&b.stream, || {}).unwrap();
    } => alive + 1;
    graph_launch_on_the_capturing_stream: |b| answers(
        b.exec.launch(&b.stream), DriverCode::CaptureUnsupported) => invalidated;
    graph_launch_elsewhere: |b| b.exec.launch(&b.other).unwrap() => alive;
    exec_destroy: |b| answers(
        b.exec.destroy(), DriverCode::CaptureUnsupported) => invalidated;
    housekeeping_in_a_relaxed_bracket: |b| {
        b.foreign.relaxed(|foreign| {
            b.exec.destroy().unwrap();
            let address = foreign.mem_alloc(64).unwrap();
            foreign.mem_free(address).unwrap();
            foreign.module_load().unwrap();
            foreign.event().unwrap();
        });
    } => alive;
    more_housekeeping_in_a_relaxed_bracket: |b| {
        b.foreign.relaxed(|foreign| {
            foreign.stream_synchronize(&b.other).unwrap();
            foreign.module_unload(b.module).unwrap();
            b.graph.instantiate().unwrap();
        });
    } => alive;
    module_unload: |b| answers(
        b.foreign.module_unload(b.module), DriverCode::CaptureUnsupported) => invalidated;
    graph_instantiate: |b| answers(
        b.graph.instantiate(), DriverCode::CaptureUnsupported) => invalidated;
    an_event_made_and_destroyed: |b| drop(b.foreign.event().unwrap()) => alive;
    mem_free_async_of_an_allocation_from_before: |b| answers(
        b.foreign.mem_free_async(b.address, &b.stream), DriverCode::InvalidValue) => alive;
    wait_for_an_event_that_was_never_recorded: |b| {
        b.foreign.event().unwrap().make_wait(&b.stream).unwrap();
    } => alive;
    a_second_capture_of_the_same_thread: |b| {
        b.foreign.begin_capture(&b.other, CaptureMode::ThreadLocal).unwrap();
        b.other.enqueue(|cx| cx.fill(&b.buffer, 8)).unwrap();
        assert_eq!(b.foreign.end_capture(&b.other).unwrap().nodes().unwrap(), 1);
    } => alive;
    a_child_graph: |b| b.foreign.add_child_graph(&b.stream, &b.graph).unwrap() => alive + 1;
}

#[test]
fn a_stream_is_made_and_destroyed_during_a_capture() {
    for device in devices() {
        let bench = Bench::new(&device);
        bench.foreign.begin_capture(&bench.stream, CaptureMode::Global).unwrap();
        drop(device.stream().unwrap());
        bench.alive(0);
    }
}

#[test]
fn ended_by_another_thread_it_is_gone() {
    for device in devices() {
        let bench = Bench::new(&device);
        bench.foreign.begin_capture(&bench.stream, CaptureMode::ThreadLocal).unwrap();
        std::thread::scope(|scope| {
            let end = || bench.foreign.end_capture(&bench.stream).map(drop);
            answers(scope.spawn(end).join().unwrap(), DriverCode::CaptureWrongThread);
        });
        answers(bench.foreign.end_capture(&bench.stream), DriverCode::IllegalState);
        bench.usable();
    }
}

#[test]
fn an_empty_capture_is_a_graph() {
    for device in devices() {
        let bench = Bench::new(&device);
        bench.foreign.begin_capture(&bench.stream, CaptureMode::ThreadLocal).unwrap();
        let graph = bench.foreign.end_capture(&bench.stream).unwrap();
        assert_eq!(graph.nodes().unwrap(), 0);
        graph.instantiate().unwrap().launch(&bench.stream).unwrap();
        bench.usable();
    }
}

#[test]
fn a_blocking_stream_captures_and_the_legacy_stream_is_touched() {
    for device in devices() {
        let bench = Bench::new(&device);
        // The current stream that a device begins with is a blocking one.
        let blocking = device.current_stream();
        for other_thread in [false, true] {
            bench.foreign.begin_capture(&blocking, CaptureMode::ThreadLocal).unwrap();
            assert_eq!(bench.foreign.state(&bench.legacy).unwrap(), State::Implicit);
            assert_eq!(bench.foreign.state(&blocking).unwrap(), State::Capturing);
            // Through a foreign launch: this crate would have asked the stream's state before.
            let launch = || bench.exec.launch(&bench.legacy);
            let launched = if other_thread {
                std::thread::scope(|scope| scope.spawn(launch).join().unwrap())
            } else {
                launch()
            };
            answers(launched, DriverCode::CaptureImplicit);
            assert_eq!(bench.foreign.state(&blocking).unwrap(), State::Invalidated);
            answers(bench.foreign.end_capture(&blocking), DriverCode::CaptureInvalidated);
        }
    }
}

/// The second table: a call on ANOTHER thread, by the mode of the capture.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Other {
    Refused,
    Succeeds,
}

fn on_another_thread(
    call: impl Fn(&mut Bench) -> CallResult<()> + Send + Sync + Copy,
    expected: [Other; 3],
) {
    let modes = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
    for device in devices() {
        for (mode, expected) in modes.into_iter().zip(expected) {
            let mut bench = Bench::new(&device);
            bench.foreign.begin_capture(&bench.stream, mode).unwrap();
            let result =
                std::thread::scope(|scope| scope.spawn(|| call(&mut bench)).join().unwrap());
            match expected {
                Other::Refused => {
                    answers(result, DriverCode::CaptureUnsupported);
                    bench.invalidated();
                }
                Other::Succeeds => {
                    result.unwrap_or_else(|error| panic!("{mode:?}: {error}"));
                    bench.alive(0);
                }
            }
        }
    }
}

use Other::{Refused, Succeeds};

#[test]
fn another_threads_mem_alloc() {
    let call = |b: &mut Bench| {
        let address = b.foreign.mem_alloc(64)?;
        b.foreign.mem_free(address)
    };
    on_another_thread(call, [Refused, Succeeds, Succeeds]);
}

#[test]
fn another_threads_query_of_the_legacy_stream() {
    let call = |b: &mut Bench| b.foreign.stream_query(&b.legacy);
    on_another_thread(call, [Refused, Succeeds, Succeeds]);
}

#[test]
fn another_threads_context_synchronize() {
    let call = |b: &mut Bench| b.foreign.context_synchronize();
    on_another_thread(call, [Refused, Refused, Refused]);
}

#[test]
fn another_threads_exec_destroy() {
    let call = |b: &mut Bench| b.exec.destroy();
    on_another_thread(call, [Refused, Succeeds, Succeeds]);
}

#[test]
fn another_threads_work_with_a_stream_of_its_own() {
    let call = |b: &mut Bench| b.foreign.stream_synchronize(&b.other);
    on_another_thread(call, [Refused, Succeeds, Succeeds]);
    let call = |b: &mut Bench| b.foreign.stream_query(&b.other);
    on_another_thread(call, [Refused, Succeeds, Succeeds]);
    let call = |b: &mut Bench| {
        let address = b.foreign.mem_alloc_async(64, &b.other)?;
        b.foreign.mem_free_async(address, &b.other)
    };
    on_another_thread(call, [Refused, Succeeds, Succeeds]);
    let call = |b: &mut Bench| b.foreign.mem_free_async(b.address, &b.other);
    on_another_thread(call, [Refused, Succeeds, Succeeds]);
}

#[test]
fn another_threads_housekeeping_in_its_own_relaxed_bracket() {
    let call = |b: &mut Bench| {
        b.foreign.relaxed(|foreign| {
            b.exec.destroy()?;
            let address = foreign.mem_alloc(64)?;
            foreign.mem_free(address)?;
            foreign.stream_synchronize(&b.other)
        })
    };
    on_another_thread(call, [Succeeds, Succeeds, Succeeds]);
}

#[test]
fn captures_of_another_device_are_not_concerned() {
    let (one, two) = (Device::simulated(1), Device::simulated(2));
    let bench = Bench::new(&one);
    bench.foreign.begin_capture(&bench.stream, CaptureMode::Global).unwrap();
    let elsewhere = Foreign::new(&two);
    elsewhere.context_synchronize().unwrap();
    elsewhere.mem_alloc(64).unwrap();
    bench.alive(0);
}
