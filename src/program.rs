//! Producers in a row.

use crate::context::Enqueue;
use crate::drive::Drive;
use crate::error::Result;
use crate::kind;
use crate::producer::{Capturable, Producer};

/// Two producers in a row, a producer itself (S14).
///
/// Its kind is computed from its members' kinds, and the parts keep their own: in a program with a
/// HOST stage every device part still replays. Its variant is the pair of its members' variants.
///
/// ```
/// # use graph_runner::{Buffer, Capturable, Device, Enqueue, Producer, Result, kind};
/// # struct Clear(Buffer<f32>);
/// # impl Producer for Clear {
/// #     type Kind = kind::Capturable;
/// #     type Variant = ();
/// #     const NAME: &'static str = "clear";
/// # }
/// # impl Capturable for Clear {
/// #     fn enqueue(&self, _: &(), cx: &mut Enqueue<'_>) -> Result<()> {
/// #         cx.fill(&self.0, 0.0)
/// #     }
/// # }
/// use graph_runner::{GraphRunner, Program};
/// let device = Device::host();
/// let (a, b, c) = (device.zeros(1)?, device.zeros(2)?, device.zeros(3)?);
/// let program = Program::new(Clear(a), Clear(b)).then(Clear(c));
/// GraphRunner::new(&device, program)?.run()?;
/// # Ok::<(), graph_runner::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Program<A, B> {
    /// The producer that comes first.
    pub first: A,
    /// The producer that comes after it.
    pub second: B,
}

impl<A: Producer, B: Producer> Program<A, B> {
    /// `first`, then `second`.
    #[must_use]
    pub fn new(first: A, second: B) -> Self {
        Self { first, second }
    }

    /// This program, then `next`.
    #[must_use]
    pub fn then<C: Producer>(self, next: C) -> Program<Self, C>
    where
        Self: Producer,
    {
        Program { first: self, second: next }
    }
}

#[allow(private_bounds)]
impl<A: Producer, B: Producer> Producer for Program<A, B>
where
    A::Kind: kind::Join<B::Kind>,
    <A::Kind as kind::Join<B::Kind>>::Output: Drive<Self>,
{
    type Kind = <A::Kind as kind::Join<B::Kind>>::Output;
    type Variant = (A::Variant, B::Variant);
    const NAME: &'static str = "program";
}

impl<A: Capturable, B: Capturable> Capturable for Program<A, B> {
    fn enqueue(&self, variant: &Self::Variant, cx: &mut Enqueue<'_>) -> Result<()> {
        cx.member(A::NAME, |cx| self.first.enqueue(&variant.0, cx))?;
        cx.member(B::NAME, |cx| self.second.enqueue(&variant.1, cx))
    }
}
