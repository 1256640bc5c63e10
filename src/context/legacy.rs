//! The context of legacy bodies (S11).

use std::ops::{Deref, DerefMut};

use super::{Enqueue, Lane};
use crate::device::Stream;

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
