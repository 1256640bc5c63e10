//! Many threads on one device.

use super::*;

/// Many threads on one device, each with streams, captures and graphs of its own, and one that
/// breaks captures: nothing hangs, everything that worked is right, nothing is left.
#[test]
fn threads_share_a_device_without_deadlock() {
    let (done, finished) = mpsc::channel();
    std::thread::spawn(move || {
        let bench = Bench::new(42);
        let before = bench.simulation().live();
        std::thread::scope(|scope| {
            for thread in 0..8_u32 {
                let bench = &bench;
                scope.spawn(move || (0..40).for_each(|round| hammer(bench, thread, round)));
            }
        });
        assert_eq!(bench.simulation().live(), before);
        done.send(bench.simulation().pending()).unwrap();
    });
    let pending = finished.recv_timeout(std::time::Duration::from_secs(60));
    assert_eq!(pending, Ok(0), "no deadlock");
}

fn hammer(bench: &Bench, thread: u32, round: u32) {
    let (stream, side) = (bench.stream(), bench.stream());
    let (x, y) = (bench.buffer(0), bench.buffer(0));
    if thread == 0 && round.is_multiple_of(4) {
        // Breaks whatever captures are open.
        let _ = bench.foreign.context_synchronize();
    }
    // Another thread may break the capture at any call.
    let record = || -> Result<(), DriverError> {
        for _ in 0..3 {
            bench.step(&stream, &y, &x)?;
            bench.order(&stream, &side)?;
            bench.step(&side, &x, &y)?;
            bench.order(&side, &stream)?;
        }
        Ok(())
    };
    bench.foreign.begin_capture(&stream, CaptureMode::ThreadLocal).unwrap();
    let recorded = record();
    let ended = bench.foreign.end_capture(&stream);
    assert_eq!(bench.foreign.state(&side), Ok(State::Idle));
    match ended {
        Ok(graph) => {
            recorded.unwrap();
            graph.instantiate().unwrap().launch(&stream).unwrap();
        }
        Err(error) => {
            assert_eq!(error.code(), DriverCode::CaptureInvalidated);
            record().unwrap();
        }
    }
    let (mut expected_x, mut expected_y) = (0, 0);
    for _ in 0..3 {
        expected_x = 3 * expected_x + expected_y + 1;
        expected_y = 3 * expected_y + expected_x + 1;
    }
    assert_eq!(bench.read(&stream, &x), expected_x);
    assert_eq!(bench.read(&stream, &y), expected_y);
}
