//! Graphs: operations with what they come after, and what must live as long.

use std::sync::Arc;

use crate::device::driver::RawStream;
use crate::device::soft::UserObject;
use crate::device::soft::engine::Op;

/// A graph, or one that a capture is building.
#[derive(Default)]
pub(super) struct Flow {
    /// In an order that agrees with the dependencies.
    pub(super) nodes: Vec<Node>,
    pub(super) objects: Vec<Arc<UserObject>>,
}

pub(super) struct Node {
    pub(super) work: Work,
    /// Positions of the nodes that come before this one.
    pub(super) after: Vec<usize>,
    /// The stream that it was captured on.
    pub(super) lane: u64,
}

/// What a node does.
pub(super) enum Work {
    Op(Op),
    /// All of another graph.
    Child(Arc<Flow>),
}

impl Flow {
    /// Adds a node, captured on `stream`, and returns its position.
    pub(super) fn push(&mut self, stream: RawStream, work: Work, after: Vec<usize>) -> usize {
        self.nodes.push(Node { work, after, lane: stream.0 });
        self.nodes.len() - 1
    }

    /// Whether a node of it, or of a child, allocates or frees.
    pub(super) fn has_memory_nodes(&self) -> bool {
        self.nodes.iter().any(|node| match &node.work {
            Work::Op(op) => matches!(op, Op::Alloc { .. } | Op::Free { .. }),
            Work::Child(child) => child.has_memory_nodes(),
        })
    }
}
