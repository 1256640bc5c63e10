//! Memory: fills, copies, uploads and downloads through pinned staging, and what orders them.

use bytemuck::{Pod, Zeroable};
use graph_runner::*;

use crate::{device_or_return, noise};

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug, Pod, Zeroable)]
struct Wide([u32; 16]);

/// Fills the middle of a buffer, and nothing else of it.
fn fills<T: Element + PartialEq + std::fmt::Debug>(device: &Device, value: T, around: T) {
    let stream = device.stream().unwrap();
    for len in [1, 2, 3, 1000, 70_001, (1 << 20) + 3] {
        let buffer = device.buffer(&vec![around; len + 2]).unwrap();
        let middle = buffer.slice(1..=len).unwrap();
        stream.enqueue(|cx| cx.fill(&middle, value)).unwrap();
        let found = stream.read(&buffer).unwrap();
        assert_eq!((found[0], found[len + 1]), (around, around), "{len} of {value:?}");
        let wrong = found[1..=len].iter().position(|found| *found != value);
        assert_eq!(wrong, None, "{len} of {value:?}");
    }
}

#[test]
fn fills_write_patterns_of_every_size() {
    let (_turn, device) = device_or_return!();
    fills(&device, 0xa5_u8, 1);
    fills(&device, 0x1234_u16, 1);
    fills(&device, 0x1234_5678_u32, 1);
    fills(&device, 0x1122_3344_5566_7788_u64, 1);
    fills(&device, [1.0_f32, 2.0, 3.0], [9.0; 3]);
    fills(&device, [1_u32, 2, 3, 4], [9; 4]);
    fills(&device, Wide(std::array::from_fn(|i| i as u32 * 0x0101_0107)), Wide([9; 16]));
    // Patterns whose words or bytes are all the same, and elements without alignment.
    fills(&device, [7_u32; 3], [9; 3]);
    fills(&device, 0_u64, 9);
    fills(&device, 0x2222_u16, 9);
    fills(&device, [1_u8, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], [0; 12]);
    fills(&device, [3_u8, 4], [0; 2]);
}

#[test]
fn fills_are_captured_and_replayed() {
    let (_turn, device) = device_or_return!();
    let (stream, small) = (device.stream().unwrap(), device.zeros::<u16>(33).unwrap());
    let wide = device.zeros::<[u32; 3]>(1001).unwrap();
    let graph = stream
        .capture(|capture| {
            let mut cx = capture.enqueue();
            cx.fill(&small, 0x0102)?;
            cx.fill(&wide, [5, 6, 7])
        })
        .unwrap();
    assert_eq!(stream.read(&small).unwrap(), [0; 33]);
    for _ in 0..2 {
        graph.launch(&stream).unwrap();
        assert_eq!(stream.read(&small).unwrap(), [0x0102; 33]);
        assert!(stream.read(&wide).unwrap().iter().all(|found| *found == [5, 6, 7]));
        stream.enqueue(|cx| cx.fill(&wide, [0; 3])).unwrap();
        stream.enqueue(|cx| cx.fill(&small, 0)).unwrap();
    }
}

#[test]
fn copies_stay_inside_their_slices() {
    let (_turn, device) = device_or_return!();
    let (from, to) = (noise(100_000, 1), noise(100_000, 2));
    let (source, target) = (device.buffer(&from).unwrap(), device.buffer(&to).unwrap());
    let stream = device.stream().unwrap();
    let mut expected = to;
    for (at, there, len) in [(0, 5, 1), (17, 100, 4096), (50_001, 33_333, 49_999)] {
        let source = source.slice(at..at + len).unwrap();
        let target = target.slice(there..there + len).unwrap();
        stream.enqueue(|cx| cx.copy(&source, &target)).unwrap();
        expected[there..there + len].copy_from_slice(&from[at..at + len]);
    }
    assert!(stream.read(&target).unwrap() == expected);
    assert!(stream.read(&source).unwrap() == from);
}

#[test]
fn uploads_and_downloads_of_every_size_are_exact() {
    let (_turn, device) = device_or_return!();
    let stream = device.stream().unwrap();
    let block = 4 << 20;
    for len in [1, 3, 4096, block - 1, block, block + 1, 3 * block + 5, 10 * block] {
        let values = noise(len, len as u32);
        let buffer = device.zeros::<u8>(len).unwrap();
        let mut source = values.clone();
        stream.write(&buffer, &source).unwrap();
        // The source may be reused at once.
        source.fill(0xee);
        assert!(stream.read(&buffer).unwrap() == values, "{len}");
        assert!(stream.read(&device.buffer(&values).unwrap()).unwrap() == values, "{len}");
    }
}

#[test]
fn an_upload_is_in_stream_order() {
    let (_turn, device) = device_or_return!();
    let (slow, stream) = (device.load(&crate::slow_add()).unwrap(), device.stream().unwrap());
    let x = device.zeros::<u32>(1000).unwrap();
    // Behind a slow kernel, several uploads wait in their blocks; each kernel sees its own.
    for round in 0..6 {
        stream.write(&x, &vec![round * 100; 1000]).unwrap();
        stream.enqueue(|cx| cx.launch(&slow, Grid::over(1000), (&x, 1, 1000))).unwrap();
        if round % 2 == 1 {
            assert_eq!(stream.read(&x).unwrap(), vec![round * 100 + 1; 1000]);
        }
    }
}

#[test]
fn a_replay_right_behind_an_upload_sees_it() {
    let (_turn, device) = device_or_return!();
    let stream = device.stream().unwrap();
    let len = 2 << 20;
    let (x, y) = (device.zeros::<u32>(len).unwrap(), device.zeros::<u32>(len).unwrap());
    let graph = stream.capture(|capture| capture.enqueue().copy(&x, &y)).unwrap();
    let mut values = vec![0; len];
    for round in 1..=50 {
        values.fill(round);
        stream.write(&x, &values).unwrap();
        graph.launch(&stream).unwrap();
        let stale = stream.read(&y).unwrap().iter().filter(|found| **found != round).count();
        assert_eq!(stale, 0, "round {round}");
    }
}

#[test]
fn threads_share_the_staging() {
    let (_turn, device) = device_or_return!();
    std::thread::scope(|scope| {
        for thread in 0..8_u32 {
            let device = &device;
            scope.spawn(move || {
                let stream = device.stream().unwrap();
                for round in 0..20 {
                    let len = 1 + (thread as usize * 7919 + round * 104_729) % (6 << 20);
                    let values = noise(len, thread * 1000 + round as u32);
                    let buffer = device.zeros::<u8>(len).unwrap();
                    stream.write(&buffer, &values).unwrap();
                    assert!(stream.read(&buffer).unwrap() == values, "{thread} {round}");
                }
            });
        }
    });
}

#[test]
fn events_order_streams() {
    let (_turn, device) = device_or_return!();
    let slow = device.load(&crate::slow_add()).unwrap();
    let add = device.load(&crate::add()).unwrap();
    let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
    let x = device.zeros::<u32>(100).unwrap();
    for round in 1..=3 {
        first.enqueue(|cx| cx.launch(&slow, Grid::over(100), (&x, 1, 100))).unwrap();
        second.wait_for(&first).unwrap();
        second.enqueue(|cx| cx.launch(&add, Grid::over(100), (&x, 10, 100))).unwrap();
        first.wait_for(&second).unwrap();
        assert_eq!(first.read(&x).unwrap(), [11 * round; 100]);
    }
}

#[test]
fn priorities_are_clamped_to_what_the_gpu_has() {
    let (_turn, device) = device_or_return!();
    let x = device.zeros::<u32>(1).unwrap();
    for priority in [i32::MIN, -1, 0, 1, i32::MAX] {
        let stream = device.stream_with_priority(priority).unwrap();
        stream.enqueue(|cx| cx.fill(&x, 3)).unwrap();
        assert_eq!(stream.read(&x).unwrap(), [3]);
    }
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    let (_turn, device) = device_or_return!();
    let error = device.zeros::<u8>(1 << 50).unwrap_err();
    assert_eq!(error.driver().unwrap().code(), DriverCode::OutOfMemory);
    assert_eq!(device.zeros::<u8>(0).unwrap().len(), 0);
    assert_eq!(device.current_stream().read(&device.zeros::<u8>(5).unwrap()).unwrap(), [0; 5]);
}
