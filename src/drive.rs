//! How the runner drives a body of each kind: sealed, one implementation a kind.

use crate::context::{Enqueue, HostStage, Lane, LegacyLaunch};
use crate::error::Result;
use crate::kind;
use crate::producer::{Capturable, HostSegmented, Legacy, Producer, Segment, Segments};
use crate::program::Program;

/// One part of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartInfo {
    pub(crate) producer: &'static str,
    pub(crate) name: &'static str,
    pub(crate) class: PartClass,
}

/// What a part needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartClass {
    /// Only enqueues on the stream it is given.
    Device,
    /// Needs the host.
    Host,
    /// Launches on the current stream by itself.
    Legacy { capturable: bool },
}

/// A kind that can drive the producer `P`: its parts, in order, by number.
#[diagnostic::on_unimplemented(
    message = "`{P}` declares `type Kind = {Self}` but does not implement the trait of that kind",
    label = "this kind's trait is not implemented for `{P}`",
    note = "the kinds are `kind::Capturable`, `kind::HostSegmented` and `kind::Legacy`, each with a \
            trait of the same name to implement; no others can be made"
)]
pub trait Drive<P: Producer> {
    #[doc(hidden)]
    type HostState: Default;
    #[doc(hidden)]
    type Parts;

    #[doc(hidden)]
    fn parts() -> Self::Parts;
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn describe(parts: &Self::Parts, out: &mut Vec<PartInfo>);
    /// Runs part `index`.
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn run(
        producer: &P,
        parts: &Self::Parts,
        state: &mut Self::HostState,
        variant: &P::Variant,
        index: usize,
        lane: Lane<'_>,
    ) -> Result<()>;
}

pub(crate) type HostStateOf<P> = <<P as Producer>::Kind as Drive<P>>::HostState;
pub(crate) type PartsOf<P> = <<P as Producer>::Kind as Drive<P>>::Parts;

#[diagnostic::do_not_recommend]
#[allow(private_interfaces)]
impl<P: Capturable> Drive<P> for kind::Capturable {
    type HostState = ();
    type Parts = ();

    fn parts() {}

    fn describe(_parts: &(), out: &mut Vec<PartInfo>) {
        out.push(PartInfo { producer: P::NAME, name: "body", class: PartClass::Device });
    }

    fn run(
        producer: &P,
        _parts: &(),
        _state: &mut (),
        variant: &P::Variant,
        _index: usize,
        lane: Lane<'_>,
    ) -> Result<()> {
        producer.enqueue(variant, &mut Enqueue::new(lane))
    }
}

#[diagnostic::do_not_recommend]
#[allow(private_interfaces)]
impl<P: HostSegmented> Drive<P> for kind::HostSegmented {
    type HostState = P::HostState;
    type Parts = Segments<P>;

    fn parts() -> Segments<P> {
        P::segments(Segments::new())
    }

    fn describe(parts: &Segments<P>, out: &mut Vec<PartInfo>) {
        out.extend(parts.iter().map(|(name, segment)| PartInfo {
            producer: P::NAME,
            name,
            class: match segment {
                Segment::Device(_) => PartClass::Device,
                Segment::Host(_) => PartClass::Host,
            },
        }));
    }

    fn run(
        producer: &P,
        parts: &Segments<P>,
        state: &mut P::HostState,
        variant: &P::Variant,
        index: usize,
        lane: Lane<'_>,
    ) -> Result<()> {
        match parts.get(index) {
            Segment::Device(body) => body(producer, variant, &mut Enqueue::new(lane)),
            Segment::Host(body) => body(producer, variant, state, &mut HostStage::new(lane)),
        }
    }
}

#[diagnostic::do_not_recommend]
#[allow(private_interfaces)]
impl<P: Legacy> Drive<P> for kind::Legacy {
    type HostState = ();
    type Parts = ();

    fn parts() {}

    fn describe(_parts: &(), out: &mut Vec<PartInfo>) {
        let class = PartClass::Legacy { capturable: P::CAPTURABLE };
        out.push(PartInfo { producer: P::NAME, name: "body", class });
    }

    fn run(
        producer: &P,
        _parts: &(),
        _state: &mut (),
        variant: &P::Variant,
        _index: usize,
        lane: Lane<'_>,
    ) -> Result<()> {
        producer.launch(variant, &mut LegacyLaunch::new(lane))
    }
}

/// The parts of two producers in a row, and how many the first has.
#[doc(hidden)]
#[derive(Debug)]
pub struct Row<A, B> {
    first: A,
    second: B,
    split: usize,
}

macro_rules! program {
    ($kind:ident) => {
        #[diagnostic::do_not_recommend]
        #[allow(private_interfaces)]
        impl<A: Producer, B: Producer> Drive<Program<A, B>> for kind::$kind
        where
            A::Kind: kind::Join<B::Kind, Output = kind::$kind>,
        {
            type HostState = (HostStateOf<A>, HostStateOf<B>);
            type Parts = Row<PartsOf<A>, PartsOf<B>>;

            fn parts() -> Self::Parts {
                let first = <A::Kind as Drive<A>>::parts();
                let mut described = Vec::new();
                <A::Kind as Drive<A>>::describe(&first, &mut described);
                Row { first, second: <B::Kind as Drive<B>>::parts(), split: described.len() }
            }

            fn describe(parts: &Self::Parts, out: &mut Vec<PartInfo>) {
                <A::Kind as Drive<A>>::describe(&parts.first, out);
                <B::Kind as Drive<B>>::describe(&parts.second, out);
            }

            fn run(
                program: &Program<A, B>,
                parts: &Self::Parts,
                (first, second): &mut Self::HostState,
                variant: &(A::Variant, B::Variant),
                index: usize,
                lane: Lane<'_>,
            ) -> Result<()> {
                match index.checked_sub(parts.split) {
                    None => <A::Kind as Drive<A>>::run(
                        &program.first,
                        &parts.first,
                        first,
                        &variant.0,
                        index,
                        lane,
                    ),
                    Some(index) => <B::Kind as Drive<B>>::run(
                        &program.second,
                        &parts.second,
                        second,
                        &variant.1,
                        index,
                        lane,
                    ),
                }
            }
        }
    };
}

program!(HostSegmented);
program!(Legacy);
