//! A gallery of tracks as an SVG.

use std::fmt::Write;

use crate::geometry::Point;

/// One track to draw.
pub(crate) struct Drawn {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) left: Vec<Point>,
    pub(crate) right: Vec<Point>,
    /// Signed curvature, 1/m.
    pub(crate) bend: Vec<f32>,
}

const CARD: [f32; 2] = [260.0, 190.0];
const GAP: f32 = 18.0;
const MARGIN: f32 = 36.0;
const HEAD: f32 = 74.0;
/// Turns tighter than this get curbs, m.
const CURB_RADIUS: f32 = 70.0;

/// Draws the tracks in `columns` columns under a heading.
pub(crate) fn gallery(heading: &str, note: &str, tracks: &[Drawn], columns: usize) -> String {
    let columns = columns.clamp(1, tracks.len().max(1));
    let rows = tracks.len().div_ceil(columns);
    let width = 2.0 * MARGIN + columns as f32 * (CARD[0] + GAP) - GAP;
    let height = MARGIN + HEAD + rows as f32 * (CARD[1] + GAP) - GAP + MARGIN;
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"Helvetica, Arial, sans-serif\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#e9e4d8\"/>\n\
         <text x=\"{MARGIN}\" y=\"{:.0}\" font-size=\"30\" font-weight=\"700\" fill=\"#2d3136\">{}\
         </text>\n<text x=\"{MARGIN}\" y=\"{:.0}\" font-size=\"14\" fill=\"#7b776c\">{}</text>\n",
        MARGIN + 28.0,
        escaped(heading),
        MARGIN + 52.0,
        escaped(note),
    );
    for (index, track) in tracks.iter().enumerate() {
        let x = MARGIN + (index % columns) as f32 * (CARD[0] + GAP);
        let y = MARGIN + HEAD + (index / columns) as f32 * (CARD[1] + GAP);
        card(&mut svg, track, x, y);
    }
    svg.push_str("</svg>\n");
    svg
}

fn card(svg: &mut String, track: &Drawn, x: f32, y: f32) {
    let [width, height] = CARD;
    let _ = writeln!(
        svg,
        "<g transform=\"translate({x:.1} {y:.1})\">\
         <rect width=\"{width}\" height=\"{height}\" rx=\"12\" fill=\"#7f9d62\"/>"
    );
    let frame = Frame::around(&track.left, &track.right, [width, height - 34.0], 18.0);
    let left: Vec<Point> = track.left.iter().map(|&point| frame.place(point)).collect();
    let right: Vec<Point> = track.right.iter().map(|&point| frame.place(point)).collect();
    let middle: Vec<Point> =
        left.iter().zip(&right).map(|(a, b)| [0.5 * (a[0] + b[0]), 0.5 * (a[1] + b[1])]).collect();
    // Wider than to scale, as maps draw roads: run-off, curbs under the edges, white lines, asphalt.
    let line = closed(&middle);
    stroke(svg, &line, "#d3c391", 11.0, "");
    for (from, to) in curbs(&track.bend) {
        let turn = open(&middle, from, to);
        stroke(svg, &turn, "#f7f4ee", 8.4, "");
        stroke(svg, &turn, "#d23c33", 8.4, "2.6 2.6");
    }
    stroke(svg, &line, "#f7f4ee", 6.6, "");
    stroke(svg, &line, "#3b3f45", 5.4, "");
    if let (Some([ax, ay]), Some([bx, by]), Some([x, y])) =
        (left.first(), right.first(), middle.first())
    {
        let across = 3.4 / (bx - ax).hypot(by - ay).max(1e-3);
        let (dx, dy) = (across * (bx - ax), across * (by - ay));
        let start = format!("M{:.1} {:.1}L{:.1} {:.1}", x - dx, y - dy, x + dx, y + dy);
        stroke(svg, &start, "#ffffff", 2.6, "");
        stroke(svg, &start, "#16181b", 2.6, "1.4 1.4");
    }
    let _ = write!(
        svg,
        "<path d=\"M0 {:.0}H{width}V{:.0}a12 12 0 0 1-12 12H12a12 12 0 0 1-12-12z\" \
         fill=\"#fbf9f3\"/>\n\
         <text x=\"14\" y=\"{:.0}\" font-size=\"13\" font-weight=\"600\" fill=\"#2d3136\">{}</text>\n\
         <text x=\"{:.0}\" y=\"{:.0}\" font-size=\"11.5\" fill=\"#7b776c\" text-anchor=\"end\">{}\
         </text></g>\n",
        height - 30.0,
        height - 12.0,
        height - 11.0,
        escaped(&track.title),
        width - 14.0,
        height - 11.0,
        escaped(&track.subtitle),
    );
}

fn stroke(svg: &mut String, path: &str, colour: &str, width: f32, dashes: &str) {
    let _ = write!(
        svg,
        "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\""
    );
    let _ = match dashes {
        "" => writeln!(svg, " stroke-linejoin=\"round\"/>"),
        dashes => writeln!(svg, " stroke-dasharray=\"{dashes}\"/>"),
    };
}

/// Runs of points in tight turns, as (first, last).
fn curbs(bend: &[f32]) -> Vec<(usize, usize)> {
    let n = bend.len();
    let tight = |index: usize| bend[index % n].abs() * CURB_RADIUS > 1.0;
    let same = |a: usize, b: usize| bend[a % n].signum() == bend[b % n].signum();
    let Some(start) = (0..n).find(|&index| !tight(index)) else { return Vec::new() };
    let mut runs = Vec::new();
    let mut index = start;
    while index < start + n {
        if tight(index) {
            let first = index;
            while index + 1 < start + n && tight(index + 1) && same(first, index + 1) {
                index += 1;
            }
            if index > first {
                runs.push((first, index));
            }
        }
        index += 1;
    }
    runs
}

/// From metres to a card, upright and centred.
struct Frame {
    scale: f32,
    middle: Point,
    centre: Point,
}

impl Frame {
    fn around(left: &[Point], right: &[Point], size: [f32; 2], margin: f32) -> Self {
        let mut low = [f32::MAX; 2];
        let mut high = [f32::MIN; 2];
        for point in left.iter().chain(right) {
            for axis in 0..2 {
                low[axis] = low[axis].min(point[axis]);
                high[axis] = high[axis].max(point[axis]);
            }
        }
        let fit = |axis: usize| (size[axis] - 2.0 * margin) / (high[axis] - low[axis]).max(1.0);
        Self {
            scale: fit(0).min(fit(1)),
            middle: [0, 1].map(|axis| 0.5 * (low[axis] + high[axis])),
            centre: [0.5 * size[0], 0.5 * size[1]],
        }
    }

    fn place(&self, [x, y]: Point) -> Point {
        [
            self.centre[0] + self.scale * (x - self.middle[0]),
            self.centre[1] - self.scale * (y - self.middle[1]),
        ]
    }
}

fn closed(points: &[Point]) -> String {
    // Every second point is enough at this size.
    let step = (points.len() / 160).max(1);
    let mut path = String::new();
    for (index, [x, y]) in points.iter().step_by(step).enumerate() {
        let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
    }
    path.push('Z');
    path
}

fn open(points: &[Point], from: usize, to: usize) -> String {
    let mut path = String::new();
    for index in from..=to {
        let [x, y] = points[index % points.len()];
        let _ = write!(path, "{}{x:.1} {y:.1}", if index == from { 'M' } else { 'L' });
    }
    path
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
