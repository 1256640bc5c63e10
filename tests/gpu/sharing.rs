//! Sharing a GPU with an application that uses cudarc, or the driver itself.

use std::sync::Arc;

use graph_runner::cudarc::driver::{CudaContext, sys};
use graph_runner::*;

use crate::device_or_return;

const RELAXED: sys::CUstreamCaptureMode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
const THREAD_LOCAL: sys::CUstreamCaptureMode =
    sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const GLOBAL: sys::CUstreamCaptureMode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;

/// A context that is not the GPU's primary one.
#[allow(unsafe_code)]
fn another_context() -> Arc<CudaContext> {
    type Create = unsafe extern "C" fn(*mut sys::CUcontext, u32, i32) -> i32;
    // SAFETY: the driver is there, as a device was made before, and its old exports stay. The
    // context is made for GPU 0 and given to the handle.
    unsafe {
        let driver = libloading::Library::new("libcuda.so.1").unwrap();
        let create = *driver.get::<Create>(b"cuCtxCreate_v2\0").unwrap();
        let mut context = std::ptr::null_mut();
        assert_eq!(create(&raw mut context, 0, 0), 0);
        CudaContext::from_raw_context(0, 0, context).unwrap()
    }
}

#[allow(unsafe_code)]
fn current_context() -> usize {
    let mut context = std::ptr::null_mut();
    // SAFETY: the result is valid for writing.
    let code = unsafe { sys::cuCtxGetCurrent(&raw mut context) };
    assert_eq!(code as i32, 0);
    context as usize
}

#[test]
fn the_primary_context_is_one_device() {
    let (_turn, device) = device_or_return!();
    let context = CudaContext::new(0).unwrap();
    assert_eq!(Device::from_cudarc(&context).unwrap(), device);
    assert_eq!(Device::cuda(0).unwrap(), device);
    assert_eq!(Device::best(), device);
    assert!(device.name().starts_with("cuda:0 "), "{}", device.name());
}

#[test]
fn s16_contexts_are_devices_of_their_own() {
    let (_turn, device) = device_or_return!();
    let context = another_context();
    let other = Device::from_cudarc(&context).unwrap();
    assert_ne!(other, device);
    assert_eq!(Device::from_cudarc(&context).unwrap(), other);
    let (ours, theirs) = (device.buffer(&[1_u32]).unwrap(), other.buffer(&[2_u32]).unwrap());
    let (stream, their_stream) = (device.stream().unwrap(), other.stream().unwrap());
    assert_eq!(stream.read(&ours).unwrap(), [1]);
    assert_eq!(their_stream.read(&theirs).unwrap(), [2]);
    let error = stream.read(&theirs).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }), "{error:?}");
    let error = device.adopt_stream(&context.new_stream().unwrap()).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }), "{error:?}");
    let error = device.set_current_stream(&their_stream).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }), "{error:?}");
    // Kernels and graphs, both at once.
    for (device, stream) in [(&device, &stream), (&other, &their_stream)] {
        let (x, add) = (device.zeros::<u32>(8).unwrap(), device.load(&crate::add()).unwrap());
        let graph = stream
            .capture(|capture| capture.enqueue().launch(&add, Grid::over(8), (&x, 3, 8)))
            .unwrap();
        graph.launch(stream).unwrap();
        graph.launch(stream).unwrap();
        assert_eq!(stream.read(&x).unwrap(), [6; 8]);
    }
}

#[test]
fn every_call_leaves_the_current_context_as_it_was() {
    let (_turn, device) = device_or_return!();
    let another = another_context();
    let work = |device: &Device| {
        let (x, stream) = (device.zeros::<u32>(8).unwrap(), device.stream().unwrap());
        let add = device.load(&crate::add()).unwrap();
        let graph = stream
            .capture(|capture| capture.enqueue().launch(&add, Grid::over(8), (&x, 3, 8)))
            .unwrap();
        graph.launch(&stream).unwrap();
        assert_eq!(stream.read(&x).unwrap(), [3; 8]);
        let refused = stream
            .enqueue(|cx| cx.launch(&add, Grid::blocks([1, 70_000, 1], [1, 1, 1]), (&x, 3, 8)));
        refused.unwrap_err();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(current_context(), 0);
            work(&device);
            assert_eq!(current_context(), 0);
            another.bind_to_thread().unwrap();
            work(&device);
            drop(Device::from_cudarc(&another).unwrap());
            assert_eq!(current_context(), another.cu_ctx() as usize);
            work(&Device::from_cudarc(&another).unwrap());
            assert_eq!(current_context(), another.cu_ctx() as usize);
        });
    });
}

#[test]
fn an_applications_flags_and_errors_are_left_alone() {
    let (_turn, device) = device_or_return!();
    let context = another_context();
    assert!(context.is_event_tracking());
    let other = Device::from_cudarc(&context).unwrap();
    let stream = other.adopt_stream(&context.new_stream().unwrap()).unwrap();
    let x = other.zeros::<u32>(8).unwrap();
    let add = other.load(&crate::add()).unwrap();
    let bad = Grid::blocks([1, 70_000, 1], [1, 1, 1]);
    stream.enqueue(|cx| cx.launch(&add, bad, (&x, 3, 8))).unwrap_err();
    assert!(other.zeros::<u8>(1 << 50).is_err());
    assert!(context.is_event_tracking());
    // A refusal of ours is not parked where the application's next call finds it.
    context.check_err().unwrap();
    drop((stream, x, add, other));
    context.check_err().unwrap();
    assert_ne!(context.cu_ctx() as usize, 0);
    drop(device);
}

#[test]
fn an_adopted_stream_lives_as_long_as_its_handle() {
    let (_turn, device) = device_or_return!();
    let context = CudaContext::new(0).unwrap();
    let theirs = context.new_stream().unwrap();
    let ours = device.adopt_stream(&theirs).unwrap();
    assert_eq!(ours.handle(), theirs.cu_stream() as u64);
    let weak = Arc::downgrade(&theirs);
    drop(theirs);
    let x = device.zeros::<u32>(3).unwrap();
    ours.enqueue(|cx| cx.fill(&x, 5)).unwrap();
    assert_eq!(ours.read(&x).unwrap(), [5; 3]);
    assert!(weak.upgrade().is_some());
    drop(ours);
    assert!(weak.upgrade().is_none());
}

#[test]
#[allow(unsafe_code)]
fn a_raw_stream_is_taken_as_it_is() {
    let (_turn, device) = device_or_return!();
    let theirs = CudaContext::new(0).unwrap().new_stream().unwrap();
    // SAFETY: a stream of this device, which outlives its uses here.
    let ours = unsafe { device.stream_from_raw(theirs.cu_stream() as u64) };
    let x = device.zeros::<u32>(3).unwrap();
    ours.enqueue(|cx| cx.fill(&x, 5)).unwrap();
    theirs.synchronize().unwrap();
    assert_eq!(device.stream().unwrap().read(&x).unwrap(), [5; 3]);
    // SAFETY: both names of the legacy default stream.
    let [zero, one] = unsafe { [device.stream_from_raw(0), device.stream_from_raw(1)] };
    assert!(zero == one && one == device.legacy_stream());
    zero.enqueue(|cx| cx.fill(&x, 6)).unwrap();
    assert_eq!(zero.read(&x).unwrap(), [6; 3]);
}

#[test]
fn s30_cudarcs_own_capture_keeps_what_it_recorded() {
    let (_turn, device) = device_or_return!();
    let context = CudaContext::new(0).unwrap();
    for mode in [THREAD_LOCAL, RELAXED, GLOBAL] {
        let theirs = context.new_stream().unwrap();
        let ours = device.adopt_stream(&theirs).unwrap();
        let between = device.buffer(&[5_u32; 1000]).unwrap();
        let result = device.zeros::<u32>(1000).unwrap();
        let add = device.load(&crate::add()).unwrap();
        let refused = device.buffer(&[0_u32; 4]).unwrap();

        theirs.begin_capture(mode).unwrap();
        ours.enqueue(|cx| {
            cx.launch(&add, Grid::over(1000), (&between, 2, 1000))?;
            cx.copy(&between, &result)
        })
        .unwrap();
        // Refusals and housekeeping leave the capture whole.
        assert!(matches!(ours.synchronize(), Err(Error::Capture { .. })));
        assert!(matches!(ours.read(&result), Err(Error::Capture { .. })));
        drop(refused);
        drop(device.zeros::<u8>(1 << 20).unwrap());
        drop(device.stream().unwrap());
        let graph = theirs.end_capture(sys::CUgraphInstantiate_flags(0)).unwrap().unwrap();
        drop((between, add));

        // Memory that was given back would be given out again now.
        let others: Vec<_> = (0..64).map(|_| device.buffer(&[9_u32; 1000]).unwrap()).collect();
        assert_eq!(ours.read(&result).unwrap(), [0; 1000]);
        graph.launch().unwrap();
        assert_eq!(ours.read(&result).unwrap(), [7; 1000]);
        graph.launch().unwrap();
        assert_eq!(ours.read(&result).unwrap(), [9; 1000]);
        drop(others);
    }
    context.check_err().unwrap();
}
