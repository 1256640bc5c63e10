//! Producers: types that own device buffers and one body that enqueues all of their device work.

use std::fmt;
use std::hash::Hash;

use crate::context::{Enqueue, HostStage, LegacyLaunch};
use crate::drive::Drive;
use crate::error::Result;
use crate::kind;

/// The host-side value that selects which body is meant.
///
/// Equal values mean identical bodies: the same launches of the same kernels on the same buffers
/// with the same values. The default value is the default body, which prepares a runner. Bound in
/// this way by itself: implement nothing.
pub trait Variant: Clone + Eq + Hash + Default + fmt::Debug + 'static {}
impl<V: Clone + Eq + Hash + Default + fmt::Debug + 'static> Variant for V {}

/// A type that owns device buffers and one body that enqueues all of its device work.
///
/// Declare its kind here and implement the trait of the same name: [`Capturable`],
/// [`HostSegmented`] or [`Legacy`]. A kind without its trait does not compile (S12).
#[allow(private_bounds)]
pub trait Producer: Sized {
    /// One of [`kind::Capturable`], [`kind::HostSegmented`], [`kind::Legacy`].
    type Kind: Drive<Self>;
    /// What selects among its bodies; `()` if there is only one.
    type Variant: Variant;
    /// Its name in errors and reports.
    const NAME: &'static str;
}

/// A producer whose body only enqueues (S9).
///
/// The body must do the same for equal variants, whatever the device data, and must not look at
/// time or other changing state: it runs once to prepare and once to capture, then never again for
/// replays.
///
/// ```
/// use graph_runner::{Buffer, Capturable, Device, Enqueue, GraphRunner, Producer, Result, kind};
/// struct Clear(Buffer<f32>);
/// impl Producer for Clear {
///     type Kind = kind::Capturable;
///     type Variant = ();
///     const NAME: &'static str = "clear";
/// }
/// impl Capturable for Clear {
///     fn enqueue(&self, _: &(), cx: &mut Enqueue<'_>) -> Result<()> {
///         cx.fill(&self.0, 0.0)
///     }
/// }
/// let device = Device::host();
/// let mut runner = GraphRunner::new(&device, Clear(device.buffer(&[1.0; 4])?))?;
/// runner.run()?;
/// assert_eq!(runner.read(&runner.producer().0)?, [0.0; 4]);
/// # Ok::<(), graph_runner::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be recorded into a caller's capture",
    label = "this producer is not `Capturable`",
    note = "a body with HOST stages reads back or waits, and a legacy body launches on a stream of \
            its own choice: a capture forbids the one and would miss the other",
    note = "run it outside the capture with `GraphRunner::run`, or move that work out of the body, \
            declare `type Kind = kind::Capturable` and implement `Capturable`"
)]
pub trait Capturable: Producer<Kind = kind::Capturable> {
    /// Enqueues all device work of the body.
    ///
    /// # Errors
    ///
    /// What the context's operations return, or an error of the body's own.
    fn enqueue(&self, variant: &Self::Variant, cx: &mut Enqueue<'_>) -> Result<()>;
}

/// A producer of named parts, some of which need the host (S10).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a producer of segments",
    label = "`HostSegmented` is not implemented for `{Self}`"
)]
pub trait HostSegmented: Producer<Kind = kind::HostSegmented> {
    /// What HOST parts keep between them. No device part can see it, so a value that was read back
    /// cannot freeze in a captured part.
    type HostState: Default;

    /// Adds the parts in order. Called once for each runner.
    fn segments(parts: Segments<Self>) -> Segments<Self>;
}

/// A producer that launches on the device's current stream by itself (S11), such as one that calls
/// an existing library.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a legacy producer",
    label = "`Legacy` is not implemented for `{Self}`"
)]
pub trait Legacy: Producer<Kind = kind::Legacy> {
    /// Whether its launches may be captured. With `false` it always runs eagerly, and as a HOST
    /// segment in a [`Program`](crate::Program).
    const CAPTURABLE: bool = true;

    /// Launches all of its device work on the current stream, which is [`LegacyLaunch::stream`].
    ///
    /// # Errors
    ///
    /// What the context's operations return, or an error of the body's own.
    fn launch(&self, variant: &Self::Variant, cx: &mut LegacyLaunch<'_>) -> Result<()>;
}

type DeviceBody<P> = fn(&P, &<P as Producer>::Variant, &mut Enqueue<'_>) -> Result<()>;
type HostBody<P> = fn(
    &P,
    &<P as Producer>::Variant,
    &mut <P as HostSegmented>::HostState,
    &mut HostStage<'_>,
) -> Result<()>;

pub(crate) enum Segment<P: HostSegmented> {
    Device(DeviceBody<P>),
    Host(HostBody<P>),
}

/// The named parts of a [`HostSegmented`] producer, in order.
pub struct Segments<P: HostSegmented> {
    parts: Vec<(&'static str, Segment<P>)>,
}

impl<P: HostSegmented> Segments<P> {
    pub(crate) fn new() -> Self {
        Self { parts: Vec::new() }
    }

    /// Adds a device part: captured once a variant and replayed from then on.
    ///
    /// It is a plain function of the producer, the variant and an enqueue-only context, so it can
    /// neither reach the [`HostState`](HostSegmented::HostState) nor anything else on the host.
    #[must_use]
    pub fn device(mut self, name: &'static str, body: DeviceBody<P>) -> Self {
        self.parts.push((name, Segment::Device(body)));
        self
    }

    /// Adds a HOST part: run on every call, with a context that also reads back, uploads and
    /// waits, and with the host state.
    #[must_use]
    pub fn host(mut self, name: &'static str, body: HostBody<P>) -> Self {
        self.parts.push((name, Segment::Host(body)));
        self
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &Segment<P>)> {
        self.parts.iter().map(|(name, segment)| (*name, segment))
    }

    pub(crate) fn get(&self, index: usize) -> &Segment<P> {
        &self.parts[index].1
    }
}

impl<P: HostSegmented> fmt::Debug for Segments<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.parts.iter().map(|(name, _)| name)).finish()
    }
}
