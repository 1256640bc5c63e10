//! The two producers: tracks that are made up, and circuits that are read.

use graph_runner::{Buffer, Capturable, Device, Enqueue, Grid, Producer, Result, kind};

use crate::geometry::{CORNERS, Corner, Point};
use crate::kernels::Kernels;

/// Half the width of a track, m.
pub(crate) const HALF_WIDTH: f32 = 6.0;
/// The tightest turn that a made-up track may have, m.
pub(crate) const TRACK_RADIUS: f32 = 20.0;
/// The tightest turn that a circuit may have, m: a little below the tightest real hairpins.
pub(crate) const CIRCUIT_RADIUS: f32 = 8.0;
/// Turns are widened by so much more, since making distances equal afterwards takes a little away.
const MARGIN: f32 = 1.05;
/// Samples of a curve for each point that is kept.
const TRACED: usize = 4;
/// At most so many steps of relaxation.
pub(crate) const MAX_ITERATIONS: u32 = 128;

/// A batch of closed tracks on the device, `n` points each, and what is known of them.
pub(crate) struct Batch {
    pub(crate) tracks: usize,
    pub(crate) n: usize,
    pub(crate) points: Buffer<Point>,
    pub(crate) left: Buffer<Point>,
    pub(crate) right: Buffer<Point>,
    /// Signed curvature at each point, 1/m; positive to the left.
    pub(crate) bend: Buffer<f32>,
    /// Length and tightest radius of each, m.
    pub(crate) lengths: Buffer<[f32; 2]>,
    /// 1 for each track whose tightest turn is wide enough.
    pub(crate) done: Buffer<u32>,
    /// Steps of relaxation that each took.
    pub(crate) iterations: Buffer<u32>,
    next: Buffer<Point>,
    traced: Buffer<Point>,
    all_done: Buffer<u32>,
    /// Curvature is measured over so many points to each side, so that rounding does not show.
    span: u32,
    /// A step of relaxation takes the mean of so many points to each side.
    reach: u32,
}

impl Batch {
    fn new(device: &Device, tracks: usize, n: usize, reach: usize) -> Result<Self> {
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
            traced: device.zeros(tracks * n * TRACED)?,
            all_done: device.zeros(1)?,
            span: (n / 1024).max(1) as u32,
            reach: reach.clamp(1, n / 8) as u32,
        })
    }

    fn points_grid(&self) -> Grid {
        Grid::over(self.tracks * self.n)
    }

    fn tracks_grid(&self) -> Grid {
        Grid::over(self.tracks)
    }

    /// Measures the tracks that are not done; `taken` steps were made since the last time.
    fn judge(
        &self,
        kernels: &Kernels,
        radius: f32,
        taken: u32,
        cx: &mut Enqueue<'_>,
    ) -> Result<()> {
        let (n, tracks, all) = (self.n as u32, self.tracks as u32, self.points.len() as u32);
        let args = (&self.points, &self.done, &self.bend, self.span, n, all);
        cx.launch(&kernels.bend, self.points_grid(), args)?;
        cx.fill(&self.all_done, 1)?;
        let (done, iterations) = (&self.done, &self.iterations);
        let args = (&self.bend, done, iterations, &self.all_done, radius, taken, n, tracks);
        cx.launch(&kernels.judge, self.tracks_grid(), args)
    }

    /// Widens turns step by step until all are wide enough, or for [`MAX_ITERATIONS`] steps. A
    /// track that is done is left alone to the bit, so that steps after the end change nothing.
    fn relax(&self, kernels: &Kernels, radius: f32, cx: &mut Enqueue<'_>) -> Result<()> {
        let (n, all) = (self.n as u32, self.points.len() as u32);
        cx.fill(&self.iterations, 0)?;
        cx.fill(&self.done, 0)?;
        self.judge(kernels, radius, 0, cx)?;
        cx.bounded_loop(MAX_ITERATIONS, &self.all_done, |cx, _| {
            let (points, next) = (&self.points, &self.next);
            let args = (points, &self.bend, &self.done, next, radius, self.reach, n, all);
            cx.launch(&kernels.relax, self.points_grid(), args)?;
            cx.copy(next, points)?;
            self.judge(kernels, radius, 1, cx)
        })
    }

    /// Makes distances equal again, which widening turns has changed, and measures what came out.
    fn finish(&self, kernels: &Kernels, radius: f32, cx: &mut Enqueue<'_>) -> Result<()> {
        let (n, tracks, all) = (self.n as u32, self.tracks as u32, self.points.len() as u32);
        let (traced, each) = (self.traced.len() as u32, TRACED as u32);
        let args = (&self.points, &self.traced, n, each, traced);
        cx.launch(&kernels.through, Grid::over(self.traced.len()), args)?;
        let args = (&self.traced, &self.points, n * each, n, tracks);
        cx.launch(&kernels.resample, self.tracks_grid(), args)?;
        cx.fill(&self.done, 0)?;
        self.judge(kernels, radius, 0, cx)?;
        let args = (&self.points, &self.left, &self.right, HALF_WIDTH, self.span, n, all);
        cx.launch(&kernels.borders, self.points_grid(), args)?;
        let args = (&self.points, &self.bend, &self.lengths, n, tracks);
        cx.launch(&kernels.length, self.tracks_grid(), args)
    }
}

/// Makes up a batch of tracks: each run the next batch, since the step is counted on the device.
pub(crate) struct RaceTracks {
    pub(crate) batch: Batch,
    kernels: Kernels,
    /// The seed and the step.
    state: Buffer<u32>,
    corners: Buffer<[Corner; CORNERS]>,
    counts: Buffer<u32>,
}

impl RaceTracks {
    pub(crate) fn new(device: &Device, tracks: usize, n: usize, seed: u32) -> Result<Self> {
        Ok(Self {
            batch: Batch::new(device, tracks, n, n / 32)?,
            kernels: Kernels::load(device)?,
            state: device.buffer(&[seed, 0])?,
            corners: device.zeros(tracks)?,
            counts: device.zeros(tracks)?,
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
        let (traced, m) = (batch.traced.len() as u32, n * TRACED as u32);
        let args = (&self.state, &self.corners, &self.counts, tracks);
        cx.launch(&kernels.lay_out, batch.tracks_grid(), args)?;
        let args = (&self.corners, &self.counts, &batch.traced, m, traced);
        cx.launch(&kernels.trace, Grid::over(batch.traced.len()), args)?;
        let args = (&batch.traced, &batch.points, m, n, tracks);
        cx.launch(&kernels.resample, batch.tracks_grid(), args)?;
        batch.relax(kernels, MARGIN * TRACK_RADIUS, cx)?;
        batch.finish(kernels, TRACK_RADIUS, cx)?;
        cx.launch(&kernels.advance, Grid::over(1), (&self.state,))
    }
}

/// Smooths and resamples one circuit that was read from a file.
pub(crate) struct Circuit {
    pub(crate) batch: Batch,
    kernels: Kernels,
    read: Buffer<Point>,
    traced: Buffer<Point>,
    even: Buffer<Point>,
}

impl Circuit {
    /// Pairs of smoothing steps, one that shrinks and one that grows back.
    const SMOOTHING: usize = 2;

    /// A circuit of `n` points through the points `read`, `length` metres long.
    pub(crate) fn new(device: &Device, read: &[Point], length: f64, n: usize) -> Result<Self> {
        let reach = (f64::from(CIRCUIT_RADIUS) * n as f64 / length) as usize;
        let each = (TRACED * n).div_ceil(read.len());
        Ok(Self {
            batch: Batch::new(device, 1, n, reach)?,
            kernels: Kernels::load(device)?,
            read: device.buffer(read)?,
            traced: device.zeros(read.len() * each)?,
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
        let (rows, traced) = (self.read.len() as u32, self.traced.len() as u32);
        let args = (&self.read, &self.traced, rows, traced / rows, traced);
        cx.launch(&kernels.through, Grid::over(self.traced.len()), args)?;
        let args = (&self.traced, &batch.points, traced, n, 1);
        cx.launch(&kernels.resample, batch.tracks_grid(), args)?;
        for _ in 0..Self::SMOOTHING {
            let shrink = (&batch.points, &self.even, 0.5, n, n);
            cx.launch(&kernels.smooth, batch.points_grid(), shrink)?;
            let grow = (&self.even, &batch.points, -0.53, n, n);
            cx.launch(&kernels.smooth, batch.points_grid(), grow)?;
        }
        batch.relax(kernels, MARGIN * CIRCUIT_RADIUS, cx)?;
        batch.finish(kernels, CIRCUIT_RADIUS, cx)
    }
}
