//! Makes a plain `cargo test` include what needs the feature `simulate`, by calling cargo once more.

#![cfg(not(feature = "simulate"))]

#[test]
fn the_suite_on_the_simulated_device() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    for arguments in [
        // Tests run the examples' binaries.
        &["build", "--examples"][..],
        &[
            "test",
            "--lib",
            "--test",
            "conformance",
            "--test",
            "rules",
            "--test",
            "race_tracks",
            "--test",
            "simulation",
            "--test",
            "stress",
        ],
        &["test", "--doc"],
    ] {
        let mut command = std::process::Command::new(&cargo);
        command.args(arguments).args(["--features", "simulate"]);
        let status = command.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
        assert!(status.success(), "{command:?}");
    }
}
