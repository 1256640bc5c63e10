//! The enqueue-only context (S9).

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use super::{FailedOperation, Lane, count_enqueued};
use crate::device::{
    Access, Args, Buffer, Driver, Element, Grid, Kernel, RawArg, Stream, check_device,
};
use crate::error::{Error, Result};

/// What a body enqueues device work through.
///
/// It has no way to allocate, synchronise, read back, or ask whether it is capturing (S9); what it
/// cannot do, a capture never meets. It lives for one call of a body, cannot be stored, and stays
/// on its thread.
pub struct Enqueue<'a> {
    lane: Lane<'a>,
    index: usize,
    // A capture is its thread's own: operations from another thread would be another's.
    not_send: PhantomData<*mut ()>,
}

impl<'a> Enqueue<'a> {
    pub(crate) fn new(lane: Lane<'a>) -> Self {
        Self { lane, index: 0, not_send: PhantomData }
    }

    /// Launches `kernel` over `grid`.
    ///
    /// `args` is a tuple with `&Buffer<T>` for each `In`, `Out` and `Shared` of the kernel's
    /// argument types, and the value itself for all others. An empty grid launches nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`] that names this launch, for: a buffer or kernel of another device,
    /// memory passed twice and written ([`Error::Aliased`]), an `Out` buffer that the threads
    /// cannot share evenly ([`Error::UnevenShare`]), or the driver's refusal.
    pub fn launch<A: Args>(
        &mut self,
        kernel: &Kernel<A>,
        grid: Grid,
        args: A::Passed<'_>,
    ) -> Result<()> {
        self.index += 1;
        let result = self.try_launch(kernel, &grid, &args);
        self.noted(result, || format!("launch of `{}`", kernel.name()))
    }

    /// Copies `source` to `destination`, which is as long.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`] that names this copy, for: lengths that differ ([`Error::Length`]),
    /// memory that overlaps ([`Error::OverlappingCopy`]), a buffer of another device, or the
    /// driver's refusal.
    pub fn copy<T: Element>(&mut self, source: &Buffer<T>, destination: &Buffer<T>) -> Result<()> {
        self.index += 1;
        let result = self.try_copy(source, destination);
        self.noted(result, || format!("copy of {} elements", source.len()))
    }

    /// Sets every element of `buffer` to `value`.
    ///
    /// The element's size is 1, 2 or a multiple of 4 bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`] that names this fill, for a buffer of another device or the driver's
    /// refusal.
    pub fn fill<T: Element>(&mut self, buffer: &Buffer<T>, value: T) -> Result<()> {
        const { assert!(matches!(size_of::<T>(), 1 | 2) || size_of::<T>().is_multiple_of(4)) };
        self.index += 1;
        let result = self.try_fill(buffer, value);
        self.noted(result, || format!("fill of {} elements", buffer.len()))
    }

    /// Keeps `thing` alive as long as a graph that this body is captured or recorded into, besides
    /// the buffers and kernels of its operations, which are kept anyway (S30). Does nothing in an
    /// eager run.
    pub fn keep_alive<T: Any + Send + Sync>(&mut self, thing: &Arc<T>) {
        if let Some(keep) = &mut self.lane.trace.keep {
            keep.add(thing, || Arc::clone(thing) as _);
        }
    }

    /// The raw stream (a `CUstream` on CUDA), for device work that this context cannot express.
    ///
    /// # Safety
    ///
    /// The caller only enqueues on it, as a capture allows: no allocation, no synchronisation, no
    /// query, no other stream that does not join again; and keeps alive all that this work refers
    /// to, by [`keep_alive`](Self::keep_alive), until the graph is gone or the work is done.
    #[must_use]
    #[allow(unsafe_code)]
    pub unsafe fn raw_stream(&mut self) -> u64 {
        self.lane.trace.took_stream = true;
        self.lane.stream.raw().0
    }

    /// Enqueues a member of a program under its own name.
    pub(crate) fn member(
        &mut self,
        producer: &'static str,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let outer = (self.lane.producer, self.index);
        (self.lane.producer, self.index) = (producer, 0);
        let result = body(self);
        (self.lane.producer, self.index) = outer;
        result
    }

    pub(crate) fn take_stream(&mut self) -> &Stream {
        self.lane.trace.took_stream = true;
        self.lane.stream
    }

    pub(crate) fn lane_stream(&self) -> &Stream {
        self.lane.stream
    }

    pub(crate) fn lane_captures(&self) -> bool {
        self.lane.capturing
    }

    /// Starts the next operation, for the operations of other files.
    pub(crate) fn next_operation(&mut self) {
        self.index += 1;
    }

    /// Gives a failure the name and the place of the current operation.
    pub(crate) fn noted<T>(
        &mut self,
        result: Result<T>,
        operation: impl FnOnce() -> String,
    ) -> Result<T> {
        result.map_err(|source| {
            let operation = operation();
            let lane = &mut self.lane;
            lane.trace.failed.get_or_insert_with(|| FailedOperation {
                part: lane.part,
                index: self.index,
                operation: operation.clone(),
            });
            Error::Operation {
                producer: lane.producer,
                part: lane.part.into(),
                index: self.index,
                operation,
                source: Box::new(source),
            }
        })
    }

    fn try_launch<A: Args>(
        &mut self,
        kernel: &Kernel<A>,
        grid: &Grid,
        args: &A::Passed<'_>,
    ) -> Result<()> {
        let stream = self.lane.stream;
        self.check_device(kernel.core.driver(), "a kernel")?;
        let mut checked = Ok(());
        A::buffers(args, &mut |buffer| {
            if checked.is_ok() {
                checked = self.check_device(buffer.driver(), "a buffer");
            }
        });
        checked?;
        let raw = A::raw(args);
        check_aliases(kernel.name(), &raw)?;
        if let Some(host) = &kernel.core.decl.host {
            check_shares(kernel.name(), &raw, host.groups(grid))?;
        }
        if grid.is_empty() {
            return Ok(());
        }
        stream.driver().launch(stream.raw(), kernel.core.raw, grid, &raw)?;
        count_enqueued();
        if let Some(keep) = &mut self.lane.trace.keep {
            keep.add(&kernel.core, || kernel.core.keep());
            A::buffers(args, &mut |buffer| keep.add(buffer, || buffer.keep()));
        }
        Ok(())
    }

    fn try_copy<T: Element>(&mut self, source: &Buffer<T>, destination: &Buffer<T>) -> Result<()> {
        let stream = self.lane.stream;
        self.check_device(source.core().driver(), "a copy's source")?;
        self.check_device(destination.core().driver(), "a copy's destination")?;
        if source.len() != destination.len() {
            return Err(Error::Length {
                operation: "a copy",
                expected: destination.len(),
                found: source.len(),
            });
        }
        let bytes = source.bytes();
        if bytes == 0 {
            return Ok(());
        }
        if overlap((source.ptr().0, bytes), (destination.ptr().0, bytes)) {
            return Err(Error::OverlappingCopy);
        }
        stream.driver().copy(stream.raw(), destination.ptr(), source.ptr(), bytes)?;
        count_enqueued();
        if let Some(keep) = &mut self.lane.trace.keep {
            keep.add(source.core(), || source.core().keep());
            keep.add(destination.core(), || destination.core().keep());
        }
        Ok(())
    }

    fn try_fill<T: Element>(&mut self, buffer: &Buffer<T>, value: T) -> Result<()> {
        let stream = self.lane.stream;
        self.check_device(buffer.core().driver(), "a buffer")?;
        if buffer.bytes() == 0 {
            return Ok(());
        }
        let pattern = bytemuck::bytes_of(&value);
        stream.driver().fill(stream.raw(), buffer.ptr(), pattern, buffer.len())?;
        count_enqueued();
        if let Some(keep) = &mut self.lane.trace.keep {
            keep.add(buffer.core(), || buffer.core().keep());
        }
        Ok(())
    }

    pub(crate) fn check_device(&self, found: &Arc<dyn Driver>, subject: &str) -> Result<()> {
        check_device(self.lane.stream.driver(), found, subject)
    }
}

impl std::fmt::Debug for Enqueue<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Enqueue")
            .field("producer", &self.lane.producer)
            .field("part", &self.lane.part)
            .finish_non_exhaustive()
    }
}

fn check_aliases(kernel: &str, args: &[RawArg<'_>]) -> Result<()> {
    for (second, arg) in args.iter().enumerate() {
        let RawArg::Buffer { ptr, bytes, access, .. } = arg else { continue };
        for (first, other) in args[..second].iter().enumerate() {
            let RawArg::Buffer { ptr: other_ptr, bytes: other_bytes, access: other_access, .. } =
                other
            else {
                continue;
            };
            let written = *access != Access::Read || *other_access != Access::Read;
            if written && overlap((ptr.0, *bytes), (other_ptr.0, *other_bytes)) {
                return Err(Error::Aliased { kernel: kernel.into(), first, second });
            }
        }
    }
    Ok(())
}

fn check_shares(kernel: &str, args: &[RawArg<'_>], groups: usize) -> Result<()> {
    for (argument, arg) in args.iter().enumerate() {
        if let RawArg::Buffer { bytes, element, access: Access::Own, .. } = *arg {
            let elements = bytes.checked_div(element).unwrap_or(0);
            if groups > 0 && !elements.is_multiple_of(groups) {
                return Err(Error::UnevenShare {
                    kernel: kernel.into(),
                    argument,
                    elements,
                    groups,
                });
            }
        }
    }
    Ok(())
}

fn overlap((a, a_bytes): (u64, usize), (b, b_bytes): (u64, usize)) -> bool {
    a_bytes > 0 && b_bytes > 0 && a < b + b_bytes as u64 && b < a + a_bytes as u64
}
