//! CUDA C++ to machine code, by NVRTC if it is on this machine.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int};
use std::sync::{Arc, OnceLock};

use libloading::Library;
use parking_lot::Mutex;

use super::api::{Handle, open};

type Compiled = Result<Arc<[u8]>, String>;
/// Images by source and architecture.
type Cache = HashMap<(String, c_int), Arc<[u8]>>;

/// Compiles `source` for compute capability `arch` (90 for 9.0); the compiler's log otherwise.
/// What was compiled once in the process is not compiled again.
pub(super) fn compile(source: &str, arch: c_int) -> Compiled {
    static CACHE: Mutex<Option<Cache>> = Mutex::new(None);
    let key = (source.to_owned(), arch);
    if let Some(image) = CACHE.lock().get_or_insert_default().get(&key) {
        return Ok(Arc::clone(image));
    }
    let image = Nvrtc::get()?.compile(source, arch)?;
    CACHE.lock().get_or_insert_default().insert(key, Arc::clone(&image));
    Ok(image)
}

struct Nvrtc {
    create: unsafe extern "C" fn(
        *mut Handle,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    destroy: unsafe extern "C" fn(*mut Handle) -> c_int,
    compile: unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> c_int,
    log_size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    cubin_size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
    cubin: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    ptx_size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
    ptx: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    /// Compute capabilities that it knows, in rising order; none if it does not tell.
    archs: Vec<c_int>,
}

impl Nvrtc {
    fn get() -> Result<&'static Self, String> {
        static NVRTC: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
        NVRTC.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Self, String> {
        let names = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"];
        let library = open(&names).ok_or(
            "NVRTC (libnvrtc) is not on this machine's library path; install it with the CUDA \
             toolkit or the nvidia-cuda-nvrtc package, or declare the kernel with \
             `KernelSpec::cuda_ptx` or `cuda_image`",
        )?;
        Self::resolve(Box::leak(Box::new(library)))
            .ok_or_else(|| "this NVRTC is too old: CUDA 11.1 or newer is needed".into())
    }

    fn resolve(library: &'static Library) -> Option<Self> {
        // SAFETY: these are the documented signatures, and the library is never unloaded.
        unsafe {
            Some(Self {
                create: *library.get(b"nvrtcCreateProgram\0").ok()?,
                destroy: *library.get(b"nvrtcDestroyProgram\0").ok()?,
                compile: *library.get(b"nvrtcCompileProgram\0").ok()?,
                log_size: *library.get(b"nvrtcGetProgramLogSize\0").ok()?,
                log: *library.get(b"nvrtcGetProgramLog\0").ok()?,
                cubin_size: *library.get(b"nvrtcGetCUBINSize\0").ok()?,
                cubin: *library.get(b"nvrtcGetCUBIN\0").ok()?,
                ptx_size: *library.get(b"nvrtcGetPTXSize\0").ok()?,
                ptx: *library.get(b"nvrtcGetPTX\0").ok()?,
                archs: Self::archs(library).unwrap_or_default(),
            })
        }
    }

    fn archs(library: &'static Library) -> Option<Vec<c_int>> {
        type Get = unsafe extern "C" fn(*mut c_int) -> c_int;
        // SAFETY: these are the documented signatures, and the array is as long as NVRTC said.
        unsafe {
            let count: Get = *library.get(b"nvrtcGetNumSupportedArchs\0").ok()?;
            let get: Get = *library.get(b"nvrtcGetSupportedArchs\0").ok()?;
            let mut number = 0;
            (count(&raw mut number) == 0).then_some(())?;
            let mut archs = vec![0; usize::try_from(number).ok()?];
            (get(archs.as_mut_ptr()) == 0).then_some(archs)
        }
    }

    fn compile(&self, source: &str, arch: c_int) -> Compiled {
        let source = CString::new(source).map_err(|_| "the source has a zero byte")?;
        // No contraction of `a * b + c`: the same arithmetic as a host function's.
        // A GPU that is newer than this NVRTC gets PTX of the newest architecture below it.
        let below = self.archs.iter().copied().filter(|&known| known <= arch).max();
        let (target, as_ptx) = match below {
            Some(known) if known < arch => (format!("compute_{known}"), true),
            _ => (format!("sm_{arch}"), false),
        };
        let options = [format!("--gpu-architecture={target}"), "--fmad=false".into()]
            .map(|option| CString::new(option).unwrap_or_default());
        let options = options.each_ref().map(|option| option.as_ptr());
        let mut program = std::ptr::null_mut();
        let none = std::ptr::null();
        // SAFETY: all strings end in zero and outlive the call; the result is valid for writing.
        let made = unsafe {
            let name = c"kernel.cu".as_ptr();
            (self.create)(&raw mut program, source.as_ptr(), name, 0, none, none)
        };
        if made != 0 {
            return Err(format!("nvrtcCreateProgram answered {made}"));
        }
        // SAFETY: the program was made just now; the options outlive the call.
        let code = unsafe { (self.compile)(program, options.len() as c_int, options.as_ptr()) };
        let result = if code == 0 && as_ptx {
            self.output(program, self.ptx_size, self.ptx).map(Into::into)
        } else if code == 0 {
            self.output(program, self.cubin_size, self.cubin).map(Into::into)
        } else {
            let log = self.output(program, self.log_size, self.log).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let log = log.trim_end_matches('\0').trim();
            Err(if log.is_empty() { format!("NVRTC answered {code}") } else { log.to_owned() })
        };
        // SAFETY: the program is alive and used no more.
        unsafe { (self.destroy)(&raw mut program) };
        result
    }

    fn output(
        &self,
        program: Handle,
        size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
        get: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>, String> {
        let mut bytes = 0;
        // SAFETY: the program is alive and the result is valid for writing.
        let mut code = unsafe { size(program, &raw mut bytes) };
        let mut output = vec![0_u8; bytes];
        if code == 0 {
            // SAFETY: the buffer is as long as NVRTC said.
            code = unsafe { get(program, output.as_mut_ptr().cast()) };
        }
        if code == 0 { Ok(output) } else { Err(format!("NVRTC answered {code}")) }
    }
}
