//! Pinned host memory between pageable memory and the device: ours, so that a copy's source can be
//! reused at once and no graph ever refers to it.

use std::ffi::c_int;

use parking_lot::Mutex;

use super::api::{Api, Handle};
use super::check;
use crate::device::driver::DriverResult;

/// One pinned block, and the event behind the last copy that reads it.
struct Block {
    memory: Handle,
    event: Handle,
}

// SAFETY: pinned memory and events may be used from any thread; a block has one user at a time.
unsafe impl Send for Block {}

/// A context's pinned blocks. Every method is called with the context current.
pub(super) struct Staging {
    api: &'static Api,
    free: Mutex<Vec<Block>>,
}

impl Staging {
    /// The size of a block; longer copies take several turns.
    pub(super) const BLOCK: usize = 4 << 20;
    /// Blocks that are kept; a copy that finds all of them in flight waits for one.
    const KEPT: usize = 4;

    pub(super) fn new(api: &'static Api) -> Self {
        Self { api, free: Mutex::new(Vec::new()) }
    }

    /// Runs `copy` with a block of pinned memory, then records on `stream` until when that is used.
    pub(super) fn with(
        &self,
        stream: Handle,
        copy: impl FnOnce(Handle) -> DriverResult<()>,
    ) -> DriverResult<()> {
        let block = self.take()?;
        let copied = copy(block.memory);
        // SAFETY: the event and the stream are of the current context and alive.
        let recorded =
            check("cuEventRecord", unsafe { (self.api.event_record)(block.event, stream) });
        if recorded.is_ok() {
            self.free.lock().push(block);
        }
        // Otherwise nothing says when the copy is done with the block, so it is leaked.
        copied.and(recorded)
    }

    fn take(&self) -> DriverResult<Block> {
        let waiting = {
            let mut free = self.free.lock();
            // SAFETY: events of blocks are alive as long as the blocks.
            let idle =
                free.iter().position(|block| unsafe { (self.api.event_query)(block.event) } == 0);
            match idle {
                Some(index) => return Ok(free.swap_remove(index)),
                None if free.len() >= Self::KEPT => Some(free.remove(0)),
                None => None,
            }
        };
        match waiting {
            Some(block) => {
                // SAFETY: as above.
                let waited = check("cuEventSynchronize", unsafe {
                    (self.api.event_synchronize)(block.event)
                });
                match waited {
                    Ok(()) => Ok(block),
                    Err(error) => {
                        self.free.lock().push(block);
                        Err(error)
                    }
                }
            }
            None => self.make(),
        }
    }

    fn make(&self) -> DriverResult<Block> {
        const DISABLE_TIMING: u32 = 2;
        let mut block = Block { memory: std::ptr::null_mut(), event: std::ptr::null_mut() };
        // SAFETY: the results are valid for writing.
        check("cuEventCreate", unsafe {
            (self.api.event_create)(&raw mut block.event, DISABLE_TIMING)
        })?;
        // SAFETY: as above.
        let made = check("cuMemAllocHost", unsafe {
            (self.api.mem_alloc_host)(&raw mut block.memory, Self::BLOCK)
        });
        if made.is_err() {
            // SAFETY: made just now and used by nothing.
            let _: c_int = unsafe { (self.api.event_destroy)(block.event) };
        }
        made.map(|()| block)
    }

    /// Frees all blocks. No copy is under way any more.
    pub(super) fn clear(&self) {
        for block in self.free.lock().drain(..) {
            // SAFETY: the last copy that uses the memory is waited for before it is freed; a
            // refusal leaks it.
            unsafe {
                let _ = (self.api.event_synchronize)(block.event);
                let _ = (self.api.mem_free_host)(block.memory);
                let _ = (self.api.event_destroy)(block.event);
            }
        }
    }
}
