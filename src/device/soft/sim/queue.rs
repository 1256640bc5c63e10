//! Work that was enqueued and has not run: operations and what each of them waits for.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::flow::{Flow, Work};
use crate::device::soft::engine::Op;

/// A pending operation; later ones have greater ids.
pub(super) type OpId = u64;

/// What is left to run.
pub(super) enum Task {
    Op(Op),
    /// A graph's node, by its position.
    Node(Arc<Flow>, usize),
    /// Nothing: done as soon as what it waits for is.
    Join,
}

/// How the next operation is chosen among those that are ready.
#[derive(Clone, Copy)]
pub(super) enum Order {
    /// Any of them, anew each time.
    Any,
    /// That of the foremost lane, in an order of lanes made from this salt: one stream runs as far
    /// ahead of another as it can.
    Lanes(u64),
}

pub(super) struct Queue {
    pending: BTreeMap<OpId, Pending>,
    ready: Vec<OpId>,
    next: OpId,
    random: u64,
}

struct Pending {
    /// Taken away while it runs.
    task: Option<Task>,
    lane: u64,
    blockers: usize,
    dependents: Vec<OpId>,
}

impl Queue {
    pub(super) fn new(seed: u64) -> Self {
        Self { pending: BTreeMap::new(), ready: Vec::new(), next: 0, random: seed }
    }

    /// Adds a task behind all of `after`; tasks of one lane are thought of as one stream.
    pub(super) fn push(&mut self, lane: u64, task: Task, after: &[OpId]) -> OpId {
        let id = self.next;
        self.next += 1;
        let mut blockers = 0;
        for before in after {
            if let Some(before) = self.pending.get_mut(before) {
                before.dependents.push(id);
                blockers += 1;
            }
        }
        let join = matches!(task, Task::Join);
        let pending = Pending { task: Some(task), lane, blockers, dependents: Vec::new() };
        match (blockers, join) {
            (0, true) => return id,
            (0, false) => self.ready.push(id),
            _ => {}
        }
        self.pending.insert(id, pending);
        id
    }

    /// Adds every node of `flow` behind all of `after` and returns what is done when they are.
    pub(super) fn push_graph(&mut self, stream: u64, flow: &Arc<Flow>, after: &[OpId]) -> OpId {
        let mut ids: Vec<OpId> = Vec::with_capacity(flow.nodes.len());
        let mut last = vec![true; flow.nodes.len()];
        for (at, node) in flow.nodes.iter().enumerate() {
            let before: Vec<OpId> = node.after.iter().map(|&before| ids[before]).collect();
            node.after.iter().for_each(|&before| last[before] = false);
            let before = if before.is_empty() { after } else { &before };
            ids.push(match &node.work {
                Work::Op(_) => {
                    let lane = mix(stream) ^ node.lane;
                    self.push(lane, Task::Node(Arc::clone(flow), at), before)
                }
                Work::Child(child) => self.push_graph(stream, child, before),
            });
        }
        let mut ends: Vec<OpId> =
            ids.into_iter().zip(last).filter_map(|(id, last)| last.then_some(id)).collect();
        if ends.is_empty() {
            ends.extend(after);
        }
        self.push(stream, Task::Join, &ends)
    }

    /// An order for a while, by chance.
    pub(super) fn order(&mut self) -> Order {
        match self.roll() % 2 {
            0 => Order::Any,
            _ => Order::Lanes(self.roll()),
        }
    }

    /// Takes a task to run now, if one is ready.
    pub(super) fn take(&mut self, order: Order) -> Option<(OpId, Task)> {
        if self.ready.is_empty() {
            return None;
        }
        let chosen = match order {
            Order::Any => (self.roll() % self.ready.len() as u64) as usize,
            Order::Lanes(salt) => {
                let rank = |at: &usize| mix(self.pending[&self.ready[*at]].lane ^ salt);
                (0..self.ready.len()).max_by_key(rank)?
            }
        };
        let id = self.ready.swap_remove(chosen);
        let task = self.pending.get_mut(&id)?.task.take()?;
        Some((id, task))
    }

    /// Marks a task as done that was taken.
    pub(super) fn finish(&mut self, id: OpId) {
        let mut done = vec![id];
        while let Some(id) = done.pop() {
            let Some(finished) = self.pending.remove(&id) else { continue };
            for id in finished.dependents {
                let Some(dependent) = self.pending.get_mut(&id) else { continue };
                dependent.blockers -= 1;
                if dependent.blockers == 0 {
                    match dependent.task {
                        Some(Task::Join) => done.push(id),
                        _ => self.ready.push(id),
                    }
                }
            }
        }
    }

    pub(super) fn is_pending(&self, id: OpId) -> bool {
        self.pending.contains_key(&id)
    }

    /// Whether everything before `end` is done.
    pub(super) fn is_done_before(&self, end: OpId) -> bool {
        self.pending.first_key_value().is_none_or(|(&first, _)| first >= end)
    }

    /// The id that the next task will have.
    pub(super) fn end(&self) -> OpId {
        self.next
    }

    /// The tasks that have not run, joins not counted.
    pub(super) fn len(&self) -> usize {
        let joins = |pending: &&Pending| matches!(pending.task, Some(Task::Join));
        self.pending.len() - self.pending.values().filter(joins).count()
    }

    /// Gives up everything; the caller drops it where dropping may call back.
    pub(super) fn abandon(&mut self) -> Vec<Task> {
        self.ready.clear();
        std::mem::take(&mut self.pending).into_values().filter_map(|pending| pending.task).collect()
    }

    /// The next number of a SplitMix64 sequence.
    fn roll(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.random)
    }
}

fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
