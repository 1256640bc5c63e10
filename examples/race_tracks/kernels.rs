//! The kernels, each as a host function; `kernels.cu` has the same for CUDA.
//!
//! Lengths are in metres. A batch of tracks is stored track after track, `n` points each.

use graph_runner::{Device, Grid, In, Kernel, KernelSpec, Out, Result, Shared};

pub(crate) type Point = [f32; 2];

/// Control points of a track.
pub(crate) const CONTROL: usize = 12;

/// What distinguishes a track besides its control points: how round it is between them, its size
/// along both axes, a swirl, and two shears.
pub(crate) type Shape = [f32; 8];

pub(crate) type ControlArgs = (In<u32>, Out<[Point; CONTROL]>, Out<Shape>, u32);
pub(crate) type TraceArgs = (In<[Point; CONTROL]>, In<Shape>, Out<Point>, u32, u32);
pub(crate) type ResampleArgs = (In<Point>, Out<Point>, u32, u32, u32);
pub(crate) type SmoothArgs = (In<Point>, Out<Point>, f32, u32, u32);
pub(crate) type MeasureArgs = (In<Point>, Out<u32>, Out<u32>, Shared<u32>, f32, u32, u32);
pub(crate) type StopArgs = (In<u32>, Out<u32>);
pub(crate) type RelaxArgs = (In<Point>, In<u32>, Out<Point>, f32, u32, u32);
pub(crate) type BordersArgs = (In<Point>, Out<Point>, Out<Point>, Out<f32>, f32, u32, u32);
pub(crate) type LengthArgs = (In<Point>, Out<[f32; 2]>, u32, u32);
pub(crate) type AdvanceArgs = (Out<u32>,);

/// All kernels, loaded.
pub(crate) struct Kernels {
    pub(crate) control: Kernel<ControlArgs>,
    pub(crate) trace: Kernel<TraceArgs>,
    pub(crate) resample: Kernel<ResampleArgs>,
    pub(crate) smooth: Kernel<SmoothArgs>,
    pub(crate) measure: Kernel<MeasureArgs>,
    pub(crate) stop: Kernel<StopArgs>,
    pub(crate) relax: Kernel<RelaxArgs>,
    pub(crate) borders: Kernel<BordersArgs>,
    pub(crate) length: Kernel<LengthArgs>,
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

#[allow(unsafe_code)]
impl Kernels {
    pub(crate) fn load(device: &Device) -> Result<Self> {
        /// Threads that go round a whole track are worth a task each.
        const TRACK: usize = 4;
        let control = KernelSpec::<ControlArgs>::per_thread_with_grain(
            "control",
            TRACK,
            |t, (state, points, shape, _)| {
                (points[0], shape[0]) = control(state[0], state[1], t.index as u32);
            },
        );
        let trace =
            KernelSpec::<TraceArgs>::per_thread("trace", |t, (points, shape, out, m, _)| {
                let (track, sample) = (t.index / m as usize, t.index % m as usize);
                out[0] = trace(&points[track], &shape[track], sample as f32 / m as f32);
            });
        let resample = KernelSpec::<ResampleArgs>::per_thread_with_grain(
            "resample",
            TRACK,
            |t, (from, to, m, _, _)| resample(&from[t.index * m as usize..][..m as usize], to),
        );
        let smooth =
            KernelSpec::<SmoothArgs>::per_thread("smooth", |t, (points, out, by, n, _)| {
                let [before, here, after] = neighbours(points, t.index, n as usize);
                out[0] = std::array::from_fn(|axis| {
                    here[axis] + by * (0.5 * (before[axis] + after[axis]) - here[axis])
                });
            });
        let measure = KernelSpec::<MeasureArgs>::per_thread_with_grain(
            "measure",
            TRACK,
            |t, (points, done, iterations, remaining, radius, n, _)| {
                if done[0] == 0 {
                    let track = &points[t.index * n as usize..][..n as usize];
                    if tightest(track) >= radius {
                        done[0] = 1;
                    } else {
                        iterations[0] += 1;
                        remaining.add(0, 1);
                    }
                }
            },
        );
        let stop = KernelSpec::<StopArgs>::per_thread("stop", |_, (remaining, flag)| {
            flag[0] = u32::from(remaining[0] == 0);
        });
        let relax =
            KernelSpec::<RelaxArgs>::per_thread("relax", |t, (points, done, out, radius, n, _)| {
                let n = n as usize;
                out[0] = if done[t.index / n] == 0 {
                    relaxed(&points[t.index / n * n..][..n], t.index % n, radius)
                } else {
                    points[t.index]
                };
            });
        let borders = KernelSpec::<BordersArgs>::per_thread(
            "borders",
            |t, (points, left, right, bend, half_width, n, _)| {
                let [before, here, after] = neighbours(points, t.index, n as usize);
                let along = [after[0] - before[0], after[1] - before[1]];
                let scale = half_width / norm(along).max(1e-6);
                left[0] = [here[0] - along[1] * scale, here[1] + along[0] * scale];
                right[0] = [here[0] + along[1] * scale, here[1] - along[0] * scale];
                bend[0] = curvature(before, here, after);
            },
        );
        let length = KernelSpec::<LengthArgs>::per_thread_with_grain(
            "length",
            TRACK,
            |t, (points, out, n, _)| {
                let track = &points[t.index * n as usize..][..n as usize];
                out[0] = [perimeter(track), tightest(track)];
            },
        );
        let advance = KernelSpec::<AdvanceArgs>::per_thread("advance", |_, (state,)| state[1] += 1);
        Ok(Self {
            control: device.load(&with_cuda!(control, "control"))?,
            trace: device.load(&with_cuda!(trace, "trace"))?,
            resample: device.load(&with_cuda!(resample, "resample"))?,
            smooth: device.load(&with_cuda!(smooth, "smooth"))?,
            measure: device.load(&with_cuda!(measure, "measure"))?,
            stop: device.load(&with_cuda!(stop, "stop"))?,
            relax: device.load(&with_cuda!(relax, "relax"))?,
            borders: device.load(&with_cuda!(borders, "borders"))?,
            length: device.load(&with_cuda!(length, "length"))?,
            advance: device.load(&with_cuda!(advance, "advance"))?,
        })
    }
}

/// One thread for each of `count` items.
pub(crate) fn each(count: usize) -> Grid {
    Grid::over(count)
}

/// A counter-based random number in 0..1: the same for the same (seed, step, track, index), in any
/// order and on any device. Three rounds of multiply, xor and shift over the counters.
fn random(seed: u32, step: u32, track: u32, index: u32) -> f32 {
    let mut x = seed.wrapping_mul(0x9E37_79B9) ^ step.wrapping_mul(0x85EB_CA6B);
    for word in [track, index] {
        x ^= word.wrapping_add(0x7F4A_7C15).wrapping_mul(0xC2B2_AE35);
        x ^= x >> 16;
        x = x.wrapping_mul(0x7FEB_352D);
        x ^= x >> 15;
        x = x.wrapping_mul(0x846C_A68B);
        x ^= x >> 16;
    }
    (x >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// Control points as (angle, radius): angles go round once and in order, so that the curve through
/// them meets every ray from the centre once and cannot cross itself.
fn control(seed: u32, step: u32, track: u32) -> ([Point; CONTROL], Shape) {
    let spacing = std::f32::consts::TAU / CONTROL as f32;
    let points = std::array::from_fn(|index| {
        let pick = |which: u32| random(seed, step, track, index as u32 * 4 + which);
        let angle = spacing * (index as f32 + 0.5 * (pick(0) - 0.5));
        // Now and then a point far inside makes a hairpin.
        let radius = if pick(1) < 0.25 { 0.42 + 0.2 * pick(2) } else { 0.62 + 0.38 * pick(2) };
        [angle, radius]
    });
    let pick = |which: u32| random(seed, step, track, 1000 + which);
    let shape = [
        0.3 + 0.7 * pick(0),
        560.0 + 240.0 * pick(1),
        330.0 + 200.0 * pick(2),
        1.4 * (pick(3) - 0.5),
        0.25 * (pick(4) - 0.5),
        std::f32::consts::TAU * pick(5),
        std::f32::consts::TAU * pick(6),
        0.0,
    ];
    (points, shape)
}

/// The curve at `at` of 0..1: between the straight lines and the periodic spline through the
/// control points, then bent by maps of the plane that keep apart what is apart.
fn trace(points: &[Point; CONTROL], shape: &Shape, at: f32) -> Point {
    let knot = at * CONTROL as f32;
    let first = (knot as usize).min(CONTROL - 1);
    let t = knot - first as f32;
    let around = |offset: usize| {
        let index = first + CONTROL + offset - 1;
        let turns = (index / CONTROL) as f32 - 1.0;
        let [angle, radius] = points[index % CONTROL];
        [angle + turns * std::f32::consts::TAU, radius]
    };
    let [a, b, c, d] = [around(0), around(1), around(2), around(3)];
    let angle = catmull_rom(a[0], b[0], c[0], d[0], t);
    let round = catmull_rom(a[1], b[1], c[1], d[1], t).max(0.2);
    let (sin, cos) = (sine(angle), cosine(angle));
    let [from, to] = [b, c].map(|[angle, radius]| [radius * cosine(angle), radius * sine(angle)]);
    let edge = [to[0] - from[0], to[1] - from[1]];
    let straight = (from[0] * to[1] - from[1] * to[0]) / (cos * edge[1] - sin * edge[0]);
    let radius = straight + shape[0] * (round - straight);

    let (swirl_sin, swirl_cos) = (sine(shape[3] * radius), cosine(shape[3] * radius));
    let x = radius * (cos * swirl_cos - sin * swirl_sin);
    let y = radius * (sin * swirl_cos + cos * swirl_sin);
    let x = x + shape[4] * sine(3.0 * y + shape[5]);
    let y = y + shape[4] * sine(3.0 * x + shape[6]);
    [shape[1] * x, shape[2] * y]
}

fn catmull_rom(a: f32, b: f32, c: f32, d: f32, t: f32) -> f32 {
    let cubic = 3.0 * (b - c) + d - a;
    let square = 2.0 * a - 5.0 * b + 4.0 * c - d;
    b + 0.5 * t * (c - a + t * (square + t * cubic))
}

/// Sine to about 4e-6: of additions and products alone, which every device rounds alike, where the
/// sines of two libraries differ and a relaxation would make much of it.
fn sine(x: f32) -> f32 {
    const HALF: f32 = std::f32::consts::FRAC_PI_2;
    let turns = x * (1.0 / std::f32::consts::TAU);
    let x = (turns - (turns + 0.5).floor()) * std::f32::consts::TAU;
    let x = if x > HALF { 2.0 * HALF - x } else { x };
    let x = if x < -HALF { -2.0 * HALF - x } else { x };
    let s = x * x;
    x * (1.0 + s * (-1.0 / 6.0 + s * (1.0 / 120.0 + s * (-1.0 / 5040.0 + s * (1.0 / 362_880.0)))))
}

fn cosine(x: f32) -> f32 {
    sine(x + std::f32::consts::FRAC_PI_2)
}

fn norm(v: Point) -> f32 {
    (v[0] * v[0] + v[1] * v[1]).sqrt()
}

fn distance(a: Point, b: Point) -> f32 {
    norm([b[0] - a[0], b[1] - a[1]])
}

fn perimeter(points: &[Point]) -> f32 {
    let mut length = 0.0;
    for index in 0..points.len() {
        length += distance(points[index], points[(index + 1) % points.len()]);
    }
    length
}

/// Points at equal distances along a closed polyline.
fn resample(from: &[Point], to: &mut [Point]) {
    let step = perimeter(from) / to.len() as f32;
    let (mut segment, mut passed) = (0, 0.0);
    for (index, out) in to.iter_mut().enumerate() {
        let target = step * index as f32;
        let (mut a, mut b) = (from[segment], from[(segment + 1) % from.len()]);
        while passed + distance(a, b) < target && segment + 1 < from.len() {
            passed += distance(a, b);
            segment += 1;
            (a, b) = (from[segment], from[(segment + 1) % from.len()]);
        }
        let t = ((target - passed) / distance(a, b).max(1e-12)).min(1.0);
        *out = [a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])];
    }
}

/// A point of a batch and its neighbours on its own closed track.
fn neighbours(points: &[Point], index: usize, n: usize) -> [Point; 3] {
    let (start, at) = (index / n * n, index % n);
    [points[start + (at + n - 1) % n], points[index], points[start + (at + 1) % n]]
}

/// Signed curvature of the circle through three points, 1/m; positive to the left.
fn curvature(a: Point, b: Point, c: Point) -> f32 {
    let (u, v) = ([b[0] - a[0], b[1] - a[1]], [c[0] - b[0], c[1] - b[1]]);
    let cross = u[0] * v[1] - u[1] * v[0];
    2.0 * cross / (norm(u) * norm(v) * distance(a, c)).max(1e-9)
}

fn curvature_at(track: &[Point], at: usize) -> f32 {
    let [a, b, c] = neighbours(track, at, track.len());
    curvature(a, b, c)
}

/// The radius of the tightest turn, m.
fn tightest(track: &[Point]) -> f32 {
    let mut most = 1e-6_f32;
    for at in 0..track.len() {
        most = most.max(curvature_at(track, at).abs());
    }
    1.0 / most
}

/// One step for a point: towards the middle of its neighbours where a turn near it is too tight.
fn relaxed(track: &[Point], at: usize, radius: f32) -> Point {
    const REACH: usize = 4;
    let n = track.len();
    let mut most = 0.0_f32;
    for offset in 0..=2 * REACH {
        most = most.max(curvature_at(track, (at + n + offset - REACH) % n).abs());
    }
    let excess = (4.0 * most * radius - 3.0).clamp(0.0, 1.0);
    let [before, here, after] = neighbours(track, at, n);
    std::array::from_fn(|axis| {
        here[axis] + 0.7 * excess * (0.5 * (before[axis] + after[axis]) - here[axis])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_spread_and_independent() {
        let mut buckets = [0_u32; 16];
        let mut sum = 0.0;
        for track in 0..64 {
            for index in 0..256 {
                let value = random(7, 0, track, index);
                assert!((0.0..1.0).contains(&value));
                buckets[(value * 16.0) as usize] += 1;
                sum += value * random(7, 0, track, index + 1);
            }
        }
        let expected = 64 * 256 / 16;
        assert!(buckets.iter().all(|count| count.abs_diff(expected) < expected / 6), "{buckets:?}");
        assert!((sum / (64.0 * 256.0) - 0.25).abs() < 0.01);
    }

    #[test]
    fn a_resampled_circle_is_even_and_keeps_its_length() {
        let circle: Vec<Point> = (0..1000)
            .map(|i| (i as f32 / 1000.0).powi(2) * std::f32::consts::TAU)
            .map(|angle| [100.0 * angle.cos(), 100.0 * angle.sin()])
            .collect();
        let mut even = [[0.0; 2]; 200];
        resample(&circle, &mut even);
        assert!((perimeter(&even) / (200.0 * std::f32::consts::PI) - 1.0).abs() < 1e-3);
        let steps: Vec<f32> = (0..200).map(|i| distance(even[i], even[(i + 1) % 200])).collect();
        assert!(steps.iter().all(|step| (step / steps[0] - 1.0).abs() < 0.01), "{steps:?}");
        assert!((tightest(&even) / 100.0 - 1.0).abs() < 0.05);
    }

    #[test]
    fn sine_and_cosine_are_good_enough() {
        for step in -2000..2000 {
            let x = step as f32 * 0.01;
            assert!((sine(x) - x.sin()).abs() < 1e-5 && (cosine(x) - x.cos()).abs() < 1e-5, "{x}");
        }
    }

    #[test]
    fn curvature_has_the_sign_of_the_turn() {
        assert!(curvature([0.0, 0.0], [1.0, 0.0], [1.0, 1.0]) > 0.0);
        assert!(curvature([0.0, 0.0], [1.0, 0.0], [1.0, -1.0]) < 0.0);
        assert_eq!(curvature([0.0, 0.0], [1.0, 0.0], [2.0, 0.0]), 0.0);
    }
}
