use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Host;
use crate::device::driver::{
    CaptureMode, Driver, DriverCode, RawKernel, RawPtr, RawStream, StreamState,
};
use crate::device::kernel::{Access, Grid, KernelSpec, RawArg};
use crate::{In, Out};

const STREAM: RawStream = RawStream(100);

fn floats(host: &Host, values: &[f32]) -> RawPtr {
    let ptr = host.mem_alloc(size_of_val(values)).unwrap();
    host.upload(STREAM, ptr, bytemuck::cast_slice(values)).unwrap();
    ptr
}

fn read(host: &Host, ptr: RawPtr, len: usize) -> Vec<f32> {
    let mut values = vec![0.0; len];
    host.download(STREAM, ptr, bytemuck::cast_slice_mut(&mut values)).unwrap();
    values
}

fn axpy(host: &Host) -> RawKernel {
    let spec = KernelSpec::<(f32, In<f32>, Out<f32>)>::per_thread("axpy", |t, (a, x, y)| {
        y[0] += a * x[t.index];
    });
    host.kernel_load(spec.decl()).unwrap()
}

fn buffer(ptr: RawPtr, len: usize, access: Access) -> RawArg<'static> {
    RawArg::Buffer { ptr, bytes: 4 * len, element: 4, access }
}

fn launch(host: &Host, kernel: RawKernel, x: RawPtr, y: RawPtr, len: usize) {
    let a = 2.0_f32;
    let a = RawArg::Scalar(bytemuck::bytes_of(&a));
    let args = [a, buffer(x, len, Access::Read), buffer(y, len, Access::Own)];
    host.launch(STREAM, kernel, &Grid::over(len), &args).unwrap();
}

#[test]
fn operations_run_at_once() {
    let host = Host::new();
    let (kernel, x, y) = (axpy(&host), floats(&host, &[1.0, 2.0]), floats(&host, &[10.0, 20.0]));
    launch(&host, kernel, x, y, 2);
    assert_eq!(read(&host, y, 2), [12.0, 24.0]);
    host.copy(STREAM, x, y, 4).unwrap();
    assert_eq!(read(&host, x, 2), [12.0, 2.0]);
    host.fill(STREAM, RawPtr(x.0 + 4), bytemuck::bytes_of(&7.0_f32), 1).unwrap();
    assert_eq!(read(&host, x, 2), [12.0, 7.0]);
}

#[test]
fn disjoint_slices_of_one_allocation_are_carved() {
    let host = Host::new();
    let (kernel, all) = (axpy(&host), floats(&host, &[1.0, 2.0, 10.0, 20.0, 30.0]));
    launch(&host, kernel, all, RawPtr(all.0 + 8), 2);
    launch(&host, kernel, RawPtr(all.0 + 12), all, 2);
    assert_eq!(read(&host, all, 5), [49.0, 62.0, 12.0, 24.0, 30.0]);
}

#[test]
fn a_big_grid_runs_every_thread_once() {
    let host = Host::new();
    let len = 100_003;
    let (kernel, x) = (axpy(&host), floats(&host, &vec![1.0; len]));
    let y = host.mem_alloc(4 * len).unwrap();
    launch(&host, kernel, x, y, len);
    assert_eq!(read(&host, y, len), vec![2.0; len]);
}

#[test]
fn a_capture_is_the_threads_and_replays_in_order() {
    let host = Host::new();
    let (kernel, x, y) = (axpy(&host), floats(&host, &[1.0]), floats(&host, &[0.0]));
    host.begin_capture(STREAM, CaptureMode::ThreadLocal).unwrap();
    let again = host.begin_capture(RawStream(101), CaptureMode::ThreadLocal);
    assert_eq!(again.unwrap_err().code(), DriverCode::IllegalState);
    assert_eq!(host.stream_state(RawStream(101)).unwrap(), StreamState::Capturing);
    let elsewhere = std::thread::scope(|s| s.spawn(|| host.stream_state(STREAM)).join().unwrap());
    assert_eq!(elsewhere.unwrap(), StreamState::Idle);
    launch(&host, kernel, x, y, 1);
    host.copy(RawStream(101), x, y, 4).unwrap();
    let graph = host.end_capture(STREAM).unwrap();
    assert_eq!(read(&host, y, 1), [0.0], "a recorded operation does not run");
    assert_eq!(host.graph_node_count(graph).unwrap(), 2);
    let exec = host.graph_instantiate(graph).unwrap();
    host.graph_destroy(graph).unwrap();
    host.graph_launch(exec, STREAM).unwrap();
    host.graph_launch(exec, STREAM).unwrap();
    assert_eq!(read(&host, y, 1), [6.0]);
    host.exec_destroy(exec).unwrap();
    assert_eq!(host.graph_launch(exec, STREAM).unwrap_err().code(), DriverCode::InvalidHandle);
}

#[test]
fn retained_things_come_back_once_after_the_last_graph() {
    let host = Host::new();
    let released = Arc::new(AtomicUsize::new(0));
    let release = {
        let released = Arc::clone(&released);
        Arc::new(move |keep: Vec<_>| {
            released.fetch_add(keep.len(), Ordering::Relaxed);
        })
    };
    host.begin_capture(STREAM, CaptureMode::Relaxed).unwrap();
    host.capture_retain(STREAM, vec![Arc::new(1), Arc::new(2)], release).unwrap();
    let graph = host.end_capture(STREAM).unwrap();
    let exec = host.graph_instantiate(graph).unwrap();
    host.graph_destroy(graph).unwrap();
    assert_eq!(released.load(Ordering::Relaxed), 0);
    host.exec_destroy(exec).unwrap();
    assert_eq!(released.load(Ordering::Relaxed), 2);
}

#[test]
fn stale_and_foreign_addresses_are_answered() {
    let host = Host::new();
    let x = floats(&host, &[1.0]);
    let beyond = host.fill(STREAM, x, &[0], 5).unwrap_err();
    assert_eq!((beyond.call(), beyond.code()), ("cuMemsetD8Async", DriverCode::IllegalAddress));
    assert_eq!(
        Host::new().fill(STREAM, x, &[0], 4).unwrap_err().code(),
        DriverCode::IllegalAddress
    );
    host.mem_free(x).unwrap();
    assert_eq!(host.mem_free(x).unwrap_err().code(), DriverCode::InvalidValue);
    assert_eq!(host.fill(STREAM, x, &[0], 4).unwrap_err().code(), DriverCode::IllegalAddress);
}

#[test]
fn kernels_run_inside_a_rayon_pool_whose_workers_all_want_one_allocation() {
    use rayon::prelude::*;
    let host = Host::new();
    let (rows, len) = (64, 20_000);
    let (kernel, x) = (axpy(&host), floats(&host, &vec![1.0; len]));
    let y = host.mem_alloc(4 * len * rows).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..50).for_each(|_| launch(&host, kernel, x, y, len)));
        (1..rows).into_par_iter().for_each(|row| {
            launch(&host, kernel, x, RawPtr(y.0 + (4 * len * row) as u64), len);
        });
    });
    let mut expected = vec![2.0; len * rows];
    expected[..len].fill(100.0);
    assert_eq!(read(&host, y, len * rows), expected);
}
