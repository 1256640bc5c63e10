//! Pending operations and the order in which they run: any that their dependencies allow, chosen by
//! a seed, and only when somebody waits.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::op::Op;

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct OpId(u64);

struct Pending {
    op: Arc<Op>,
    waits_for: usize,
    then: Vec<OpId>,
}

/// The operations that have not finished.
pub(super) struct Schedule {
    pending: HashMap<OpId, Pending>,
    ready: Vec<OpId>,
    running: usize,
    next: u64,
    random: u64,
}

impl Schedule {
    pub(super) fn new(seed: u64) -> Self {
        Self { pending: HashMap::new(), ready: Vec::new(), running: 0, next: 0, random: seed }
    }

    /// Adds an operation behind those of `after` that have not finished.
    pub(super) fn add(&mut self, op: Arc<Op>, after: impl IntoIterator<Item = OpId>) -> OpId {
        let id = OpId(self.next);
        self.next += 1;
        let mut waits_for = 0;
        for before in after {
            if let Some(pending) = self.pending.get_mut(&before) {
                pending.then.push(id);
                waits_for += 1;
            }
        }
        if waits_for == 0 {
            self.ready.push(id);
        }
        self.pending.insert(id, Pending { op, waits_for, then: Vec::new() });
        id
    }

    pub(super) fn is_done(&self, id: OpId) -> bool {
        !self.pending.contains_key(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Every operation that has not finished.
    pub(super) fn all(&self) -> Vec<OpId> {
        self.pending.keys().copied().collect()
    }

    /// Takes one that may run now, whichever.
    pub(super) fn take(&mut self) -> Option<(OpId, Arc<Op>)> {
        if self.ready.is_empty() {
            return None;
        }
        let index = (self.random() % self.ready.len() as u64) as usize;
        let id = self.ready.swap_remove(index);
        self.running += 1;
        Some((id, Arc::clone(&self.pending[&id].op)))
    }

    pub(super) fn any_running(&self) -> bool {
        self.running > 0
    }

    pub(super) fn finish(&mut self, id: OpId) {
        self.running -= 1;
        let Some(done) = self.pending.remove(&id) else { return };
        for next in done.then {
            if let Some(pending) = self.pending.get_mut(&next) {
                pending.waits_for -= 1;
                if pending.waits_for == 0 {
                    self.ready.push(next);
                }
            }
        }
    }

    /// Forgets everything that does not run already.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.ready.clear();
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
