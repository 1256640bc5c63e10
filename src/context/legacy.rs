//! The context of legacy bodies (S11).

use std::ops::{Deref, DerefMut};

use std::ffi::{c_int, c_void};

use super::{Enqueue, Lane};
use crate::device::{DriverCode, DriverError, Stream};
use crate::error::Result;

/// A C function that launches on the stream it is given, such as
/// `CUresult launch(CUstream stream, void* data)`: 0 is success, anything else a CUDA result code.
pub type LaunchFunction = unsafe extern "C" fn(stream: *mut c_void, data: *mut c_void) -> c_int;

/// What a legacy body gets: the stream that is current while it runs. All that [`Enqueue`] can do
/// goes there too.
#[derive(Debug)]
pub struct LegacyLaunch<'a> {
    enqueue: Enqueue<'a>,
}

impl<'a> LegacyLaunch<'a> {
    pub(crate) fn new(lane: Lane<'a>) -> Self {
        Self { enqueue: Enqueue::new(lane) }
    }

    /// The device's current stream, where the body's own launches go.
    #[must_use]
    pub fn stream(&mut self) -> &Stream {
        self.enqueue.take_stream()
    }

    /// Calls a C function with the current stream (a `CUstream` on CUDA) and `data`.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`](crate::Error::Operation) with the code that it returned.
    ///
    /// # Safety
    ///
    /// `function` may be called with `data`, only enqueues on the stream that it is given, and what
    /// its work refers to stays alive until that is done, or until every graph that it was captured
    /// into is gone: see [`Enqueue::keep_alive`].
    #[allow(unsafe_code)]
    pub unsafe fn call(&mut self, function: LaunchFunction, data: *mut c_void) -> Result<()> {
        self.enqueue.next_operation();
        let stream = std::ptr::without_provenance_mut(self.enqueue.take_stream().handle() as usize);
        // SAFETY: the caller vouches for the function and the data; the stream is alive.
        let code = unsafe { function(stream, data) };
        let result = match code {
            0 => Ok(()),
            code => {
                let code = DriverCode::from_number(code);
                Err(DriverError::new("the plugin's function", code).into())
            }
        };
        self.enqueue.noted(result, || "call of a C function".into())
    }
}

impl<'a> Deref for LegacyLaunch<'a> {
    type Target = Enqueue<'a>;

    fn deref(&self) -> &Enqueue<'a> {
        &self.enqueue
    }
}

impl<'a> DerefMut for LegacyLaunch<'a> {
    fn deref_mut(&mut self) -> &mut Enqueue<'a> {
        &mut self.enqueue
    }
}
