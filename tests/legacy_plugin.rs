//! The example `legacy_plugin`, run as a person would.

use std::path::Path;
use std::process::Command;

fn last_line(device: &str) -> String {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().and_then(Path::parent).unwrap().join("examples/legacy_plugin");
    assert!(path.exists(), "{} is missing: run `cargo build --examples`", path.display());
    let output = Command::new(path).args(["--device", device]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().last().unwrap().to_owned()
}

#[test]
fn on_the_host_everything_runs_eagerly() {
    assert_eq!(last_line("host"), "legacy_plugin device=host modes=eager,eager,eager");
}

#[test]
#[cfg(feature = "simulate")]
fn what_can_be_captured_replays() {
    let expected = "legacy_plugin device=simulated modes=self-graph,self-graph,eager";
    assert_eq!(last_line("simulated"), expected);
}
