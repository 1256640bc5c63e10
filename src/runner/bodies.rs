//! A producer with its parts, ready to be driven part by part.

use std::ops::Range;

use super::mode::Body;
use crate::context::ambient::Ambient;
use crate::context::{Lane, Trace};
use crate::device::Stream;
use crate::drive::{Drive, HostStateOf, PartClass, PartInfo, PartsOf};
use crate::error::Result;
use crate::producer::Producer;

pub(crate) struct Bodies<P: Producer> {
    pub(crate) producer: P,
    parts: PartsOf<P>,
    state: HostStateOf<P>,
    pub(crate) infos: Vec<PartInfo>,
}

impl<P: Producer> Bodies<P> {
    pub(crate) fn new(producer: P) -> Self {
        let parts = <P::Kind as Drive<P>>::parts();
        let mut infos = Vec::new();
        <P::Kind as Drive<P>>::describe(&parts, &mut infos);
        Self { producer, parts, state: Default::default(), infos }
    }

    pub(crate) fn shape(&self) -> Body {
        let any = |class: fn(PartClass) -> bool| self.infos.iter().any(|info| class(info.class));
        let host = any(|class| class == PartClass::Host);
        let device = any(|class| class == PartClass::Device);
        let legacy_capture = any(|class| class == PartClass::Legacy { capturable: true });
        let legacy_host = any(|class| class == PartClass::Legacy { capturable: false });
        Body {
            recordable: !host && !legacy_host,
            segmented: host || legacy_host,
            legacy: legacy_capture || legacy_host,
            graphable: device || legacy_capture || host,
            legacy_capture,
            legacy_host,
        }
    }

    /// The names of the parts that a capture cannot have.
    pub(crate) fn host_stages(&self) -> Vec<String> {
        let mut stages = Vec::new();
        for info in &self.infos {
            match info.class {
                PartClass::Host if info.producer == P::NAME => stages.push(info.name.to_owned()),
                PartClass::Host => stages.push(format!("{}/{}", info.producer, info.name)),
                PartClass::Legacy { capturable: false } => stages.push(info.producer.to_owned()),
                PartClass::Device | PartClass::Legacy { capturable: true } => {}
            }
        }
        stages
    }

    /// Runs part `index` on `stream`, where it enqueues, or records if that is capturing.
    pub(crate) fn run_part(
        &mut self,
        index: usize,
        variant: &P::Variant,
        stream: &Stream,
        trace: &mut Trace,
        capturing: bool,
    ) -> Result<()> {
        let info = self.infos[index];
        let lane = Lane { stream, producer: info.producer, part: info.name, trace, capturing };
        let _ambient = Ambient::enter(stream);
        <P::Kind as Drive<P>>::run(
            &self.producer,
            &self.parts,
            &mut self.state,
            variant,
            index,
            lane,
        )
    }

    pub(crate) fn run_parts(
        &mut self,
        parts: Range<usize>,
        variant: &P::Variant,
        stream: &Stream,
        trace: &mut Trace,
        capturing: bool,
    ) -> Result<()> {
        for index in parts {
            self.run_part(index, variant, stream, trace, capturing)?;
        }
        Ok(())
    }
}
