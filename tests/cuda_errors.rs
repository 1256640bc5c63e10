//! A machine with no GPU, no driver, an old driver or a broken one gets error values (S35).
//!
//! What this machine has is asked as it is. The rest is played by a driver library that is compiled
//! here and put before the real one, in a process of its own.

#![cfg(feature = "cuda")]

use std::path::Path;
use std::process::Command;

use graph_runner::*;

/// What a driver library answers, for [`played`]: `none`, or a list of `missing=NAME` and
/// `NAME=CODE`.
const PLAYED: &str = "GRAPH_RUNNER_TEST_DRIVER";

fn shown(error: &Error) -> String {
    assert!(!format!("{error:?}").is_empty());
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text += &format!(": {error} {error:?}");
        source = error.source();
    }
    text
}

#[test]
fn s35_asking_for_a_gpu_never_panics() {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| match Device::cuda(0) {
                Ok(device) => assert_eq!(device.kind(), DeviceKind::Cuda),
                Err(error) => assert!(shown(&error).len() > 20, "{error}"),
            });
        }
    });
    println!("cuda(0): {:?}", Device::cuda(0).map_err(|error| shown(&error)));
}

#[test]
fn s35_an_ordinal_that_no_machine_has_is_unavailable() {
    for ordinal in [4096, i32::MAX as usize, usize::MAX] {
        let error = Device::cuda(ordinal).unwrap_err();
        let Error::Unavailable { device: DeviceKind::Cuda, why } = &error else {
            panic!("{error:?}");
        };
        assert!(shown(&error).starts_with("no cuda device: "), "{error}");
        let no_gpu = Device::cuda(0).is_err();
        assert!(no_gpu || why.contains(&ordinal.to_string()), "{why}");
    }
}

#[test]
fn s35_the_best_device_works_everywhere() {
    let device = Device::best();
    let here = if Device::cuda(0).is_ok() { DeviceKind::Cuda } else { DeviceKind::Host };
    assert_eq!(device.kind(), here);
    let buffer = device.buffer(&[1_u32, 2, 3]).unwrap();
    let stream = device.current_stream();
    stream.enqueue(|cx| cx.fill(&buffer.slice(1..)?, 9)).unwrap();
    assert_eq!(stream.read(&buffer).unwrap(), [1, 9, 9]);
}

#[test]
fn every_result_code_can_be_shown() {
    for number in -2..=1100 {
        let code = DriverCode::from_number(number);
        assert_eq!(code.number(), number);
        let text = code.to_string();
        assert!(text.contains(&number.to_string()), "{text}");
        assert_eq!(code.cuda_name().is_some(), text.starts_with("CUDA_ERROR_"), "{text}");
        assert!(!format!("{code:?}").is_empty());
    }
}

#[test]
fn a_kernel_without_a_host_function_says_what_to_add() {
    let spec = KernelSpec::<(Out<u32>,)>::device_only("only on a GPU");
    let error = Device::host().load(&spec).unwrap_err();
    assert!(matches!(error, Error::NoKernelCode { device: DeviceKind::Host, .. }), "{error:?}");
    assert!(shown(&error).contains("per_thread"), "{error}");
}

#[test]
fn s35_a_driver_that_is_old_or_broken_gives_errors() {
    if std::env::var_os(PLAYED).is_some() {
        return;
    }
    let Some(rustc) = rustc() else {
        println!("skipped: there is no rustc here to compile a driver library with");
        return;
    };
    let folder = std::env::temp_dir().join(format!("graph-runner-driver-{}", std::process::id()));
    let cases = [
        // The library is not one.
        ("none", "too old: it has no cuGetProcAddress"),
        ("missing=cuUserObjectCreate", "too old: it has no cuUserObjectCreate"),
        ("missing=cuInit", "too old: it has no cuInit"),
        ("cuInit=100", "cuInit answered CUDA_ERROR_NO_DEVICE (100)"),
        // The toolkit's stub library in place of a driver.
        ("cuInit=34", "cuInit answered CUDA error 34"),
        ("cuInit=999", "cuInit answered CUDA_ERROR_UNKNOWN (999)"),
        ("cuDeviceGetCount=3", "cuDeviceGetCount answered CUDA_ERROR_NOT_INITIALIZED (3)"),
        ("count=0", "sees no GPU"),
        ("cuDeviceGet=101", "cuDeviceGet answered CUDA_ERROR_INVALID_DEVICE (101)"),
        (
            "cuDevicePrimaryCtxRetain=2",
            "cuDevicePrimaryCtxRetain answered CUDA_ERROR_OUT_OF_MEMORY",
        ),
        ("cuDeviceGetName=1", "cuDeviceGetName answered CUDA_ERROR_INVALID_VALUE (1)"),
        ("cuDeviceGetAttribute=1", "cuDeviceGetAttribute answered CUDA_ERROR_INVALID_VALUE (1)"),
        ("cuCtxGetCurrent=4", "cuCtxGetCurrent answered CUDA_ERROR_DEINITIALIZED (4)"),
        ("cuStreamCreateWithPriority=2", "cuStreamCreateWithPriority answered CUDA_ERROR_OUT_OF"),
        // Without the bracket that a driver refuses, and with results that it never writes.
        ("cuThreadExchangeStreamCaptureMode=1", "made cuda:0"),
        ("works", "made cuda:0"),
    ];
    for (played, expected) in cases {
        let library = folder.join(if played == "none" { "none" } else { "driver" });
        compile(&rustc, &library, if played == "none" { "" } else { DRIVER });
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_asks_for_a_gpu", "--nocapture"])
            .env("LD_LIBRARY_PATH", &library)
            .env(PLAYED, played)
            .output()
            .unwrap();
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{played}: {}\n{out}\n{err}", output.status);
        let answer = out.lines().find(|line| line.contains("answer: "));
        let answer = answer.unwrap_or_else(|| panic!("{played}: {out}\n{err}"));
        assert!(answer.contains(expected), "{played}: {answer}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// What the test above runs in a process of its own; by itself it asks the real driver.
#[test]
fn child_asks_for_a_gpu() {
    let answer = match Device::cuda(0) {
        Ok(device) => format!("made {}", device.name()),
        Err(error) => shown(&error),
    };
    println!("answer: {answer}");
    // The first answer stays, and the fallback works.
    assert_eq!(Device::cuda(0).is_ok(), answer.starts_with("made"));
    assert_eq!(Device::best().kind() == DeviceKind::Cuda, answer.starts_with("made"));
}

fn rustc() -> Option<std::ffi::OsString> {
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let found = Command::new(&rustc).arg("--version").output().is_ok_and(|o| o.status.success());
    found.then_some(rustc)
}

fn compile(rustc: &std::ffi::OsStr, folder: &Path, source: &str) {
    let library = folder.join("libcuda.so.1");
    if library.exists() {
        return;
    }
    std::fs::create_dir_all(folder).unwrap();
    let path = folder.join("driver.rs");
    std::fs::write(&path, source).unwrap();
    let done = Command::new(rustc)
        .args(["--edition=2024", "--crate-type=cdylib", "-o"])
        .args([&library, &path])
        .status()
        .unwrap();
    assert!(done.success());
}

/// A driver in which every call succeeds and does nothing, but for what `PLAYED` says.
const DRIVER: &str = r#"
use std::ffi::{CStr, c_char, c_int, c_void};

extern "C" fn answer<const CODE: c_int>() -> c_int { CODE }

extern "C" fn no_devices(count: *mut c_int) -> c_int { unsafe { *count = 0 }; 0 }
extern "C" fn one_device(count: *mut c_int) -> c_int { unsafe { *count = 1 }; 0 }

fn found(name: &str) -> Option<*mut c_void> {
    let played = std::env::var("GRAPH_RUNNER_TEST_DRIVER").unwrap();
    if played == format!("missing={name}") { return None; }
    if name == "cuDeviceGetCount" && played == "count=0" { return Some(no_devices as *mut c_void); }
    let answers: extern "C" fn() -> c_int = match played.strip_prefix(&format!("{name}=")) {
        None if name == "cuDeviceGetCount" => return Some(one_device as *mut c_void),
        None => answer::<0>,
        Some("1") => answer::<1>,
        Some("2") => answer::<2>,
        Some("3") => answer::<3>,
        Some("4") => answer::<4>,
        Some("34") => answer::<34>,
        Some("100") => answer::<100>,
        Some("101") => answer::<101>,
        Some("999") => answer::<999>,
        Some(other) => panic!("no code {other}"),
    };
    Some(answers as *mut c_void)
}

#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress_v2(
    name: *const c_char, pointer: *mut *mut c_void, _: c_int, _: u64, status: *mut c_int,
) -> c_int {
    let address = found(unsafe { CStr::from_ptr(name) }.to_str().unwrap());
    unsafe {
        *pointer = address.unwrap_or(std::ptr::null_mut());
        *status = address.is_none() as c_int;
    }
    0
}
"#;
