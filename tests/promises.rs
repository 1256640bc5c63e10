//! What may go to another thread and what may not, held by the compiler.

use graph_runner::*;
use static_assertions::{assert_impl_all, assert_not_impl_any};

struct Clear(Buffer<f32>);

impl Producer for Clear {
    type Kind = kind::Capturable;
    type Variant = ();
    const NAME: &'static str = "clear";
}

impl Capturable for Clear {
    fn enqueue(&self, (): &(), cx: &mut Enqueue<'_>) -> Result<()> {
        cx.fill(&self.0, 0.0)
    }
}

assert_impl_all!(Device: Send, Sync, Clone);
assert_impl_all!(Stream: Send, Sync, Clone);
assert_impl_all!(Buffer<f32>: Send, Sync, Clone);
assert_impl_all!(Kernel<(Out<f32>,)>: Send, Sync, Clone);
assert_impl_all!(KernelSpec<(Out<f32>,)>: Send, Sync, Clone);
assert_impl_all!(Graph: Send, Sync, Clone);
assert_impl_all!(Error: Send, Sync, std::error::Error);
assert_impl_all!(Run: Send, Sync);
assert_impl_all!(GraphRunner<Clear>: Send);
assert_not_impl_any!(GraphRunner<Clear>: Clone);
assert_not_impl_any!(Enqueue<'static>: Send, Sync, Clone);
assert_not_impl_any!(HostStage<'static>: Send, Sync, Clone);
assert_not_impl_any!(LegacyLaunch<'static>: Send, Sync, Clone);
assert_not_impl_any!(Capture<'static>: Send, Sync, Clone);
assert_not_impl_any!(Serial: Send, Clone);

#[test]
fn s12_a_runner_may_move_to_another_thread_between_calls() {
    let device = Device::host();
    let clear = Clear(device.buffer(&[1.0; 3]).unwrap());
    let mut runner = GraphRunner::new(&device, clear).unwrap();
    runner.run().unwrap();
    let runner = std::thread::spawn(move || {
        runner.run().unwrap();
        runner
    });
    let runner = runner.join().unwrap();
    assert_eq!(runner.read(&runner.producer().0).unwrap(), [0.0; 3]);
}
