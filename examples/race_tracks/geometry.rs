//! The arithmetic of the kernels, one function for each; `kernels.cu` has the same for CUDA.
//!
//! Only `+ - * /` and square roots of single precision, each rounded as IEEE 754 says and in the
//! order written: every device gives the same bits. Lengths are in metres.

/// A place.
pub(crate) type Point = [f32; 2];

/// A corner of a track's control polygon: its place, and which part of the way to the middles of
/// its two edges is round (0 for a kink, 1 for no straight at all).
pub(crate) type Corner = [f32; 3];

/// Corners of a track at the most.
pub(crate) const CORNERS: usize = 20;

/// Layouts that are tried for a track; each has fewer corners than the ones six before it, and the
/// last is a quadrangle, which always fits.
const LAYOUTS: u32 = 72;
/// Corners that a layout draws at the most, before chicanes.
const DRAWN: usize = 15;
/// Parts of a track that are more than [`NEARBY`] of lap apart keep this distance when laid out.
const CLEARANCE: f32 = 64.0;
const NEARBY: f32 = 215.0;
/// Samples of each corner when a layout is looked at.
const LOOKS: usize = 6;

/// A counter-based random number in 0..1: the same for the same (seed, step, track, index), in any
/// order and on any device.
pub(crate) fn random(seed: u32, step: u32, track: u32, index: u32) -> f32 {
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

/// The first layout of a track that keeps its parts apart. Returns its number of corners.
pub(crate) fn lay_out(seed: u32, step: u32, track: u32, corners: &mut [Corner; CORNERS]) -> u32 {
    let mut count = 0;
    for attempt in 0..LAYOUTS {
        let pick = |which: u32| random(seed, step, track, attempt * 256 + which);
        count = draw(pick, attempt, corners);
        if fits(corners, count, attempt) {
            break;
        }
    }
    count as u32
}

/// Places spread over a field, joined by a round tour without crossings, the longest edge last so
/// that a lap starts half-way along it.
fn draw(pick: impl Fn(u32) -> f32, attempt: u32, corners: &mut [Corner; CORNERS]) -> usize {
    const CANDIDATES: usize = 4;
    let size = [900.0 + 700.0 * pick(128), 480.0 + 420.0 * pick(129)];
    let wanted = DRAWN - (6.0 * pick(130)) as usize;
    let count = wanted.saturating_sub(attempt as usize / 6).max(4);
    let mut places = [[0.0_f32; 2]; CORNERS];
    for index in 0..count {
        let mut best = -1.0;
        for candidate in 0..CANDIDATES {
            let which = ((index * CANDIDATES + candidate) * 2) as u32;
            let place = [size[0] * pick(which), size[1] * pick(which + 1)];
            let mut nearest = f32::MAX;
            for other in &places[..index] {
                nearest = nearest.min(distance(place, *other));
            }
            if nearest > best {
                best = nearest;
                places[index] = place;
            }
        }
    }
    untangle(&mut places[..count]);

    let first = longest_edge(&places[..count], count) + 1;
    let sweeping = pick(131);
    for index in 0..count {
        let place = places[(first + index) % count];
        // Long sweeps on some tracks, slow corners between straights on others.
        let sweeps = pick(140 + 2 * index as u32) < 0.2 + 0.6 * sweeping;
        let full = pick(141 + 2 * index as u32);
        let full = if sweeps { 0.8 + 0.2 * full } else { 0.25 + 0.3 * full };
        corners[index] = [place[0], place[1], full];
    }
    if pick(132) < 0.6 { chicane(pick(133), corners, count) } else { count }
}

/// Reverses parts of the tour as long as that makes it shorter (2-opt); such a tour does not cross
/// itself.
fn untangle(places: &mut [Point]) {
    let n = places.len();
    let mut better = true;
    let mut sweeps = 0;
    while better && sweeps < 32 {
        better = false;
        sweeps += 1;
        for i in 0..n - 2 {
            for j in i + 2..n {
                let (a, b, c, d) = (places[i], places[i + 1], places[j], places[(j + 1) % n]);
                if distance(a, c) + distance(b, d) < distance(a, b) + distance(c, d) - 0.5 {
                    places[i + 1..=j].reverse();
                    better = true;
                }
            }
        }
    }
}

/// The longest of the first `edges` edges.
fn longest_edge(places: &[Point], edges: usize) -> usize {
    let (mut longest, mut most) = (0, 0.0);
    for index in 0..edges {
        let length = distance(places[index], places[(index + 1) % places.len()]);
        if length > most {
            most = length;
            longest = index;
        }
    }
    longest
}

/// Puts a left-right (or right-left) into the longest edge that has no start line. Returns the new
/// number of corners.
fn chicane(pick: f32, corners: &mut [Corner; CORNERS], count: usize) -> usize {
    let mut places = [[0.0_f32; 2]; CORNERS];
    for index in 0..count {
        places[index] = [corners[index][0], corners[index][1]];
    }
    let edge = longest_edge(&places[..count], count - 1);
    let (a, b) = (places[edge], places[edge + 1]);
    let length = distance(a, b);
    if length < 300.0 {
        return count;
    }
    let mut index = count;
    while index > edge + 1 {
        corners[index + 1] = corners[index - 1];
        index -= 1;
    }
    let offset = (if pick < 0.5 { -1.0 } else { 1.0 }) * (20.0 + 16.0 * pick) / length;
    let across = [-offset * (b[1] - a[1]), offset * (b[0] - a[0])];
    let gap = 42.0 / length;
    let middle = 0.35 + 0.3 * pick;
    let along = |t: f32, side: f32| {
        [
            a[0] + t * (b[0] - a[0]) + side * across[0],
            a[1] + t * (b[1] - a[1]) + side * across[1],
            0.9,
        ]
    };
    corners[edge + 1] = along(middle - gap, 1.0);
    corners[edge + 2] = along(middle + gap, -1.0);
    count + 2
}

/// Whether distant parts of the lap keep apart and the track is no blob.
fn fits(corners: &[Corner; CORNERS], count: usize, attempt: u32) -> bool {
    let mut looks = [[0.0_f32; 2]; CORNERS * LOOKS];
    let mut laps = [0.0_f32; CORNERS * LOOKS];
    let n = count * LOOKS;
    let (mut length, mut area) = (0.0, 0.0);
    for index in 0..n {
        looks[index] = spline(corners, count, index, n);
        if index > 0 {
            let (a, b) = (looks[index - 1], looks[index]);
            length += distance(a, b);
            area += a[0] * b[1] - a[1] * b[0];
        }
        laps[index] = length;
    }
    let (a, b) = (looks[n - 1], looks[0]);
    length += distance(a, b);
    area = 0.5 * (area + a[0] * b[1] - a[1] * b[0]).abs();
    // A circle has 12.6; the later the attempt, the less is asked.
    let roundest = 4.6 + 0.12 * attempt as f32;
    if area > length * length * roundest / 158.0 {
        return false;
    }
    for i in 0..n {
        for j in 0..i {
            let lap = laps[i] - laps[j];
            if lap.min(length - lap) > NEARBY && distance(looks[i], looks[j]) < CLEARANCE {
                return false;
            }
        }
    }
    true
}

/// Sample `sample` of `samples` of the periodic quadratic spline of the corners. A corner's part goes
/// from the middle of the edge before it straight, round the corner by a parabola, and straight again
/// to the middle of the edge after it, without a kink; it stays within the triangle of these three.
pub(crate) fn spline(
    corners: &[Corner; CORNERS],
    count: usize,
    sample: usize,
    samples: usize,
) -> Point {
    let corner = sample * count / samples;
    let s = 2.0 * (sample * count % samples) as f32 / samples as f32 - 1.0;
    let [ax, ay, _] = corners[(corner + count - 1) % count];
    let [x, y, full] = corners[corner];
    let [bx, by, _] = corners[(corner + 1) % count];
    let before = [0.5 * (ax - x), 0.5 * (ay - y)];
    let after = [0.5 * (bx - x), 0.5 * (by - y)];
    let (back, on) = if s < -full {
        (-s, 0.0)
    } else if s > full {
        (0.0, s)
    } else {
        let t = (s + full) / (2.0 * full);
        (full * (1.0 - t) * (1.0 - t), full * t * t)
    };
    [x + back * before[0] + on * after[0], y + back * before[1] + on * after[1]]
}

/// Sample `sample` of the smooth closed curve through points that were read, `each` samples a
/// point: cubic pieces whose slopes suit unequal distances.
pub(crate) fn through(points: &[Point], sample: usize, each: usize) -> Point {
    let (n, index) = (points.len(), sample / each);
    let t = (sample % each) as f32 / each as f32;
    let [a, b, c, d] = [n - 1, 0, 1, 2].map(|offset| points[(index + offset) % n]);
    let before = distance(a, b).max(1e-6);
    let here = distance(b, c).max(1e-6);
    let after = distance(c, d).max(1e-6);
    let u = 1.0 - t;
    let mut place = [0.0; 2];
    for axis in 0..2 {
        // Slopes by lap length at both ends, as the parabola through three points has them.
        let (p, q, r) =
            ((b[axis] - a[axis]) / before, (c[axis] - b[axis]) / here, (d[axis] - c[axis]) / after);
        let start = (p * here + q * before) / (before + here);
        let end = (q * after + r * here) / (here + after);
        place[axis] = u * u * (1.0 + 2.0 * t) * b[axis]
            + t * t * (1.0 + 2.0 * u) * c[axis]
            + here * (t * u * u * start - t * t * u * end);
    }
    place
}

pub(crate) fn distance(a: Point, b: Point) -> f32 {
    norm([b[0] - a[0], b[1] - a[1]])
}

fn norm(v: Point) -> f32 {
    (v[0] * v[0] + v[1] * v[1]).sqrt()
}

/// The length of a closed polyline.
pub(crate) fn perimeter(points: &[Point]) -> f32 {
    let mut length = 0.0;
    for index in 0..points.len() {
        length += distance(points[index], points[(index + 1) % points.len()]);
    }
    length
}

/// Points at equal distances along a closed polyline.
pub(crate) fn resample(from: &[Point], to: &mut [Point]) {
    let step = perimeter(from) / to.len() as f32;
    let (mut segment, mut passed) = (0, 0.0);
    let (mut a, mut b) = (from[0], from[1 % from.len()]);
    let mut length = distance(a, b);
    for (index, out) in to.iter_mut().enumerate() {
        let target = step * index as f32;
        while passed + length < target && segment + 1 < from.len() {
            passed += length;
            segment += 1;
            a = b;
            b = from[(segment + 1) % from.len()];
            length = distance(a, b);
        }
        let t = ((target - passed) / length.max(1e-12)).min(1.0);
        *out = [a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])];
    }
}

/// A point of a closed track, and the ones `span` before and after it.
pub(crate) fn neighbours(track: &[Point], at: usize, span: usize) -> [Point; 3] {
    let n = track.len();
    [track[(at + n - span) % n], track[at], track[(at + span) % n]]
}

/// Signed curvature of the circle through three points, 1/m; positive to the left.
pub(crate) fn curvature([a, b, c]: [Point; 3]) -> f32 {
    let (u, v) = ([b[0] - a[0], b[1] - a[1]], [c[0] - b[0], c[1] - b[1]]);
    let cross = u[0] * v[1] - u[1] * v[0];
    2.0 * cross / (norm(u) * norm(v) * distance(a, c)).max(1e-9)
}

/// The radius of the tightest turn, by the curvature at each point.
pub(crate) fn tightest(bend: &[f32]) -> f32 {
    let mut most = 1e-6_f32;
    for bend in bend {
        most = most.max(bend.abs());
    }
    1.0 / most
}

/// A step of relaxation for one point: towards the mean of the points up to `reach` away, where a
/// turn within twice that is too tight. Both weights fall off linearly, lest a step should make
/// kinks.
pub(crate) fn relaxed(
    track: &[Point],
    bend: &[f32],
    at: usize,
    radius: f32,
    reach: usize,
) -> Point {
    let n = track.len();
    let mut excess = 0.0_f32;
    let mut index = (at + n - 2 * reach) % n;
    for offset in 0..=4 * reach {
        let far = offset.abs_diff(2 * reach) as f32 / (2 * reach) as f32;
        excess = excess.max((4.0 * bend[index].abs() * radius - 3.0).min(1.0) * (1.0 - far));
        index = onward(index, n);
    }
    let here = track[at];
    if excess == 0.0 {
        return here;
    }
    let (mut sum, mut weights) = ([0.0_f32; 2], 0.0);
    let mut index = (at + n - reach) % n;
    for offset in 0..=2 * reach {
        let weight = (reach + 1 - offset.abs_diff(reach)) as f32;
        sum[0] += weight * track[index][0];
        sum[1] += weight * track[index][1];
        weights += weight;
        index = onward(index, n);
    }
    [
        here[0] + excess * (sum[0] / weights - here[0]),
        here[1] + excess * (sum[1] / weights - here[1]),
    ]
}

fn onward(index: usize, n: usize) -> usize {
    if index + 1 < n { index + 1 } else { 0 }
}

/// The edges of the asphalt beside a point, left and right.
pub(crate) fn borders([before, here, after]: [Point; 3], half_width: f32) -> [Point; 2] {
    let along = [after[0] - before[0], after[1] - before[1]];
    let scale = half_width / norm(along).max(1e-6);
    let across = [along[1] * scale, along[0] * scale];
    [[here[0] - across[0], here[1] + across[1]], [here[0] + across[0], here[1] - across[1]]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circle(count: usize, radius: f32, warp: i32) -> Vec<Point> {
        (0..count)
            .map(|i| (i as f32 / count as f32).powi(warp) * std::f32::consts::TAU)
            .map(|angle| [radius * angle.cos(), radius * angle.sin()])
            .collect()
    }

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
        let mut even = [[0.0; 2]; 200];
        resample(&circle(1000, 100.0, 2), &mut even);
        assert!((perimeter(&even) / (200.0 * std::f32::consts::PI) - 1.0).abs() < 1e-3);
        let steps: Vec<f32> = (0..200).map(|i| distance(even[i], even[(i + 1) % 200])).collect();
        assert!(steps.iter().all(|step| (step / steps[0] - 1.0).abs() < 0.01), "{steps:?}");
        let bend: Vec<f32> = (0..200).map(|at| curvature(neighbours(&even, at, 2))).collect();
        assert!((tightest(&bend) / 100.0 - 1.0).abs() < 0.05);
    }

    #[test]
    fn curvature_has_the_sign_of_the_turn() {
        assert!(curvature([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]) > 0.0);
        assert!(curvature([[0.0, 0.0], [1.0, 0.0], [1.0, -1.0]]) < 0.0);
        assert_eq!(curvature([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]), 0.0);
    }

    #[test]
    fn the_curve_through_points_of_a_circle_is_the_circle() {
        let points = circle(40, 100.0, 1);
        for sample in 0..40 * 8 {
            let radius = norm(through(&points, sample, 8));
            assert!((radius - 100.0).abs() < 0.01, "{radius}");
        }
        assert_eq!(through(&points, 24, 8), points[3]);
    }

    #[test]
    fn the_spline_of_a_square_is_smooth_and_inside_it() {
        for full in [0.3, 0.6, 1.0] {
            let mut corners = [[0.0; 3]; CORNERS];
            for (corner, [x, y]) in
                corners.iter_mut().zip([[1., 1.], [-1., 1.], [-1., -1.], [1., -1.]])
            {
                *corner = [100.0 * x, 100.0 * y, full];
            }
            let points: Vec<Point> = (0..400).map(|i| spline(&corners, 4, i, 400)).collect();
            for (at, [x, y]) in points.iter().enumerate() {
                assert!(x.abs() <= 100.0 && y.abs() <= 100.0);
                // The angle from one step to the next is small everywhere: no kinks, no jumps.
                let [a, b, c] = neighbours(&points, at, 1);
                assert!(distance(a, b) < 2.5, "{full} {at}");
                assert!(curvature([a, b, c]).abs() * distance(a, c) < 0.3, "{full} {at}");
            }
        }
    }

    #[test]
    fn relaxing_widens_a_circle_that_is_too_tight_nowhere_to_the_bit() {
        let track = circle(128, 100.0, 1);
        let bend: Vec<f32> = (0..128).map(|at| curvature(neighbours(&track, at, 1))).collect();
        for at in 0..128 {
            assert_eq!(relaxed(&track, &bend, at, 50.0, 2), track[at]);
            assert_ne!(relaxed(&track, &bend, at, 120.0, 2), track[at]);
        }
    }
}
