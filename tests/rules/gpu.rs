//! The GPU that tests run on, where there is one.

use graph_runner::Device;

/// Says why if there is none; with `GRAPH_RUNNER_REQUIRE_GPU=1` that is a failure.
pub(crate) fn device() -> Option<Device> {
    match cuda() {
        Ok(device) => Some(device),
        Err(why) => {
            let required = std::env::var_os("GRAPH_RUNNER_REQUIRE_GPU").is_some_and(|v| v == "1");
            assert!(!required, "GRAPH_RUNNER_REQUIRE_GPU=1, and {why}");
            println!("skipped on CUDA: {why}");
            None
        }
    }
}

#[cfg(feature = "cuda")]
fn cuda() -> graph_runner::Result<Device> {
    Device::cuda(0)
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> Result<Device, &'static str> {
    Err("built without the feature `cuda`")
}
