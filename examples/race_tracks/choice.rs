//! Which tracks of a batch are worth drawing.

use crate::geometry::Point;

/// What the eye tells tracks apart by.
const TRAITS: usize = 6;
type Traits = [f32; TRAITS];

/// Length, area for that length, share of straights, tight turns, turns to the left, and width for
/// its height.
pub(crate) fn traits(points: &[Point], bend: &[f32], length: f32) -> Traits {
    let n = points.len();
    let (mut area, mut low, mut high) = (0.0, points[0], points[0]);
    for (index, point) in points.iter().enumerate() {
        let next = points[(index + 1) % n];
        area += point[0] * next[1] - point[1] * next[0];
        for axis in 0..2 {
            low[axis] = low[axis].min(point[axis]);
            high[axis] = high[axis].max(point[axis]);
        }
    }
    let share = |picks: &dyn Fn(f32) -> bool| {
        bend.iter().filter(|bend| picks(**bend)).count() as f32 / n as f32
    };
    let way = area.signum();
    [
        length,
        area.abs() / (length * length),
        share(&|bend| bend.abs() < 1.0 / 500.0),
        share(&|bend| bend.abs() > 1.0 / 60.0),
        share(&|bend| bend * way < -1.0 / 200.0),
        (high[0] - low[0]) / (high[1] - low[1]).max(1.0),
    ]
}

/// At most `count` of the tracks, each as unlike the ones before it as can be, in order of number.
pub(crate) fn most_varied(traits: &[Traits], count: usize) -> Vec<usize> {
    let tracks = traits.len() as f32;
    let mut scale = [0.0_f32; TRAITS];
    for (axis, scale) in scale.iter_mut().enumerate() {
        let mean = traits.iter().map(|traits| traits[axis]).sum::<f32>() / tracks;
        let spread = traits.iter().map(|traits| (traits[axis] - mean).powi(2)).sum::<f32>();
        *scale = 1.0 / (spread / tracks).sqrt().max(1e-6);
    }
    let apart = |a: &Traits, b: &Traits| -> f32 {
        (0..TRAITS).map(|axis| ((a[axis] - b[axis]) * scale[axis]).powi(2)).sum()
    };
    let mut nearest = vec![f32::MAX; traits.len()];
    let mut chosen = Vec::new();
    let mut next = 0;
    while chosen.len() < count.min(traits.len()) {
        chosen.push(next);
        nearest[next] = -1.0;
        for (nearest, other) in nearest.iter_mut().zip(traits) {
            *nearest = nearest.min(apart(&traits[next], other));
        }
        next = (0..traits.len()).max_by(|&a, &b| nearest[a].total_cmp(&nearest[b])).unwrap_or(0);
    }
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_odd_ones_are_chosen_and_none_twice() {
        let mut all = vec![[1.0; TRAITS]; 20];
        all[7][2] = 9.0;
        all[13][5] = -4.0;
        assert_eq!(most_varied(&all, 3), [0, 7, 13]);
        assert_eq!(most_varied(&all, 50), (0..20).collect::<Vec<_>>());
    }
}
