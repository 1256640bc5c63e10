//! Contexts: which there are, whose they are, and making one current for a call.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Arc, Weak};

use cudarc::driver::{CudaContext, CudaStream};
use parking_lot::Mutex;

use super::api::{Api, Handle};
use super::{Cuda, check};
use crate::device::driver::{DeviceId, DeviceInfo, DeviceKind, DriverResult, Keep, RawStream};
use crate::device::{Device, DeviceCore, Stream};
use crate::error::{Error, Result};

/// Devices by context, so that one context has one current stream in the whole process.
static DEVICES: Mutex<Option<HashMap<usize, Known>>> = Mutex::new(None);

/// What is there of a context's device: handles to it, or only to what lives on it.
struct Known {
    core: Weak<DeviceCore>,
    driver: Weak<Cuda>,
}

impl Device {
    /// The GPU with this ordinal, in its primary context, which cudarc and the CUDA runtime share.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] that says why, without a driver, without a GPU, with a driver older
    /// than CUDA 11.4, or with no GPU of this ordinal (S35).
    ///
    /// ```
    /// match graph_runner::Device::cuda(0) {
    ///     Ok(device) => println!("{}", device.name()),
    ///     Err(error) => println!("{error}"),
    /// }
    /// ```
    pub fn cuda(ordinal: usize) -> Result<Self> {
        let api = Api::get().map_err(unavailable)?;
        let _relaxed = api.relaxed();
        let mut count = 0;
        // SAFETY: the driver is initialised and the result is valid for writing.
        check("cuDeviceGetCount", unsafe { (api.device_get_count)(&raw mut count) })?;
        if ordinal >= usize::try_from(count).unwrap_or(0) {
            return Err(unavailable(match count {
                0 => {
                    "the CUDA driver sees no GPU; see CUDA_VISIBLE_DEVICES and `nvidia-smi`".into()
                }
                _ => format!("there is no GPU {ordinal}; the driver sees {count}, counted from 0"),
            }));
        }
        let mut device = 0;
        let mut context = std::ptr::null_mut();
        // SAFETY: the ordinal is in range and the results are valid for writing.
        check("cuDeviceGet", unsafe { (api.device_get)(&raw mut device, ordinal as c_int) })?;
        // SAFETY: `device` was given by the driver just now.
        check("cuDevicePrimaryCtxRetain", unsafe {
            (api.primary_ctx_retain)(&raw mut context, device)
        })?;
        Self::of_context(Context { api, device, handle: context, owner: Owner::Primary })
    }

    /// The device of an application's own context. Its event tracking and its parked errors are
    /// left alone.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] with a driver older than CUDA 11.4.
    pub fn from_cudarc(context: &Arc<CudaContext>) -> Result<Self> {
        let api = Api::get().map_err(unavailable)?;
        let _relaxed = api.relaxed();
        let (handle, owner) = (context.cu_ctx().cast(), Owner::Cudarc(Arc::clone(context)));
        let mut context = Context { api, device: 0, handle, owner };
        let mut device = 0;
        {
            let _current = context.enter()?;
            // SAFETY: a context is current and the result is valid for writing.
            check("cuCtxGetDevice", unsafe { (api.ctx_get_device)(&raw mut device) })?;
        }
        context.device = device;
        Self::of_context(context)
    }

    /// An application's stream, kept alive by the handle.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] for a stream of another context.
    pub fn adopt_stream(&self, stream: &Arc<CudaStream>) -> Result<Stream> {
        let theirs = Self::from_cudarc(stream.context())?;
        let raw = normalised(stream.cu_stream() as u64);
        let adopted = Stream::adopted(theirs.driver(), raw, Arc::new(Arc::clone(stream)) as Keep);
        self.check_stream(&adopted, "a stream to adopt")?;
        Ok(adopted)
    }

    fn of_context(context: Context) -> Result<Self> {
        let key = context.handle as usize;
        let mut devices = DEVICES.lock();
        let devices = devices.get_or_insert_default();
        let known = devices.get(&key);
        if let Some(core) = known.and_then(|known| known.core.upgrade()) {
            return Ok(Self { core });
        }
        // Buffers and streams outlive the last `Device`, and belong to the next one.
        let cuda = match known.and_then(|known| known.driver.upgrade()) {
            Some(cuda) => cuda,
            None => {
                let name = format!("cuda:{} {}", context.device, context.name()?);
                let info = DeviceInfo { id: DeviceId::next(), kind: DeviceKind::Cuda, name };
                Arc::new(Cuda::new(info, context)?)
            }
        };
        let driver = Arc::downgrade(&cuda);
        let device = Self::with_driver(cuda)?;
        devices.retain(|_, known| known.driver.strong_count() > 0);
        devices.insert(key, Known { core: Arc::downgrade(&device.core), driver });
        Ok(device)
    }
}

/// The legacy default stream has two names.
pub(super) fn normalised(raw: u64) -> RawStream {
    if raw == 0 { RawStream::LEGACY } else { RawStream(raw) }
}

fn unavailable(why: String) -> Error {
    Error::Unavailable { device: DeviceKind::Cuda, why }
}

/// A context, kept alive.
pub(super) struct Context {
    pub(super) api: &'static Api,
    pub(super) device: c_int,
    pub(super) handle: Handle,
    owner: Owner,
}

enum Owner {
    /// Retained by us.
    Primary,
    Cudarc(#[expect(dead_code, reason = "kept, never read")] Arc<CudaContext>),
}

impl Context {
    /// Makes the context current until the guard is dropped; one query if it is already.
    pub(super) fn enter(&self) -> DriverResult<Current> {
        let mut now = std::ptr::null_mut();
        // SAFETY: the result is valid for writing.
        check("cuCtxGetCurrent", unsafe { (self.api.ctx_get_current)(&raw mut now) })?;
        if now == self.handle {
            return Ok(Current { pushed: None });
        }
        // SAFETY: the context is alive as long as `self`.
        check("cuCtxPushCurrent", unsafe { (self.api.ctx_push_current)(self.handle) })?;
        Ok(Current { pushed: Some(self.api) })
    }

    pub(super) fn attribute(&self, attribute: c_int) -> DriverResult<c_int> {
        let mut value = 0;
        // SAFETY: `device` was given by the driver and the result is valid for writing.
        check("cuDeviceGetAttribute", unsafe {
            (self.api.device_get_attribute)(&raw mut value, attribute, self.device)
        })?;
        Ok(value)
    }

    fn name(&self) -> DriverResult<String> {
        let mut name = [0 as c_char; 128];
        // SAFETY: the buffer is as long as is said.
        check("cuDeviceGetName", unsafe {
            (self.api.device_get_name)(name.as_mut_ptr(), name.len() as c_int, self.device)
        })?;
        // SAFETY: the driver ends the name with a zero inside the buffer.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Owner::Primary = self.owner {
            let _relaxed = self.api.relaxed();
            // SAFETY: balances the retain. A refusal leaves the context there, which harms nobody.
            let _ = unsafe { (self.api.primary_ctx_release)(self.device) };
        }
    }
}

/// A context made current for a call; what was current before is again when this is dropped.
pub(super) struct Current {
    pushed: Option<&'static Api>,
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(api) = self.pushed {
            let mut popped = std::ptr::null_mut();
            // SAFETY: balances the push, on the same thread.
            let _ = unsafe { (api.ctx_pop_current)(&raw mut popped) };
        }
    }
}
