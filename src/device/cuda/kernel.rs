//! Kernels on CUDA: modules, functions and launches.

use std::ffi::{CString, c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

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
}

/// What every function may have without being asked for more.
const DEFAULT_SHARED_LIMIT: u32 = 48 << 10;

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
            CudaCode::Image(image) => std::sync::Arc::clone(image),
            CudaCode::Source(source) => nvrtc::compile(source, self.arch).map_err(compile_error)?,
        };
        let _current = self.context.enter()?;
        let module = self.load_module(&image).map_err(|(error, log)| {
            if log.is_empty() { error.into() } else { compile_error(format!("{log}\n{error}")) }
        })?;
        match self.function(module, &cuda.entry) {
            Ok(function) => {
                let shared_limit = AtomicU32::new(DEFAULT_SHARED_LIMIT);
                let loaded = Box::new(Loaded { module, function, shared_limit });
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

    fn function(&self, module: Handle, entry: &str) -> DriverResult<Handle> {
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
        Ok(function)
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
        if grid.shared_bytes > loaded.shared_limit.load(Ordering::Relaxed) {
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
        const MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;
        let value = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: the function is alive as long as `loaded`.
        check("cuFuncSetAttribute", unsafe {
            (self.api.func_set_attribute)(loaded.function, MAX_DYNAMIC_SHARED_SIZE_BYTES, value)
        })?;
        loaded.shared_limit.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }
}
