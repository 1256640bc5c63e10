//! What must not compile, each with a twin that does and differs in the one point.

/// The toolchain whose messages the snapshots hold; see `rust-toolchain.toml`.
const PINNED: &str = "1.95.0";

#[test]
fn s09_s10_s12_what_must_not_compile_says_why_and_its_twin_compiles() {
    let cases = trybuild::TestCases::new();
    cases.pass("ui-tests/pass/*.rs");
    let version = std::process::Command::new("rustc").arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    match version {
        Ok(version) if version.contains(PINNED) => cases.compile_fail("ui-tests/fail/*.rs"),
        other => println!("messages skipped: they are those of Rust {PINNED}, not of {other:?}"),
    }
}

#[test]
fn every_case_has_its_twin_and_its_message() {
    let names = |folder: &str, ending: &str| -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|name| name.strip_suffix(ending).map(Into::into))
            .collect();
        names.sort();
        names
    };
    let cases = names("ui-tests/fail", ".rs");
    assert!(cases.len() >= 20);
    assert_eq!(cases, names("ui-tests/pass", ".rs"));
    assert_eq!(cases, names("ui-tests/fail", ".stderr"));
}
