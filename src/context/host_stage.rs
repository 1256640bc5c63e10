//! The context of HOST parts (S10).

use std::ops::{Deref, DerefMut};

use super::{Enqueue, Lane};
use crate::device::{Buffer, Element};
use crate::error::Result;

/// What a HOST part works through: all that [`Enqueue`] can do, and reading back, uploading and
/// waiting, on the call's stream.
#[derive(Debug)]
pub struct HostStage<'a> {
    enqueue: Enqueue<'a>,
}

impl<'a> HostStage<'a> {
    pub(crate) fn new(lane: Lane<'a>) -> Self {
        Self { enqueue: Enqueue::new(lane) }
    }

    /// Reads a buffer after the work enqueued so far; waits for it.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`](crate::Error::Operation) that names this read.
    pub fn read<T: Element>(&mut self, buffer: &Buffer<T>) -> Result<Vec<T>> {
        let mut values = vec![T::zeroed(); buffer.len()];
        self.read_into(buffer, &mut values)?;
        Ok(values)
    }

    /// As [`read`](Self::read), into `values` of the same length.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn read_into<T: Element>(&mut self, buffer: &Buffer<T>, values: &mut [T]) -> Result<()> {
        self.enqueue.next_operation();
        let result = self.enqueue.lane_stream().read_into(buffer, values);
        self.enqueue.noted(result, || format!("read of {} elements", buffer.len()))
    }

    /// Writes a buffer after the work enqueued so far; `values` may be reused at once.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`](crate::Error::Operation) that names this write.
    pub fn write<T: Element>(&mut self, buffer: &Buffer<T>, values: &[T]) -> Result<()> {
        self.enqueue.next_operation();
        let result = self.enqueue.lane_stream().write(buffer, values);
        self.enqueue.noted(result, || format!("write of {} elements", buffer.len()))
    }

    /// Waits for the work enqueued so far.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`](crate::Error::Operation) that names this wait.
    pub fn wait(&mut self) -> Result<()> {
        self.enqueue.next_operation();
        let result = self.enqueue.lane_stream().synchronize();
        self.enqueue.noted(result, || "wait".into())
    }
}

impl<'a> Deref for HostStage<'a> {
    type Target = Enqueue<'a>;

    fn deref(&self) -> &Enqueue<'a> {
        &self.enqueue
    }
}

impl<'a> DerefMut for HostStage<'a> {
    fn deref_mut(&mut self) -> &mut Enqueue<'a> {
        &mut self.enqueue
    }
}
