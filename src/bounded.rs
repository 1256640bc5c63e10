//! Loops with a bound (S28).

use crate::context::Enqueue;
use crate::device::{Buffer, DeviceKind};
use crate::error::{Error, Result};

impl Enqueue<'_> {
    /// Runs `body` up to `max` times, until the one element of `until` is not zero; it is looked at
    /// before every iteration, the first included, on the device's side of time.
    ///
    /// Where the device cannot stop by itself, all `max` iterations are enqueued: iterations after
    /// the end must therefore be harmless, that is, change no result (S28). Nothing here waits for
    /// the device.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`] that names this loop, if `until` has not one element or is another
    /// device's; and what `body` returns.
    pub fn bounded_loop(
        &mut self,
        max: u32,
        until: &Buffer<u32>,
        mut body: impl FnMut(&mut Enqueue<'_>, u32) -> Result<()>,
    ) -> Result<()> {
        self.next_operation();
        let checked = self.check_flag(until);
        self.noted(checked, || "bounded loop".into())?;
        for iteration in 0..max {
            let done = self.seen_now(until);
            if self.noted(done, || "bounded loop".into())? {
                break;
            }
            body(self, iteration)?;
        }
        Ok(())
    }

    fn check_flag(&self, flag: &Buffer<u32>) -> Result<()> {
        if flag.len() != 1 {
            let (expected, found) = (1, flag.len());
            return Err(Error::Length { operation: "a loop's flag", expected, found });
        }
        self.check_device(flag.core().driver(), "a loop's flag")
    }

    /// Whether the flag is known to be set already: only where work runs as it is enqueued, so that
    /// a look costs no wait.
    fn seen_now(&self, flag: &Buffer<u32>) -> Result<bool> {
        let driver = self.lane_stream().driver();
        if driver.info().kind != DeviceKind::Host || self.lane_captures() {
            return Ok(false);
        }
        let mut value = 0_u32;
        driver.download(
            self.lane_stream().raw(),
            flag.ptr(),
            bytemuck::bytes_of_mut(&mut value),
        )?;
        Ok(value != 0)
    }
}
