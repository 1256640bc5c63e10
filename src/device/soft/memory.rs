//! The memory of a software device: allocations at made-up addresses.
//!
//! One process-wide address space serves all software devices and no address is ever given out
//! twice, so a stale or foreign address is always found out.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::{Pod, Zeroable};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

use crate::device::args::Slot;
use crate::device::driver::{DriverCode, RawPtr};
use crate::device::kernel::{Access, RawArg};

type Result<T> = std::result::Result<T, DriverCode>;

/// The unit of allocation: its alignment is what CUDA promises for an allocation.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(256))]
struct Line([u8; Line::BYTES]);

impl Line {
    const BYTES: usize = 256;
}

struct Allocation {
    base: u64,
    bytes: usize,
    lines: RwLock<Box<[Line]>>,
}

/// The allocations of one device.
#[derive(Default)]
pub(super) struct Memory {
    table: RwLock<BTreeMap<u64, Arc<Allocation>>>,
}

impl Memory {
    /// Allocates `bytes` bytes, all of them `initial`.
    pub(super) fn alloc(&self, bytes: usize, initial: u8) -> Result<RawPtr> {
        let ptr = Self::reserve(bytes)?;
        self.back(ptr, bytes, initial)?;
        Ok(ptr)
    }

    /// An address for `bytes` bytes, with nothing behind it yet.
    pub(super) fn reserve(bytes: usize) -> Result<RawPtr> {
        static NEXT: AtomicU64 = AtomicU64::new(0x1000_0000);
        if bytes == 0 {
            return Err(DriverCode::InvalidValue);
        }
        if bytes > isize::MAX as usize - 2 * Line::BYTES {
            return Err(DriverCode::OutOfMemory);
        }
        // A line is left between neighbours, so that running over an end hits nothing.
        let span = (bytes.div_ceil(Line::BYTES) + 1) * Line::BYTES;
        Ok(RawPtr(NEXT.fetch_add(span as u64, Ordering::Relaxed)))
    }

    /// Puts memory behind a reserved address.
    pub(super) fn back(&self, ptr: RawPtr, bytes: usize, initial: u8) -> Result<()> {
        let lines = bytes.div_ceil(Line::BYTES);
        let mut lines = bytemuck::allocation::try_zeroed_slice_box::<Line>(lines)
            .map_err(|()| DriverCode::OutOfMemory)?;
        if initial != 0 {
            bytemuck::cast_slice_mut::<Line, u8>(&mut lines).fill(initial);
        }
        let allocation = Allocation { base: ptr.0, bytes, lines: RwLock::new(lines) };
        self.table.write().insert(ptr.0, Arc::new(allocation));
        Ok(())
    }

    /// Frees the allocation that begins at `ptr`; an operation under way keeps it until it ends.
    pub(super) fn free(&self, ptr: RawPtr) -> Result<()> {
        let freed = self.table.write().remove(&ptr.0);
        freed.map(drop).ok_or(DriverCode::InvalidValue)
    }

    pub(super) fn read(&self, src: RawPtr, bytes: &mut [u8]) -> Result<()> {
        let (allocation, range) = self.resolve(src, bytes.len())?;
        bytes.copy_from_slice(&bytemuck::cast_slice(&allocation.lines.read())[range]);
        Ok(())
    }

    pub(super) fn write(&self, dst: RawPtr, bytes: &[u8]) -> Result<()> {
        let (allocation, range) = self.resolve(dst, bytes.len())?;
        bytemuck::cast_slice_mut(&mut allocation.lines.write())[range].copy_from_slice(bytes);
        Ok(())
    }

    pub(super) fn fill(&self, dst: RawPtr, pattern: &[u8], count: usize) -> Result<()> {
        let bytes = pattern.len().checked_mul(count).ok_or(DriverCode::InvalidValue)?;
        if bytes == 0 {
            return Ok(());
        }
        let (allocation, range) = self.resolve(dst, bytes)?;
        let mut lines = allocation.lines.write();
        let target: &mut [u8] = &mut bytemuck::cast_slice_mut(&mut lines)[range];
        match pattern {
            &[byte] => target.fill(byte),
            _ => target.chunks_exact_mut(pattern.len()).for_each(|t| t.copy_from_slice(pattern)),
        }
        Ok(())
    }

    pub(super) fn copy(&self, dst: RawPtr, src: RawPtr, bytes: usize) -> Result<()> {
        let (from, source) = self.resolve(src, bytes)?;
        let (to, target) = self.resolve(dst, bytes)?;
        if Arc::ptr_eq(&from, &to) {
            let mut lines = to.lines.write();
            bytemuck::cast_slice_mut::<Line, u8>(&mut lines).copy_within(source, target.start);
            return Ok(());
        }
        // Locks are taken by address, as `with_slots` does, so that no two operations can wait for
        // each other.
        let (reading, mut writing);
        if from.base < to.base {
            reading = from.lines.read();
            writing = to.lines.write();
        } else {
            writing = to.lines.write();
            reading = from.lines.read();
        }
        bytemuck::cast_slice_mut(&mut writing)[target]
            .copy_from_slice(&bytemuck::cast_slice::<Line, u8>(&reading)[source]);
        Ok(())
    }

    /// Hands the memory and values of `args` to `run`, in their order.
    ///
    /// A written argument that overlaps another is an `InvalidValue`; the launch has refused it
    /// before.
    pub(super) fn with_slots(
        &self,
        args: &[RawArg<'_>],
        run: impl FnOnce(&mut dyn Iterator<Item = Slot<'_>>),
    ) -> Result<()> {
        let mut places: SmallVec<[Place; 12]> = SmallVec::new();
        for (position, arg) in args.iter().enumerate() {
            if let &RawArg::Buffer { ptr, bytes, access, .. } = arg
                && bytes > 0
            {
                let (allocation, range) = self.resolve(ptr, bytes)?;
                let written = access != Access::Read;
                places.push(Place { position, allocation, range, written });
            }
        }
        places.sort_by_key(|place| (place.allocation.base, place.range.start));

        let mut guards: SmallVec<[(Guard<'_>, &[Place]); 12]> = SmallVec::new();
        for group in places.chunk_by(|a, b| a.allocation.base == b.allocation.base) {
            let lines = &group[0].allocation.lines;
            let guard = match group.iter().any(|place| place.written) {
                true => Guard::Write(lines.write()),
                false => Guard::Read(lines.read()),
            };
            guards.push((guard, group));
        }

        let mut slots: SmallVec<[Slot<'_>; 12]> = args
            .iter()
            .map(|arg| match arg {
                RawArg::Scalar(bytes) => Slot::Scalar(bytes),
                RawArg::Buffer { access: Access::Read, .. } => Slot::Read(no_bytes()),
                RawArg::Buffer { .. } => Slot::Write(no_bytes_mut()),
            })
            .collect();
        for (guard, group) in &mut guards {
            match guard {
                Guard::Read(lines) => {
                    let bytes: &[u8] = bytemuck::cast_slice(lines);
                    for place in *group {
                        slots[place.position] = Slot::Read(&bytes[place.range.clone()]);
                    }
                }
                Guard::Write(lines) => {
                    carve(bytemuck::cast_slice_mut(lines), group, &mut slots)?;
                }
            }
        }
        run(&mut slots.into_iter());
        Ok(())
    }

    /// The allocations and their bytes.
    #[cfg(feature = "simulate")]
    pub(super) fn usage(&self) -> (usize, usize) {
        let table = self.table.read();
        (table.len(), table.values().map(|allocation| allocation.bytes).sum())
    }

    /// Whether an allocation begins at `ptr`.
    #[cfg(feature = "simulate")]
    pub(super) fn begins_at(&self, ptr: RawPtr) -> bool {
        self.table.read().contains_key(&ptr.0)
    }

    fn resolve(&self, ptr: RawPtr, bytes: usize) -> Result<(Arc<Allocation>, Range<usize>)> {
        let table = self.table.read();
        let (_, found) = table.range(..=ptr.0).next_back().ok_or(DriverCode::IllegalAddress)?;
        let start = usize::try_from(ptr.0 - found.base).map_err(|_| DriverCode::IllegalAddress)?;
        match start.checked_add(bytes) {
            Some(end) if end <= found.bytes => Ok((Arc::clone(found), start..end)),
            _ => Err(DriverCode::IllegalAddress),
        }
    }
}

/// Where one argument lies.
struct Place {
    position: usize,
    allocation: Arc<Allocation>,
    range: Range<usize>,
    written: bool,
}

enum Guard<'a> {
    Read(RwLockReadGuard<'a, Box<[Line]>>),
    Write(RwLockWriteGuard<'a, Box<[Line]>>),
}

/// Cuts the places of one allocation, sorted by start, out of its bytes. Places that are only read
/// may overlap.
fn carve<'a>(bytes: &'a mut [u8], places: &[Place], slots: &mut [Slot<'a>]) -> Result<()> {
    let (mut rest, mut rest_at) = (bytes, 0);
    let mut at = 0;
    while at < places.len() {
        let start = places[at].range.start;
        let mut end = places[at].range.end;
        let mut next = at + 1;
        while next < places.len() && places[next].range.start < end {
            end = end.max(places[next].range.end);
            next += 1;
        }
        let cluster = &places[at..next];
        let (region, tail) = rest.split_at_mut(end - rest_at);
        let region = &mut region[start - rest_at..];
        (rest, rest_at) = (tail, end);
        match cluster {
            [place] if place.written => slots[place.position] = Slot::Write(region),
            _ if cluster.iter().any(|place| place.written) => return Err(DriverCode::InvalidValue),
            _ => {
                let region: &'a [u8] = region;
                for place in cluster {
                    let range = place.range.start - start..place.range.end - start;
                    slots[place.position] = Slot::Read(&region[range]);
                }
            }
        }
        at = next;
    }
    Ok(())
}

/// An empty slice that is aligned for every element type.
fn no_bytes() -> &'static [u8] {
    bytemuck::cast_slice::<Line, u8>(&[])
}

fn no_bytes_mut() -> &'static mut [u8] {
    bytemuck::cast_slice_mut::<Line, u8>(&mut [])
}
