//! The kernels: `geometry.rs` on the host, `kernels.cu` on CUDA.
//!
//! A batch of tracks is stored track after track, `n` points each.

use graph_runner::{Device, In, Kernel, KernelSpec, Out, Result, Shared};

use crate::geometry::{
    CORNERS, Corner, Point, borders, curvature, lay_out, neighbours, perimeter, relaxed, resample,
    spline, through, tightest,
};

pub(crate) type LayOutArgs = (In<u32>, Out<[Corner; CORNERS]>, Out<u32>, u32);
pub(crate) type TraceArgs = (In<[Corner; CORNERS]>, In<u32>, Out<Point>, u32, u32);
pub(crate) type ThroughArgs = (In<Point>, Out<Point>, u32, u32, u32);
pub(crate) type ResampleArgs = (In<Point>, Out<Point>, u32, u32, u32);
pub(crate) type SmoothArgs = (In<Point>, Out<Point>, f32, u32, u32);
pub(crate) type BendArgs = (In<Point>, In<u32>, Out<f32>, u32, u32, u32);
pub(crate) type JudgeArgs = (In<f32>, Out<u32>, Out<u32>, Shared<u32>, f32, u32, u32, u32);
pub(crate) type RelaxArgs = (In<Point>, In<f32>, In<u32>, Out<Point>, f32, u32, u32, u32);
pub(crate) type BordersArgs = (In<Point>, Out<Point>, Out<Point>, f32, u32, u32, u32);
pub(crate) type LengthArgs = (In<Point>, In<f32>, Out<[f32; 2]>, u32, u32);
pub(crate) type AdvanceArgs = (Out<u32>,);

/// All kernels, loaded.
pub(crate) struct Kernels {
    /// Lays out the corners of each track.
    pub(crate) lay_out: Kernel<LayOutArgs>,
    /// Follows the spline of the corners.
    pub(crate) trace: Kernel<TraceArgs>,
    /// Follows the curve through points.
    pub(crate) through: Kernel<ThroughArgs>,
    /// Puts points at equal distances.
    pub(crate) resample: Kernel<ResampleArgs>,
    /// Moves each point towards (or away from) the middle of its neighbours.
    pub(crate) smooth: Kernel<SmoothArgs>,
    /// The curvature at each point of the tracks that are not done.
    pub(crate) bend: Kernel<BendArgs>,
    /// Marks the tracks that are wide enough; clears the flag if one is not.
    pub(crate) judge: Kernel<JudgeArgs>,
    /// One step of relaxation of the tracks that are not done.
    pub(crate) relax: Kernel<RelaxArgs>,
    /// The edges of the asphalt.
    pub(crate) borders: Kernel<BordersArgs>,
    /// Length and tightest radius.
    pub(crate) length: Kernel<LengthArgs>,
    /// Counts the steps.
    pub(crate) advance: Kernel<AdvanceArgs>,
}

const CUDA: &str = include_str!("kernels.cu");

/// Attaches the function of this name in `kernels.cu`.
macro_rules! with_cuda {
    ($spec:expr, $name:literal) => {
        // SAFETY: `kernels.cu` declares this function with these parameters in this order, and
        // each of its threads stays below the count that every launch passes last.
        unsafe { $spec.cuda_source(CUDA, $name) }
    };
}

/// The track `index` of a batch.
fn track<T>(all: &[T], index: usize, n: u32) -> &[T] {
    &all[index * n as usize..][..n as usize]
}

#[allow(unsafe_code)]
impl Kernels {
    pub(crate) fn load(device: &Device) -> Result<Self> {
        /// Threads that go round a whole track are worth a task each.
        const TRACK: usize = 4;
        let lay_out = KernelSpec::<LayOutArgs>::per_thread_with_grain(
            "lay_out",
            TRACK,
            |t, (state, corners, counts, _)| {
                counts[0] = lay_out(state[0], state[1], t.index as u32, &mut corners[0]);
            },
        );
        let trace =
            KernelSpec::<TraceArgs>::per_thread("trace", |t, (corners, counts, out, m, _)| {
                let (track, sample) = (t.index / m as usize, t.index % m as usize);
                out[0] = spline(&corners[track], counts[track] as usize, sample, m as usize);
            });
        let through =
            KernelSpec::<ThroughArgs>::per_thread("through", |t, (points, out, n, each, _)| {
                let (m, each) = ((n * each) as usize, each as usize);
                out[0] = through(track(points, t.index / m, n), t.index % m, each);
            });
        let resample = KernelSpec::<ResampleArgs>::per_thread_with_grain(
            "resample",
            TRACK,
            |t, (from, to, m, _, _)| resample(track(from, t.index, m), to),
        );
        let smooth =
            KernelSpec::<SmoothArgs>::per_thread("smooth", |t, (points, out, by, n, _)| {
                let (whole, at) = (t.index / n as usize, t.index % n as usize);
                let [before, here, after] = neighbours(track(points, whole, n), at, 1);
                out[0] = std::array::from_fn(|axis| {
                    here[axis] + by * (0.5 * (before[axis] + after[axis]) - here[axis])
                });
            });
        let bend =
            KernelSpec::<BendArgs>::per_thread("bend", |t, (points, done, out, span, n, _)| {
                let (whole, at) = (t.index / n as usize, t.index % n as usize);
                if done[whole] == 0 {
                    let here = neighbours(track(points, whole, n), at, span as usize);
                    out[0] = curvature(here);
                }
            });
        let judge = KernelSpec::<JudgeArgs>::per_thread_with_grain(
            "judge",
            TRACK,
            |t, (bend, done, iterations, all_done, radius, taken, n, _)| {
                if done[0] == 0 {
                    iterations[0] += taken;
                    if tightest(track(bend, t.index, n)) >= radius {
                        done[0] = 1;
                    } else {
                        all_done.set(0, 0);
                    }
                }
            },
        );
        let relax = KernelSpec::<RelaxArgs>::per_thread(
            "relax",
            |t, (points, bend, done, out, radius, reach, n, _)| {
                let (whole, at) = (t.index / n as usize, t.index % n as usize);
                out[0] = if done[whole] == 0 {
                    let (points, bend) = (track(points, whole, n), track(bend, whole, n));
                    relaxed(points, bend, at, radius, reach as usize)
                } else {
                    points[t.index]
                };
            },
        );
        let borders = KernelSpec::<BordersArgs>::per_thread(
            "borders",
            |t, (points, left, right, half_width, span, n, _)| {
                let (whole, at) = (t.index / n as usize, t.index % n as usize);
                let here = neighbours(track(points, whole, n), at, span as usize);
                [left[0], right[0]] = borders(here, half_width);
            },
        );
        let length = KernelSpec::<LengthArgs>::per_thread_with_grain(
            "length",
            TRACK,
            |t, (points, bend, out, n, _)| {
                let (points, bend) = (track(points, t.index, n), track(bend, t.index, n));
                out[0] = [perimeter(points), tightest(bend)];
            },
        );
        let advance = KernelSpec::<AdvanceArgs>::per_thread("advance", |_, (state,)| state[1] += 1);
        Ok(Self {
            lay_out: device.load(&with_cuda!(lay_out, "lay_out"))?,
            trace: device.load(&with_cuda!(trace, "trace"))?,
            through: device.load(&with_cuda!(through, "through"))?,
            resample: device.load(&with_cuda!(resample, "resample"))?,
            smooth: device.load(&with_cuda!(smooth, "smooth"))?,
            bend: device.load(&with_cuda!(bend, "bend"))?,
            judge: device.load(&with_cuda!(judge, "judge"))?,
            relax: device.load(&with_cuda!(relax, "relax"))?,
            borders: device.load(&with_cuda!(borders, "borders"))?,
            length: device.load(&with_cuda!(length, "length"))?,
            advance: device.load(&with_cuda!(advance, "advance"))?,
        })
    }
}
