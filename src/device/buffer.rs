//! Device memory by counted handles.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use super::Relaxed;
use super::args::Element;
use super::driver::{Driver, Keep, RawPtr};
use crate::error::{Error, Result};

/// An array of `T` in device memory: a counted handle to a whole allocation or a part of it.
///
/// Cloning is cheap and shares the memory. It is freed when the last handle and the last graph
/// that refers to it are gone (S30), which never harms a capture (S31).
///
/// ```
/// use graph_runner::Device;
/// let device = Device::host();
/// let buffer = device.buffer(&[1.0_f32, 2.0, 3.0])?;
/// assert_eq!(buffer.len(), 3);
/// assert_eq!(device.current_stream().read(&buffer.slice(1..)?)?, [2.0, 3.0]);
/// # Ok::<(), graph_runner::Error>(())
/// ```
pub struct Buffer<T> {
    core: Arc<BufferCore>,
    offset: usize,
    len: usize,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> Buffer<T> {
    /// Allocates without initialising; the caller fills it before it hands it out.
    pub(crate) fn alloc(driver: &Arc<dyn Driver>, len: usize) -> Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or(Error::Length {
            operation: "an allocation",
            expected: usize::MAX / size_of::<T>().max(1),
            found: len,
        })?;
        let core = Arc::new(BufferCore::alloc(driver, bytes)?);
        Ok(Self { core, offset: 0, len, element: PhantomData })
    }

    /// A handle to the elements of `range`.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] if it leaves the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let start = match range.start_bound() {
            Bound::Included(&at) => at,
            Bound::Excluded(&at) => at.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&at) => at.saturating_add(1),
            Bound::Excluded(&at) => at,
            Bound::Unbounded => self.len,
        };
        if start > end || end > self.len {
            return Err(Error::Range { start, end, len: self.len });
        }
        Ok(Self {
            core: Arc::clone(&self.core),
            offset: self.offset + start * size_of::<T>(),
            len: end - start,
            element: PhantomData,
        })
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }
}

impl<T> Buffer<T> {
    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its device address, for work that does not go through this crate. The memory lives as long
    /// as a handle to it.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.ptr().0
    }

    pub(crate) fn ptr(&self) -> RawPtr {
        RawPtr(self.core.ptr.0 + self.offset as u64)
    }

    pub(crate) fn core(&self) -> &Arc<BufferCore> {
        &self.core
    }
}

impl<T> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Self {
            core: Arc::clone(&self.core),
            offset: self.offset,
            len: self.len,
            element: PhantomData,
        }
    }
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("device", &self.core.driver.info().name)
            .field("element", &std::any::type_name::<T>())
            .field("len", &self.len)
            .finish()
    }
}

/// One allocation; freed when dropped.
pub(crate) struct BufferCore {
    driver: Arc<dyn Driver>,
    ptr: RawPtr,
    bytes: usize,
}

impl BufferCore {
    fn alloc(driver: &Arc<dyn Driver>, bytes: usize) -> Result<Self> {
        let ptr = if bytes == 0 {
            RawPtr(0)
        } else {
            let _relaxed = Relaxed::enter(driver);
            driver.mem_alloc(bytes)?
        };
        Ok(Self { driver: Arc::clone(driver), ptr, bytes })
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    pub(crate) fn keep(self: &Arc<Self>) -> Keep {
        Arc::clone(self) as Keep
    }
}

impl Drop for BufferCore {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let _relaxed = Relaxed::enter(&self.driver);
            // A refusal leaks the memory, which is all that can be done about it here.
            let _ = self.driver.mem_free(self.ptr);
        }
    }
}
