//! The driver's entry points, each asked for in the version whose signature stands here.
//!
//! Not cudarc's bindings: which version of an entry point those name depends on the toolkit they
//! were built for, a missing library or symbol panics there, and a result code that they do not
//! know is not a value of their enum. What cudarc and this crate share is the driver itself, and
//! handles.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

use libloading::Library;

/// Any handle or pointer of the driver's.
pub(super) type Handle = *mut c_void;

/// Declares the table: field, CUDA name, CUDA version times 1000, parameters.
macro_rules! entry_points {
    (
        required { $($(#[$meta:meta])* $field:ident: $name:literal @ $version:literal ($($argument:ty),*);)* }
        optional { $($o_field:ident: $o_name:literal @ $o_version:literal ($($o_argument:ty),*);)* }
    ) => {
        /// The driver's entry points.
        pub(super) struct Api {
            $($(#[$meta])* pub(super) $field: unsafe extern "C" fn($($argument),*) -> c_int,)*
            $(pub(super) $o_field: Option<unsafe extern "C" fn($($o_argument),*) -> c_int>,)*
        }

        impl Api {
            fn resolve(get: &GetProcAddress) -> Result<Self, String> {
                Ok(Self {
                    $($(#[$meta])* $field: {
                        let pointer = get.find($name, $version).ok_or_else(|| missing($name))?;
                        // SAFETY: the driver gave this address for the entry point of this name in
                        // the version whose documented C signature this is.
                        unsafe {
                            std::mem::transmute::<
                                Handle,
                                unsafe extern "C" fn($($argument),*) -> c_int,
                            >(pointer)
                        }
                    },)*
                    $($o_field: get.find($o_name, $o_version).map(|pointer| {
                        // SAFETY: as above.
                        unsafe {
                            std::mem::transmute::<
                                Handle,
                                unsafe extern "C" fn($($o_argument),*) -> c_int,
                            >(pointer)
                        }
                    }),)*
                })
            }
        }
    };
}

entry_points! {
    required {
    init: c"cuInit" @ 2000 (c_uint);
    device_get_count: c"cuDeviceGetCount" @ 2000 (*mut c_int);
    device_get: c"cuDeviceGet" @ 2000 (*mut c_int, c_int);
    device_get_name: c"cuDeviceGetName" @ 2000 (*mut c_char, c_int, c_int);
    device_get_attribute: c"cuDeviceGetAttribute" @ 2000 (*mut c_int, c_int, c_int);
    primary_ctx_retain: c"cuDevicePrimaryCtxRetain" @ 7000 (*mut Handle, c_int);
    primary_ctx_release: c"cuDevicePrimaryCtxRelease" @ 11000 (c_int);
    ctx_get_current: c"cuCtxGetCurrent" @ 4000 (*mut Handle);
    ctx_push_current: c"cuCtxPushCurrent" @ 4000 (Handle);
    ctx_pop_current: c"cuCtxPopCurrent" @ 4000 (*mut Handle);
    ctx_get_device: c"cuCtxGetDevice" @ 2000 (*mut c_int);
    ctx_get_stream_priority_range: c"cuCtxGetStreamPriorityRange" @ 5050 (*mut c_int, *mut c_int);
    stream_create_with_priority: c"cuStreamCreateWithPriority" @ 5050 (*mut Handle, c_uint, c_int);
    stream_get_priority: c"cuStreamGetPriority" @ 5050 (Handle, *mut c_int);
    stream_destroy: c"cuStreamDestroy" @ 4000 (Handle);
    stream_synchronize: c"cuStreamSynchronize" @ 2000 (Handle);
    stream_is_capturing: c"cuStreamIsCapturing" @ 10000 (Handle, *mut c_int);
    stream_begin_capture: c"cuStreamBeginCapture" @ 10010 (Handle, c_int);
    stream_end_capture: c"cuStreamEndCapture" @ 10000 (Handle, *mut Handle);
    stream_get_capture_info: c"cuStreamGetCaptureInfo" @ 11030
        (Handle, *mut c_int, *mut u64, *mut Handle, *mut *const Handle, *mut usize);
    thread_exchange_capture_mode: c"cuThreadExchangeStreamCaptureMode" @ 10010 (*mut c_int);
    stream_wait_event: c"cuStreamWaitEvent" @ 3020 (Handle, Handle, c_uint);
    event_create: c"cuEventCreate" @ 2000 (*mut Handle, c_uint);
    event_destroy: c"cuEventDestroy" @ 4000 (Handle);
    event_record: c"cuEventRecord" @ 2000 (Handle, Handle);
    event_query: c"cuEventQuery" @ 2000 (Handle);
    event_synchronize: c"cuEventSynchronize" @ 2000 (Handle);
    mem_alloc: c"cuMemAlloc" @ 3020 (*mut u64, usize);
    mem_free: c"cuMemFree" @ 3020 (u64);
    mem_alloc_host: c"cuMemAllocHost" @ 3020 (*mut Handle, usize);
    mem_free_host: c"cuMemFreeHost" @ 2000 (Handle);
    memcpy_htod_async: c"cuMemcpyHtoDAsync" @ 3020 (u64, *const c_void, usize, Handle);
    memcpy_dtoh_async: c"cuMemcpyDtoHAsync" @ 3020 (*mut c_void, u64, usize, Handle);
    memcpy_dtod_async: c"cuMemcpyDtoDAsync" @ 3020 (u64, u64, usize, Handle);
    memset_d8_async: c"cuMemsetD8Async" @ 3020 (u64, u8, usize, Handle);
    memset_d16_async: c"cuMemsetD16Async" @ 3020 (u64, u16, usize, Handle);
    memset_d32_async: c"cuMemsetD32Async" @ 3020 (u64, c_uint, usize, Handle);
    memset_d2d32_async: c"cuMemsetD2D32Async" @ 3020 (u64, usize, c_uint, usize, usize, Handle);
    module_load_data_ex: c"cuModuleLoadDataEx" @ 2010
        (*mut Handle, *const c_void, c_uint, *mut c_int, *mut *mut c_void);
    module_unload: c"cuModuleUnload" @ 2000 (Handle);
    module_get_function: c"cuModuleGetFunction" @ 2000 (*mut Handle, Handle, *const c_char);
    func_get_attribute: c"cuFuncGetAttribute" @ 2020 (*mut c_int, c_int, Handle);
    func_set_attribute: c"cuFuncSetAttribute" @ 9000 (Handle, c_int, c_int);
    launch_kernel: c"cuLaunchKernel" @ 4000 (
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void,
        *mut *mut c_void
    );
    launch_cooperative_kernel: c"cuLaunchCooperativeKernel" @ 9000 (
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void
    );
    graph_get_nodes: c"cuGraphGetNodes" @ 10000 (Handle, *mut Handle, *mut usize);
    graph_instantiate_with_flags: c"cuGraphInstantiateWithFlags" @ 11040
        (*mut Handle, Handle, c_ulonglong);
    graph_launch: c"cuGraphLaunch" @ 10000 (Handle, Handle);
    graph_exec_destroy: c"cuGraphExecDestroy" @ 10000 (Handle);
    graph_destroy: c"cuGraphDestroy" @ 10000 (Handle);
    user_object_create: c"cuUserObjectCreate" @ 11030
        (*mut Handle, *mut c_void, unsafe extern "C" fn(*mut c_void), c_uint, c_uint);
    user_object_release: c"cuUserObjectRelease" @ 11030 (Handle, c_uint);
    graph_retain_user_object: c"cuGraphRetainUserObject" @ 11030
        (Handle, Handle, c_uint, c_uint);
    // For tests that play a careless caller.
    #[cfg(feature = "simulate")]
    stream_query: c"cuStreamQuery" @ 2000 (Handle);
    #[cfg(feature = "simulate")]
    ctx_synchronize: c"cuCtxSynchronize" @ 2000 ();
    #[cfg(feature = "simulate")]
    mem_alloc_async: c"cuMemAllocAsync" @ 11020 (*mut u64, usize, Handle);
    #[cfg(feature = "simulate")]
    mem_free_async: c"cuMemFreeAsync" @ 11020 (u64, Handle);
    #[cfg(feature = "simulate")]
    memcpy_htod: c"cuMemcpyHtoD" @ 3020 (u64, *const c_void, usize);
    #[cfg(feature = "simulate")]
    launch_host_func: c"cuLaunchHostFunc" @ 10000
        (Handle, unsafe extern "C" fn(*mut c_void), *mut c_void);
    #[cfg(feature = "simulate")]
    graph_add_child_graph_node: c"cuGraphAddChildGraphNode" @ 10000
        (*mut Handle, Handle, *const Handle, usize, Handle);
    #[cfg(feature = "simulate")]
    stream_update_capture_dependencies: c"cuStreamUpdateCaptureDependencies" @ 11030
        (Handle, *mut Handle, usize, c_uint);
    }
    optional {
    func_load: c"cuFuncLoad" @ 12040 (Handle);
    }
}

impl Api {
    /// The driver of this machine, loaded and initialised once; why not, otherwise.
    pub(super) fn get() -> Result<&'static Self, String> {
        static API: OnceLock<Result<Api, String>> = OnceLock::new();
        API.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Self, String> {
        let library = open(&["libcuda.so.1", "libcuda.so", "nvcuda.dll"]).ok_or(
            "the CUDA driver library (libcuda) is not on this machine; install NVIDIA's driver, or \
             use `Device::host()`",
        )?;
        // The driver stays for the process: it has state in every thread.
        let get = GetProcAddress::of(Box::leak(Box::new(library)))?;
        let api = Self::resolve(&get)?;
        // SAFETY: may be called at any time, by any thread, any number of times.
        let code = unsafe { (api.init)(0) };
        match code {
            0 => Ok(api),
            code => Err(format!(
                "the CUDA driver does not start: cuInit answered {}; is a GPU there, and does \
                 `nvidia-smi` see it?",
                super::DriverCode::from_number(code)
            )),
        }
    }
}

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub(super) const RELAXED: c_int = 2;

impl Api {
    /// Sets the calling thread's capture mode to RELAXED until the guard is dropped, as
    /// [`Relaxed`](crate::device::Relaxed) does where a driver handle is at hand.
    pub(super) fn relaxed(&'static self) -> RelaxedThread {
        let mut mode = RELAXED;
        // SAFETY: the mode is valid for reading and writing. Needs no context.
        let code = unsafe { (self.thread_exchange_capture_mode)(&raw mut mode) };
        RelaxedThread { api: self, before: (code == 0).then_some(mode) }
    }
}

/// See [`Api::relaxed`].
pub(super) struct RelaxedThread {
    api: &'static Api,
    before: Option<c_int>,
}

impl Drop for RelaxedThread {
    fn drop(&mut self) {
        if let Some(mut mode) = self.before {
            // SAFETY: as above, with the mode that was there before. It was accepted then.
            let _ = unsafe { (self.api.thread_exchange_capture_mode)(&raw mut mode) };
        }
    }
}

fn missing(name: &CStr) -> String {
    let name = name.to_string_lossy();
    format!("the CUDA driver is too old: it has no {name}; CUDA 11.4 or newer is needed")
}

/// Opens the first of these libraries that is there.
pub(super) fn open(names: &[&str]) -> Option<Library> {
    // SAFETY: NVIDIA's libraries are made to be loaded by any program; their initialisers only set
    // up their own state.
    names.iter().find_map(|name| unsafe { Library::new(*name) }.ok())
}

/// `cuGetProcAddress`, in whichever form the driver exports it.
enum GetProcAddress {
    V1(unsafe extern "C" fn(*const c_char, *mut Handle, c_int, u64) -> c_int),
    V2(unsafe extern "C" fn(*const c_char, *mut Handle, c_int, u64, *mut c_int) -> c_int),
}

impl GetProcAddress {
    fn of(library: &'static Library) -> Result<Self, String> {
        // SAFETY: these are the documented signatures of the two exported symbols, and the library
        // is never unloaded.
        unsafe {
            if let Ok(symbol) = library.get(b"cuGetProcAddress_v2\0") {
                return Ok(Self::V2(*symbol));
            }
            match library.get(b"cuGetProcAddress\0") {
                Ok(symbol) => Ok(Self::V1(*symbol)),
                Err(_) => Err(missing(c"cuGetProcAddress")),
            }
        }
    }

    fn find(&self, name: &CStr, version: c_int) -> Option<Handle> {
        let mut pointer = std::ptr::null_mut();
        let mut status = 0;
        // SAFETY: `name` is a C string and both results are valid for writing.
        let code = unsafe {
            match self {
                Self::V1(get) => get(name.as_ptr(), &raw mut pointer, version, 0),
                Self::V2(get) => get(name.as_ptr(), &raw mut pointer, version, 0, &raw mut status),
            }
        };
        (code == 0 && !pointer.is_null()).then_some(pointer)
    }
}
