//! The two producers: tracks that are made up, and circuits that are read.

use graph_runner::{Buffer, Capturable, Device, Enqueue, Producer, Result, kind};

use crate::kernels::{CONTROL, Kernels, Point, Shape, each};

/// Half the width of a track, m.
pub(crate) const HALF_WIDTH: f32 = 6.0;
/// The tightest turn that a made-up track may have, m.
pub(crate) const TRACK_RADIUS: f32 = 28.0;
/// The tightest turn that a circuit may have, m: a little below the tightest real hairpins.
pub(crate) const CIRCUIT_RADIUS: f32 = 8.0;
/// At most so many steps of relaxation.
pub(crate) const MAX_ITERATIONS: u32 = 256;

/// A batch of closed tracks on the device, `n` points each, and what is known of them.
pub(crate) struct Batch {
    pub(crate) tracks: usize,
    pub(crate) n: usize,
    pub(crate) points: Buffer<Point>,
    pub(crate) left: Buffer<Point>,
    pub(crate) right: Buffer<Point>,
    pub(crate) bend: Buffer<f32>,
    /// Length and tightest radius of each, m.
    pub(crate) lengths: Buffer<[f32; 2]>,
    /// 1 for each track whose tightest turn is wide enough.
    pub(crate) done: Buffer<u32>,
    /// Steps of relaxation that each took.
    pub(crate) iterations: Buffer<u32>,
    next: Buffer<Point>,
    remaining: Buffer<u32>,
    stop: Buffer<u32>,
}

impl Batch {
    fn new(device: &Device, tracks: usize, n: usize) -> Result<Self> {
        Ok(Self {
            tracks,
            n,
            points: device.zeros(tracks * n)?,
            left: device.zeros(tracks * n)?,
            right: device.zeros(tracks * n)?,
            bend: device.zeros(tracks * n)?,
            lengths: device.zeros(tracks)?,
            done: device.zeros(tracks)?,
            iterations: device.zeros(tracks)?,
            next: device.zeros(tracks * n)?,
            remaining: device.zeros(1)?,
            stop: device.zeros(1)?,
        })
    }

    fn all(&self) -> usize {
        self.tracks * self.n
    }

    /// Widens turns step by step until all are wide enough, or for [`MAX_ITERATIONS`] steps. A
    /// track that is done is left alone to the bit, so that steps after the end change nothing.
    fn relax(&self, kernels: &Kernels, radius: f32, cx: &mut Enqueue<'_>) -> Result<()> {
        let (n, tracks, all) = (self.n as u32, self.tracks as u32, self.all() as u32);
        let measure = |cx: &mut Enqueue<'_>| {
            cx.fill(&self.remaining, 0)?;
            let args =
                (&self.points, &self.done, &self.iterations, &self.remaining, radius, n, tracks);
            cx.launch(&kernels.measure, each(self.tracks), args)?;
            cx.launch(&kernels.stop, each(1), (&self.remaining, &self.stop))
        };
        cx.fill(&self.done, 0)?;
        cx.fill(&self.iterations, 0)?;
        measure(cx)?;
        cx.bounded_loop(MAX_ITERATIONS, &self.stop, |cx, _| {
            let args = (&self.points, &self.done, &self.next, radius, n, all);
            cx.launch(&kernels.relax, each(self.all()), args)?;
            cx.copy(&self.next, &self.points)?;
            measure(cx)
        })
    }

    fn finish(&self, kernels: &Kernels, cx: &mut Enqueue<'_>) -> Result<()> {
        let (n, all) = (self.n as u32, self.all() as u32);
        let args = (&self.points, &self.left, &self.right, &self.bend, HALF_WIDTH, n, all);
        cx.launch(&kernels.borders, each(self.all()), args)?;
        let args = (&self.points, &self.lengths, n, self.tracks as u32);
        cx.launch(&kernels.length, each(self.tracks), args)
    }
}

/// Makes up a batch of tracks: each run the next batch, since the step is counted on the device.
pub(crate) struct RaceTracks {
    pub(crate) batch: Batch,
    kernels: Kernels,
    /// The seed and the step.
    state: Buffer<u32>,
    control: Buffer<[Point; CONTROL]>,
    shapes: Buffer<Shape>,
    traced: Buffer<Point>,
}

impl RaceTracks {
    /// Samples of the curve for each point that is kept.
    const TRACED: usize = 4;

    pub(crate) fn new(device: &Device, tracks: usize, n: usize, seed: u32) -> Result<Self> {
        Ok(Self {
            batch: Batch::new(device, tracks, n)?,
            kernels: Kernels::load(device)?,
            state: device.buffer(&[seed, 0])?,
            control: device.zeros(tracks)?,
            shapes: device.zeros(tracks)?,
            traced: device.zeros(tracks * n * Self::TRACED)?,
        })
    }

    /// Starts over with the first batch; the graphs stay, since only device memory changes.
    pub(crate) fn restart(&self, device: &Device, seed: u32) -> Result<()> {
        let stream = device.current_stream();
        stream.write(&self.state, &[seed, 0])?;
        stream.synchronize()
    }
}

impl Producer for RaceTracks {
    type Kind = kind::Capturable;
    type Variant = ();
    const NAME: &'static str = "race_tracks";
}

impl Capturable for RaceTracks {
    fn enqueue(&self, (): &(), cx: &mut Enqueue<'_>) -> Result<()> {
        let (batch, kernels) = (&self.batch, &self.kernels);
        let (tracks, n) = (batch.tracks as u32, batch.n as u32);
        let traced = self.traced.len() as u32;
        let args = (&self.state, &self.control, &self.shapes, tracks);
        cx.launch(&kernels.control, each(batch.tracks), args)?;
        let args = (&self.control, &self.shapes, &self.traced, traced / tracks, traced);
        cx.launch(&kernels.trace, each(self.traced.len()), args)?;
        let args = (&self.traced, &batch.points, traced / tracks, n, tracks);
        cx.launch(&kernels.resample, each(batch.tracks), args)?;
        batch.relax(kernels, TRACK_RADIUS, cx)?;
        batch.finish(kernels, cx)?;
        cx.launch(&kernels.advance, each(1), (&self.state,))
    }
}

/// Smooths and resamples one circuit that was read from a file.
pub(crate) struct Circuit {
    pub(crate) batch: Batch,
    kernels: Kernels,
    read: Buffer<Point>,
    even: Buffer<Point>,
}

impl Circuit {
    /// Pairs of smoothing steps, one that shrinks and one that grows back.
    const SMOOTHING: usize = 2;

    pub(crate) fn new(device: &Device, read: &[Point], n: usize) -> Result<Self> {
        Ok(Self {
            batch: Batch::new(device, 1, n)?,
            kernels: Kernels::load(device)?,
            read: device.buffer(read)?,
            even: device.zeros(n)?,
        })
    }
}

impl Producer for Circuit {
    type Kind = kind::Capturable;
    type Variant = ();
    const NAME: &'static str = "circuit";
}

impl Capturable for Circuit {
    fn enqueue(&self, (): &(), cx: &mut Enqueue<'_>) -> Result<()> {
        let (batch, kernels, n) = (&self.batch, &self.kernels, self.batch.n as u32);
        let args = (&self.read, &batch.points, self.read.len() as u32, n, 1);
        cx.launch(&kernels.resample, each(1), args)?;
        for _ in 0..Self::SMOOTHING {
            let shrink = (&batch.points, &self.even, 0.5, n, n);
            cx.launch(&kernels.smooth, each(batch.n), shrink)?;
            let grow = (&self.even, &batch.points, -0.53, n, n);
            cx.launch(&kernels.smooth, each(batch.n), grow)?;
        }
        batch.relax(kernels, CIRCUIT_RADIUS, cx)?;
        batch.finish(kernels, cx)
    }
}
