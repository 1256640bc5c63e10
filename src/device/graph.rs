//! Instantiated graphs and what they keep alive.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use super::driver::{Driver, Keep, RawExec, RawGraph};
use super::stream::Stream;
use super::{Relaxed, check_device};
use crate::context::count_enqueued;
use crate::error::{Error, Result};

/// A captured and instantiated graph: a counted handle.
///
/// It keeps alive every buffer and kernel that it refers to (S30), so it can be launched after all
/// other handles are gone. Launches of one graph are ordered by their stream; a graph never runs
/// beside itself.
#[derive(Clone)]
pub struct Graph {
    core: Arc<GraphCore>,
}

impl Graph {
    /// Instantiates `template` and takes it over, also if that fails.
    pub(crate) fn instantiate(
        driver: &Arc<dyn Driver>,
        template: RawGraph,
        keep: KeepSet,
    ) -> Result<Self> {
        let template = Template { driver: Arc::clone(driver), raw: template };
        let _relaxed = Relaxed::enter(driver);
        let nodes = driver.graph_node_count(template.raw)?;
        let exec = driver.graph_instantiate(template.raw)?;
        let keep = keep.into_vec();
        Ok(Self { core: Arc::new(GraphCore { exec, nodes, template, _keep: keep }) })
    }

    /// Enqueues the graph on `stream`.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] for another device's stream; [`Error::Capture`] on a capturing
    /// stream, since a graph launch cannot be captured; [`Error::Driver`].
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        let driver = &self.core.template.driver;
        check_device(driver, stream.driver(), "a stream to launch a graph on")?;
        if stream.is_capturing()? {
            return Err(Error::Capture {
                subject: "launching a graph".into(),
                open: crate::error::OpenCapture::Resolved,
            });
        }
        self.launch_unchecked(stream)
    }

    /// As [`launch`](Self::launch), by a caller that has asked the stream's state.
    pub(crate) fn launch_unchecked(&self, stream: &Stream) -> Result<()> {
        count_enqueued();
        Ok(self.core.template.driver.graph_launch(self.core.exec, stream.raw())?)
    }

    /// The number of its nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.core.nodes
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("nodes", &self.core.nodes).finish_non_exhaustive()
    }
}

struct GraphCore {
    exec: RawExec,
    nodes: usize,
    template: Template,
    // Dropped after the exec and the template, by `Drop` below and the order of fields.
    _keep: Vec<Keep>,
}

impl Drop for GraphCore {
    fn drop(&mut self) {
        let driver = &self.template.driver;
        let _relaxed = Relaxed::enter(driver);
        // A refusal leaks the exec, which is all that can be done about it here.
        let _ = driver.exec_destroy(self.exec);
    }
}

struct Template {
    driver: Arc<dyn Driver>,
    raw: RawGraph,
}

impl Drop for Template {
    fn drop(&mut self) {
        let _relaxed = Relaxed::enter(&self.driver);
        // A refusal leaks the graph, which is all that can be done about it here.
        let _ = self.driver.graph_destroy(self.raw);
    }
}

/// What a graph keeps alive, each thing once.
#[derive(Default)]
pub(crate) struct KeepSet {
    seen: HashSet<usize>,
    keep: Vec<Keep>,
}

impl KeepSet {
    /// Adds what `keep` makes, unless the thing at this address is in already.
    pub(crate) fn add<T>(&mut self, thing: &Arc<T>, keep: impl FnOnce() -> Keep) {
        if self.seen.insert(Arc::as_ptr(thing).cast::<()>() as usize) {
            self.keep.push(keep());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keep.is_empty()
    }

    pub(crate) fn into_vec(self) -> Vec<Keep> {
        self.keep
    }
}
