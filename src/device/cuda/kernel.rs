//! Kernels on CUDA: modules, functions and launches.

use std::ffi::{CString, c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::api::Handle;
use super::{Cuda, check, nvrtc};
use crate::device::driver::{DriverCode, DriverError, DriverResult, RawKernel, RawStream};
use crate::device::kernel::{CudaCode, Grid, KernelDecl, RawArg};
use crate::error::Error;

/// A loaded function. A [`RawKernel`] is the address of one, boxed.
pub(super) struct Loaded {
    module: Handle,
    function: Handle,
    /// Dynamic shared memory that the function may have so far, in bytes.
    shared_limit: AtomicU32,
    /// Held while the limit is raised: of two sizes set at once, the smaller must not win.
    raising: Mutex<()>,
}

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_DYNAMIC_SHARED_BYTES: c_int = 8;

impl Cuda {
    pub(super) fn load(&self, decl: &KernelDecl) -> Result<RawKernel, Error> {
        let compile_error =
            |log: String| Error::KernelCompile { kernel: decl.name.to_string(), log };
        let Some(cuda) = &decl.cuda else {
            let device = self.info.kind;
            return Err(Error::NoKernelCode { kernel: decl.name.to_string(), device });
        };
        let image = match &cuda.code {
            CudaCode::Ptx(text) => {
                let text = CString::new(text.as_bytes());
                let text = text.map_err(|_| compile_error("the PTX has a zero byte".into()))?;
                text.into_bytes_with_nul().into()
            }
            CudaCode::Image(image) if image.is_empty() => {
                return Err(compile_error("the image is empty".into()));
            }
            CudaCode::Image(image) => std::sync::Arc::clone(image),
            CudaCode::Source(source) => nvrtc::compile(source, self.arch).map_err(compile_error)?,
        };
        let _current = self.context.enter()?;
        let module = self.load_module(&image).map_err(|(error, log)| {
            if log.is_empty() { error.into() } else { compile_error(format!("{log}\n{error}")) }
        })?;
        match self.function(module, &cuda.entry) {
            Ok((function, shared_limit)) => {
                let shared_limit = AtomicU32::new(shared_limit);
                let raising = Mutex::new(());
                let loaded = Box::new(Loaded { module, function, shared_limit, raising });
                Ok(RawKernel(Box::into_raw(loaded) as u64))
            }
            Err(error) => {
                // SAFETY: loaded just now and used by nothing. A refusal leaks it.
                let _ = unsafe { (self.api.module_unload)(module) };
                Err(match error.code() {
                    DriverCode::NotFound => compile_error(format!(
                        "the code has no function `{}`; is it `extern \"C\" __global__`?",
                        cuda.entry
                    )),
                    _ => error.into(),
                })
            }
        }
    }

    /// Loads a module; the JIT compiler's log, otherwise.
    pub(super) fn load_module(&self, image: &[u8]) -> Result<Handle, (DriverError, String)> {
        const ERROR_LOG_BUFFER: c_int = 5;
        const ERROR_LOG_BUFFER_SIZE: c_int = 6;
        let mut log = [0_u8; 8192];
        let mut options = [ERROR_LOG_BUFFER, ERROR_LOG_BUFFER_SIZE];
        let mut values: [*mut c_void; 2] =
            [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len())];
        let mut module = std::ptr::null_mut();
        // SAFETY: the image is a whole one (PTX ends in zero); options and values are as many as is
        // said, and the log's buffer is as long as is said.
        let code = unsafe {
            (self.api.module_load_data_ex)(
                &raw mut module,
                image.as_ptr().cast(),
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        check("cuModuleLoadDataEx", code).map(|()| module).map_err(|error| {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
            (error, String::from_utf8_lossy(&log[..end]).trim().to_owned())
        })
    }

    /// The function of this name, and the dynamic shared memory that it may have: less than 48 KiB
    /// if it has static shared memory too.
    fn function(&self, module: Handle, entry: &str) -> DriverResult<(Handle, u32)> {
        let name = CString::new(entry)
            .map_err(|_| DriverError::new("cuModuleGetFunction", DriverCode::NotFound))?;
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is alive, the name ends in zero, the result is valid for writing.
        check("cuModuleGetFunction", unsafe {
            (self.api.module_get_function)(&raw mut function, module, name.as_ptr())
        })?;
        if let Some(load) = self.api.func_load {
            // With lazy loading the code would come at the first launch, maybe in a capture.
            // SAFETY: the function was given by the driver just now.
            check("cuFuncLoad", unsafe { load(function) })?;
        }
        let mut shared_limit = 0;
        // SAFETY: the function is the module's and the result is valid for writing.
        check("cuFuncGetAttribute", unsafe {
            let attribute = MAX_DYNAMIC_SHARED_BYTES;
            (self.api.func_get_attribute)(&raw mut shared_limit, attribute, function)
        })?;
        Ok((function, u32::try_from(shared_limit).unwrap_or(0)))
    }

    pub(super) fn unload(&self, kernel: RawKernel) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // SAFETY: `kernel` came from `load`, and its one owner gives it up here.
        let loaded = unsafe { Box::from_raw(kernel.0 as *mut Loaded) };
        // SAFETY: graphs that use the module keep its owner alive, so nothing does any more.
        check("cuModuleUnload", unsafe { (self.api.module_unload)(loaded.module) })
    }

    pub(super) fn launch_kernel(
        &self,
        stream: RawStream,
        kernel: RawKernel,
        grid: &Grid,
        args: &[RawArg<'_>],
    ) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // SAFETY: `kernel` came from `load` and its owner is alive: the launch borrows it.
        let loaded = unsafe { &*(kernel.0 as *const Loaded) };
        if grid.shared_bytes > loaded.shared_limit.load(Ordering::Acquire) {
            self.raise_shared_limit(loaded, grid.shared_bytes)?;
        }
        let addresses: SmallVec<[u64; 12]> = args
            .iter()
            .map(|arg| match arg {
                RawArg::Buffer { ptr, .. } => ptr.0,
                RawArg::Scalar(_) => 0,
            })
            .collect();
        let mut parameters: SmallVec<[*mut c_void; 12]> = args
            .iter()
            .zip(&addresses)
            .map(|(arg, address)| match arg {
                RawArg::Buffer { .. } => (&raw const *address).cast_mut().cast(),
                RawArg::Scalar(bytes) => bytes.as_ptr().cast_mut().cast(),
            })
            .collect();
        let ([gx, gy, gz], [bx, by, bz]) = (grid.blocks, grid.block);
        let (function, shared) = (loaded.function, grid.shared_bytes);
        let (stream, parameters) = (stream.0 as Handle, parameters.as_mut_ptr());
        // SAFETY: the stream is alive, and the kernel's declaration vouches that the function takes
        // these parameters, of which the driver copies the values before it returns.
        unsafe {
            if grid.cooperative {
                check(
                    "cuLaunchCooperativeKernel",
                    (self.api.launch_cooperative_kernel)(
                        function, gx, gy, gz, bx, by, bz, shared, stream, parameters,
                    ),
                )
            } else {
                let extra = std::ptr::null_mut();
                check(
                    "cuLaunchKernel",
                    (self.api.launch_kernel)(
                        function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra,
                    ),
                )
            }
        }
    }

    fn raise_shared_limit(&self, loaded: &Loaded, bytes: u32) -> DriverResult<()> {
        let _raising = loaded.raising.lock();
        if bytes <= loaded.shared_limit.load(Ordering::Acquire) {
            return Ok(());
        }
        let value = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: the function is alive as long as `loaded`.
        check("cuFuncSetAttribute", unsafe {
            (self.api.func_set_attribute)(loaded.function, MAX_DYNAMIC_SHARED_BYTES, value)
        })?;
        loaded.shared_limit.store(bytes, Ordering::Release);
        Ok(())
    }
}
