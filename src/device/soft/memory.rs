//! Device memory in software: allocations in an address space of their own, so that an address
//! resolves or is refused, and never is undefined behaviour.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;

use crate::device::args::Slot;
use crate::device::driver::{DriverCode, RawPtr};

/// The unit of allocation, so that every element type is aligned.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

struct Allocation {
    bytes: usize,
    data: RwLock<Box<[Line]>>,
}

/// The allocations of one device.
#[derive(Default)]
pub(crate) struct Memory {
    table: RwLock<BTreeMap<u64, Arc<Allocation>>>,
    next: Mutex<u64>,
}

/// One operand of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operand<'a> {
    Read(RawPtr, usize),
    Write(RawPtr, usize),
    Scalar(&'a [u8]),
}

impl Memory {
    const ALIGN: u64 = 256;

    pub(crate) fn alloc(&self, bytes: usize) -> Result<RawPtr, DriverCode> {
        if bytes == 0 {
            return Err(DriverCode::InvalidValue);
        }
        let lines = bytes.div_ceil(size_of::<Line>());
        let mut data = Vec::new();
        data.try_reserve_exact(lines).map_err(|_| DriverCode::OutOfMemory)?;
        // Not zeros: what was never written must not look as if it were.
        data.resize(lines, Line([0xA5; 64]));
        let mut next = self.next.lock();
        let base = (*next).max(1 << 32);
        // A gap behind each, so that one past the end is nobody's.
        *next = (base + bytes as u64).next_multiple_of(Self::ALIGN) + Self::ALIGN;
        let allocation = Allocation { bytes, data: RwLock::new(data.into_boxed_slice()) };
        self.table.write().insert(base, Arc::new(allocation));
        Ok(RawPtr(base))
    }

    pub(crate) fn free(&self, ptr: RawPtr) -> Result<(), DriverCode> {
        self.table.write().remove(&ptr.0).map(drop).ok_or(DriverCode::InvalidValue)
    }

    /// How many allocations there are, and their bytes.
    #[cfg(feature = "simulate")]
    pub(crate) fn live(&self) -> (usize, usize) {
        let table = self.table.read();
        (table.len(), table.values().map(|allocation| allocation.bytes).sum())
    }

    fn resolve(&self, ptr: RawPtr, bytes: usize) -> Result<(u64, Arc<Allocation>), DriverCode> {
        let table = self.table.read();
        let (&base, allocation) =
            table.range(..=ptr.0).next_back().ok_or(DriverCode::IllegalAddress)?;
        if ptr.0 + bytes as u64 > base + allocation.bytes as u64 {
            return Err(DriverCode::IllegalAddress);
        }
        Ok((base, Arc::clone(allocation)))
    }

    /// Gives `body` a slot for each operand, with all their memory locked for this operation.
    ///
    /// What is written overlaps no other operand: launches are checked for that before.
    pub(crate) fn with<R>(
        &self,
        operands: &[Operand<'_>],
        body: impl FnOnce(&mut dyn Iterator<Item = Slot<'_>>) -> R,
    ) -> Result<R, DriverCode> {
        let mut regions: SmallVec<[Region; 8]> = SmallVec::new();
        for (position, operand) in operands.iter().enumerate() {
            let (ptr, bytes, write) = match *operand {
                Operand::Read(ptr, bytes) => (ptr, bytes, false),
                Operand::Write(ptr, bytes) => (ptr, bytes, true),
                Operand::Scalar(_) => continue,
            };
            if bytes > 0 {
                let (base, allocation) = self.resolve(ptr, bytes)?;
                let start = (ptr.0 - base) as usize;
                regions.push(Region {
                    base,
                    allocation,
                    start,
                    end: start + bytes,
                    position,
                    write,
                });
            }
        }
        // In order of address, so that operations of several threads cannot wait for each other.
        regions.sort_by_key(|region| (region.base, region.start));
        let mut guards: SmallVec<[Guard<'_>; 8]> = SmallVec::new();
        for group in regions.chunk_by(|a, b| a.base == b.base) {
            let data = &group[0].allocation.data;
            guards.push(if group.iter().any(|region| region.write) {
                Guard::Write(data.write())
            } else {
                Guard::Read(data.read())
            });
        }
        let mut slots: SmallVec<[Slot<'_>; 8]> = operands
            .iter()
            .map(|operand| match *operand {
                Operand::Read(..) => Slot::Read(&[]),
                Operand::Write(..) => Slot::Write(&mut []),
                Operand::Scalar(bytes) => Slot::Scalar(bytes),
            })
            .collect();
        for (group, guard) in regions.chunk_by(|a, b| a.base == b.base).zip(&mut guards) {
            match guard {
                Guard::Read(data) => {
                    let bytes: &[u8] = bytemuck::cast_slice(data);
                    for region in group {
                        slots[region.position] = Slot::Read(&bytes[region.start..region.end]);
                    }
                }
                Guard::Write(data) => carve(bytemuck::cast_slice_mut(data), group, &mut slots),
            }
        }
        Ok(body(&mut slots.into_iter()))
    }
}

struct Region {
    base: u64,
    allocation: Arc<Allocation>,
    start: usize,
    end: usize,
    position: usize,
    write: bool,
}

enum Guard<'a> {
    Read(parking_lot::RwLockReadGuard<'a, Box<[Line]>>),
    Write(parking_lot::RwLockWriteGuard<'a, Box<[Line]>>),
}

/// Deals out one allocation of which some regions are written: those are disjoint from all others,
/// while regions that are only read may overlap each other.
fn carve<'a>(mut rest: &'a mut [u8], regions: &[Region], slots: &mut [Slot<'a>]) {
    let mut at = 0;
    let mut take = |until: usize| {
        let (piece, tail) = std::mem::take(&mut rest).split_at_mut(until - at);
        (rest, at) = (tail, until);
        piece
    };
    let mut index = 0;
    while let Some(region) = regions.get(index) {
        if region.write {
            take(region.start);
            slots[region.position] = Slot::Write(take(region.end));
            index += 1;
            continue;
        }
        let run = regions[index..].iter().take_while(|region| !region.write).count();
        let readers = &regions[index..index + run];
        let end = readers.iter().map(|reader| reader.end).max().unwrap_or(region.end);
        take(region.start);
        let shared: &'a [u8] = take(end);
        for reader in readers {
            let range = reader.start - region.start..reader.end - region.start;
            slots[reader.position] = Slot::Read(&shared[range]);
        }
        index += run;
    }
}
