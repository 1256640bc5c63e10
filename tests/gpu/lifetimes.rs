//! Handles that go in any order, memory that comes back, and a GPU that is lost.

use std::process::Command;

use graph_runner::cudarc::driver::CudaContext;
use graph_runner::*;

use crate::device_or_return;

/// Set in a process that a test here starts for itself.
const CHILD: &str = "GRAPH_RUNNER_TEST_CHILD";

/// Runs the test of this name in a process of its own; true in that process.
fn alone(test: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{out}");
    assert!(output.status.success() && out.contains("1 passed"), "{}\n{err}", output.status);
    false
}

#[test]
fn buffers_outlive_the_device_and_belong_to_the_next() {
    let _turn = crate::turn();
    // In a process of its own: no other test holds the device.
    if crate::gpu::device().is_none()
        || !alone("lifetimes::buffers_outlive_the_device_and_belong_to_the_next")
    {
        return;
    }
    let (x, stream) = {
        let device = Device::cuda(0).unwrap();
        (device.buffer(&[1_u32, 2]).unwrap(), device.stream().unwrap())
    };
    assert_eq!(stream.read(&x).unwrap(), [1, 2]);
    let device = Device::cuda(0).unwrap();
    assert_eq!(device.stream().unwrap().read(&x).unwrap(), [1, 2]);
    drop((x, stream, device));
    // All of it is gone now, and comes again.
    let device = Device::cuda(0).unwrap();
    let x = device.buffer(&[3_u32]).unwrap();
    assert_eq!(device.current_stream().read(&x).unwrap(), [3]);
}

#[test]
fn graphs_outlive_every_handle() {
    let (_turn, device) = device_or_return!();
    let (stream, result) = (device.stream().unwrap(), device.zeros::<u32>(100).unwrap());
    let graph = {
        let (x, add) = (device.zeros::<u32>(100).unwrap(), device.load(&crate::add()).unwrap());
        let other = device.stream().unwrap();
        other
            .capture(|capture| {
                let mut cx = capture.enqueue();
                cx.launch(&add, Grid::over(100), (&x, 4, 100))?;
                cx.copy(&x, &result)
            })
            .unwrap()
    };
    let others: Vec<_> = (0..64).map(|_| device.buffer(&[9_u32; 100]).unwrap()).collect();
    drop(device);
    for round in 1..=3 {
        graph.launch(&stream).unwrap();
        assert_eq!(stream.read(&result).unwrap(), [4 * round; 100]);
    }
    drop(others);
}

#[test]
fn s31_ten_thousand_rounds_leave_no_memory_behind() {
    let _turn = crate::turn();
    // In a process of its own: nobody else allocates in it.
    if crate::gpu::device().is_none()
        || !alone("lifetimes::s31_ten_thousand_rounds_leave_no_memory_behind")
    {
        return;
    }
    let context = CudaContext::new(0).unwrap();
    let free = || {
        context.bind_to_thread().unwrap();
        context.mem_get_info().unwrap().0
    };
    let round = |device: &Device| {
        let (x, stream) = (device.zeros::<u32>(1 << 18).unwrap(), device.stream().unwrap());
        let add = device.load(&crate::add()).unwrap();
        let graph = stream
            .capture(|capture| capture.enqueue().launch(&add, Grid::over(1), (&x, 1, 1)))
            .unwrap();
        graph.launch(&stream).unwrap();
        stream.wait_for(&device.current_stream()).unwrap();
        let last = x.slice(..1).unwrap();
        assert_eq!(stream.read(&last).unwrap(), [1]);
    };
    let device = Device::cuda(0).unwrap();
    for _ in 0..200 {
        round(&device);
    }
    let before = free();
    for _ in 0..10_000 {
        round(&device);
    }
    let after = free();
    println!("free memory: {before} bytes, {after} bytes 10,000 rounds later");
    // One page of the driver's. A leak of one kernel, graph, stream or buffer a round is more.
    assert!(before.saturating_sub(after) <= 2 << 20, "{before} {after}");

    drop(device);
    let before = free();
    for _ in 0..20 {
        round(&Device::cuda(0).unwrap());
    }
    let after = free();
    assert!(before.saturating_sub(after) <= 2 << 20, "{before} {after}");
}

#[test]
#[allow(unsafe_code)]
fn s35_a_gpu_that_is_lost_gives_errors() {
    let _turn = crate::turn();
    // In a process of its own: it loses the context.
    if crate::gpu::device().is_none() || !alone("lifetimes::s35_a_gpu_that_is_lost_gives_errors") {
        return;
    }
    let device = Device::cuda(0).unwrap();
    let source = "extern \"C\" __global__ void stray(unsigned* x) {
        volatile unsigned* nowhere = (unsigned*)((unsigned long long)x ^ (1ull << 46));
        nowhere[0] = 1;
    }";
    let spec = KernelSpec::<(Shared<u32>,)>::device_only("stray");
    // SAFETY: it is unsound on purpose, in a process that does nothing else.
    let kernel = device.load(&unsafe { spec.cuda_source(source, "stray") }).unwrap();
    let (x, stream) = (device.zeros::<u32>(4).unwrap(), device.stream().unwrap());
    let graph =
        stream.capture(|capture| capture.enqueue().launch(&kernel, Grid::over(1), (&x,))).unwrap();
    graph.launch(&stream).unwrap();
    let lost = stream.synchronize().unwrap_err();
    assert_eq!(lost.driver().unwrap().code(), DriverCode::IllegalAddress, "{lost}");
    for error in [
        stream.read(&x).map(drop).unwrap_err(),
        stream.write(&x, &[1; 4]).unwrap_err(),
        graph.launch(&stream).unwrap_err(),
        device.zeros::<u32>(1).map(drop).unwrap_err(),
        device.load(&crate::add()).map(drop).unwrap_err(),
        stream.enqueue(|cx| cx.fill(&x, 1)).unwrap_err(),
    ] {
        assert!(error.to_string().contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
    }
    drop((graph, x, kernel, stream, device));
    // The context went with its last handle. Whether a new one works is the driver's to say.
    match Device::cuda(0).and_then(|device| device.current_stream().read(&device.buffer(&[5])?)) {
        Ok(values) => assert_eq!(values, [5_u32]),
        Err(error) => assert!(error.to_string().contains("CUDA_ERROR_"), "{error}"),
    }
}
