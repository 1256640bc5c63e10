//! A gallery of tracks as an SVG.

use std::fmt::Write;

use crate::geometry::Point;

/// One track to draw.
pub(crate) struct Drawn {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    /// Of a lap, m.
    pub(crate) length: f32,
    pub(crate) left: Vec<Point>,
    pub(crate) right: Vec<Point>,
    /// Signed curvature, 1/m; positive to the left.
    pub(crate) bend: Vec<f32>,
}

/// The page around the tracks.
pub(crate) struct Page {
    pub(crate) heading: &'static str,
    pub(crate) note: String,
    pub(crate) columns: usize,
    /// Width and height of the picture of a track.
    pub(crate) card: [f32; 2],
}

const GAP: f32 = 20.0;
const MARGIN: f32 = 44.0;
const HEAD: f32 = 82.0;
/// Height of the caption under a track.
const CAPTION: f32 = 46.0;
/// Turns tighter than this get curbs, and tighter than half of it gravel, m.
const CURB_RADIUS: f32 = 110.0;

const PAPER: &str = "#f4f0e7";
const INK: &str = "#23272b";
const FAINT: &str = "#857f72";
const GRASS: [&str; 5] = ["#86a36c", "#7c9c70", "#93a86f", "#7a9a7b", "#9aa873"];
/// From slow to fast.
const SPEEDS: [&str; 6] = ["#ef476f", "#f78c4a", "#ffd166", "#b5d96b", "#4ecbb0", "#3fa7d6"];

impl Page {
    /// Draws the tracks, row by row.
    pub(crate) fn draw(&self, tracks: &[Drawn]) -> String {
        let columns = self.columns.clamp(1, tracks.len().max(1));
        let rows = tracks.len().div_ceil(columns);
        let [card_width, card_height] = [self.card[0], self.card[1] + CAPTION];
        let width = 2.0 * MARGIN + columns as f32 * (card_width + GAP) - GAP;
        let height = MARGIN + HEAD + rows as f32 * (card_height + GAP) - GAP + MARGIN;
        let mut svg = String::new();
        let _ = writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\" \
             font-family=\"Avenir Next, Helvetica Neue, Helvetica, Arial, sans-serif\">\n\
             <style>path{{fill:none;stroke-linejoin:round}}.k{{stroke:#d8392f}}\
             .g{{stroke:#dccb98;stroke-linecap:round}}.w{{stroke:#fbfaf6}}.a{{stroke:#3a3e44}}\
             .d{{font-size:12px;fill:{FAINT};text-anchor:end}}\
             .t{{font-size:14px;font-weight:600;fill:{INK}}}</style>\n\
             <defs><pattern id=\"mown\" width=\"44\" height=\"44\" \
             patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(24)\">\
             <rect width=\"22\" height=\"44\" fill=\"#fff\" fill-opacity=\".06\"/></pattern></defs>\n\
             <rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"{PAPER}\"/>\n\
             <text x=\"{MARGIN}\" y=\"{:.0}\" font-size=\"34\" font-weight=\"700\" \
             fill=\"{INK}\">{}</text>\n\
             <text x=\"{MARGIN}\" y=\"{:.0}\" font-size=\"15\" fill=\"{FAINT}\">{}</text>",
            MARGIN + 28.0,
            escaped(self.heading),
            MARGIN + 54.0,
            escaped(&self.note),
        );
        legend(&mut svg, width - MARGIN, MARGIN + 49.0);
        for (index, track) in tracks.iter().enumerate() {
            let x = MARGIN + (index % columns) as f32 * (card_width + GAP);
            let y = MARGIN + HEAD + (index / columns) as f32 * (card_height + GAP);
            let _ = writeln!(svg, "<g transform=\"translate({x:.0} {y:.0})\">");
            self.track(&mut svg, index, track);
            svg.push_str("</g>\n");
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn track(&self, svg: &mut String, index: usize, track: &Drawn) {
        let [width, height] = self.card;
        let whole = height + CAPTION;
        let grass = GRASS[index * 7 % 11 % GRASS.len()];
        let _ = writeln!(
            svg,
            "<rect width=\"{width}\" height=\"{whole}\" rx=\"14\" fill=\"#fdfcf8\"/>\
             <path d=\"M0 {height}V14a14 14 0 0 1 14-14H{0}a14 14 0 0 1 14 14V{height}z\" \
             style=\"fill:{grass}\"/>\
             <path d=\"M0 {height}V14a14 14 0 0 1 14-14H{0}a14 14 0 0 1 14 14V{height}z\" \
             style=\"fill:url(#mown)\"/>",
            width - 14.0,
        );
        let road = Road::placed(track, self.card);
        let speeds = speeds(&track.bend, track.length);
        road.draw(svg, &track.bend, &speeds);
        let _ = writeln!(
            svg,
            "<text class=\"t\" x=\"16\" y=\"{0:.0}\">{1}</text>\
             <text class=\"d\" x=\"{2:.0}\" y=\"{0:.0}\">{3}</text>",
            height + 22.0,
            escaped(&track.title),
            width - 16.0,
            escaped(&track.subtitle),
        );
        lap(svg, &speeds, 16.0, height + 32.0, width - 32.0);
    }
}

/// What the colours mean; it ends at `x`.
fn legend(svg: &mut String, x: f32, y: f32) {
    const STEP: f32 = 20.0;
    let from = x - 32.0 - STEP * SPEEDS.len() as f32;
    let _ = write!(
        svg,
        "<text class=\"d\" x=\"{:.0}\" y=\"{y:.0}\">slow</text>\
         <text class=\"d\" x=\"{x:.0}\" y=\"{y:.0}\">fast</text>",
        from - 8.0
    );
    for (index, colour) in SPEEDS.iter().enumerate() {
        let _ = write!(
            svg,
            "<rect x=\"{:.0}\" y=\"{:.0}\" width=\"{STEP}\" height=\"6\" fill=\"{colour}\"/>",
            from + index as f32 * STEP,
            y - 7.0
        );
    }
    svg.push('\n');
}

/// The colours of one lap, from the start line on.
fn lap(svg: &mut String, speeds: &[usize], x: f32, y: f32, width: f32) {
    let step = width / speeds.len() as f32;
    for (from, to, speed) in runs(speeds) {
        let _ = write!(
            svg,
            "<rect x=\"{:.1}\" y=\"{y:.0}\" width=\"{:.1}\" height=\"4\" fill=\"{}\"/>",
            x + step * from as f32,
            step * (to - from) as f32,
            SPEEDS[speed],
        );
    }
    svg.push('\n');
}

/// The speed at each point, as an index of [`SPEEDS`]: what grip allows in the turns, and engine and
/// brakes between them.
fn speeds(bend: &[f32], length: f32) -> Vec<usize> {
    const GRIP: f32 = 17.0;
    const ENGINE: f32 = 5.0;
    const BRAKES: f32 = 13.0;
    const TOP: f32 = 90.0;
    let n = bend.len();
    let step = length / n as f32;
    // Squares of speeds, m2/s2. Twice round, since the lap is closed.
    let mut squares: Vec<f32> =
        bend.iter().map(|bend| (GRIP / bend.abs().max(1e-6)).min(TOP * TOP)).collect();
    for index in 0..2 * n {
        let (here, next) = (index % n, (index + 1) % n);
        squares[next] = squares[next].min(squares[here] + 2.0 * ENGINE * step);
    }
    for index in (0..2 * n).rev() {
        let (here, next) = (index % n, (index + 1) % n);
        squares[here] = squares[here].min(squares[next] + 2.0 * BRAKES * step);
    }
    let (slowest, fastest) = (22.0, 72.0);
    let colour = |square: &f32| {
        let part = (square.sqrt() - slowest) / (fastest - slowest);
        ((part.max(0.0) * SPEEDS.len() as f32) as usize).min(SPEEDS.len() - 1)
    };
    squares.iter().map(colour).collect()
}

/// Runs of equal speeds, as (first, one past the last, speed).
fn runs(speeds: &[usize]) -> Vec<(usize, usize, usize)> {
    let mut runs: Vec<(usize, usize, usize)> = Vec::new();
    for (index, &speed) in speeds.iter().enumerate() {
        match runs.last_mut() {
            Some((_, to, last)) if *last == speed => *to = index + 1,
            _ => runs.push((index, index + 1, speed)),
        }
    }
    runs
}

/// Runs of points in turns tighter than `radius` to one side, as (first, last).
fn turns(bend: &[f32], radius: f32) -> Vec<(usize, usize)> {
    let n = bend.len();
    let tight = |index: usize| bend[index % n].abs() * radius > 1.0;
    let same = |a: usize, b: usize| (bend[a % n] > 0.0) == (bend[b % n] > 0.0);
    let Some(start) = (0..n).find(|&index| !tight(index)) else { return Vec::new() };
    let mut turns = Vec::new();
    let mut index = start;
    while index < start + n {
        if tight(index) {
            let first = index;
            while index + 1 < start + n && tight(index + 1) && same(first, index + 1) {
                index += 1;
            }
            if index > first {
                turns.push((first, index));
            }
        }
        index += 1;
    }
    turns
}

/// A track on its card, in tenths of a unit of the page.
struct Road {
    middle: Vec<Point>,
    /// To the left, of length 1.
    across: Vec<Point>,
    width: f32,
}

impl Road {
    fn placed(track: &Drawn, card: [f32; 2]) -> Self {
        // More points than this are not to be seen.
        let ends = track.left.iter().zip(&track.right);
        let metres: Vec<Point> =
            ends.clone().map(|(a, b)| [0.5 * (a[0] + b[0]), 0.5 * (a[1] + b[1])]).collect();
        let (mut low, mut high) = ([f32::MAX; 2], [f32::MIN; 2]);
        for point in &metres {
            for axis in 0..2 {
                low[axis] = low[axis].min(point[axis]);
                high[axis] = high[axis].max(point[axis]);
            }
        }
        const MARGIN: f32 = 24.0;
        let fit =
            |axis: usize| 10.0 * (card[axis] - 2.0 * MARGIN) / (high[axis] - low[axis]).max(1.0);
        let scale = fit(0).min(fit(1));
        let place = |point: &Point| {
            [
                5.0 * card[0] + scale * (point[0] - 0.5 * (low[0] + high[0])),
                5.0 * card[1] - scale * (point[1] - 0.5 * (low[1] + high[1])),
            ]
        };
        let middle: Vec<Point> = metres.iter().map(place).collect();
        let across = ends
            .map(|(left, right)| {
                let (a, b) = (place(left), place(right));
                let length = (a[0] - b[0]).hypot(a[1] - b[1]).max(1e-3);
                [(a[0] - b[0]) / length, (a[1] - b[1]) / length]
            })
            .collect();
        // Wider than to scale, as maps draw roads, but no wider than the room between two parts.
        let width = (0.5 * room(&middle)).clamp(18.0, 80.0);
        Self { middle, across, width }
    }

    fn draw(&self, svg: &mut String, bend: &[f32], speeds: &[usize]) {
        let width = self.width;
        svg.push_str("<g transform=\"scale(.1)\">\n");
        for (from, to) in turns(bend, 0.5 * CURB_RADIUS) {
            let outside = if bend[from % bend.len()] > 0.0 { -1.0 } else { 1.0 };
            let gravel = self.path(from, to, outside * 0.75 * width);
            stroke(svg, "g", &gravel, 1.5 * width, "");
        }
        let lap = self.path(0, self.middle.len() - 1, 0.0) + "z";
        stroke(svg, "w", &lap, 1.24 * width, "");
        for (from, to) in turns(bend, CURB_RADIUS) {
            let curb = self.path(from, to, 0.0);
            stroke(svg, "w", &curb, 1.56 * width, "");
            let dash = format!(" stroke-dasharray=\"{0:.0} {0:.0}\"", 0.45 * width);
            stroke(svg, "k", &curb, 1.56 * width, &dash);
        }
        stroke(svg, "a", &lap, width, "");
        for (from, to, speed) in runs(speeds) {
            let line = self.path(from, to, 0.0);
            let colour = format!(" stroke=\"{}\"", SPEEDS[speed]);
            stroke(svg, "", &line, (0.22 * width).max(9.0), &colour);
        }
        self.start(svg);
        svg.push_str("</g>\n");
    }

    /// A chequered line across the start, and an arrow beside it.
    fn start(&self, svg: &mut String) {
        let [dx, dy] = self.across[0];
        let ahead = [-dy, dx];
        let place = |along: f32, aside: f32| {
            let at = [0, 1].map(|axis| self.middle[0][axis] + along * ahead[axis]);
            format!("{:.0} {:.0}", at[0] + aside * dx, at[1] + aside * dy)
        };
        let (half, row) = (0.8 * self.width, 0.2 * self.width);
        let line = |along: f32| format!("M{}L{}", place(along, -half), place(along, half));
        stroke(svg, "w", &line(0.0), 2.0 * row, "");
        for (along, offset) in [(-0.5 * row, 0.0), (0.5 * row, row)] {
            let dash = format!(
                " stroke=\"{INK}\" stroke-dasharray=\"{row:.1} {row:.1}\" \
                 stroke-dashoffset=\"{offset:.1}\""
            );
            stroke(svg, "", &line(along), row, &dash);
        }
        let beside = -62.0 - 0.6 * self.width;
        let _ = writeln!(
            svg,
            "<path d=\"M{}L{}L{}L{}z\" style=\"fill:#fff\"/>",
            place(-45.0, beside - 32.0),
            place(55.0, beside),
            place(-45.0, beside + 32.0),
            place(-22.0, beside)
        );
    }

    /// From point `from` to point `to`, `aside` to the left, in whole tenths.
    fn path(&self, from: usize, to: usize, aside: f32) -> String {
        let n = self.middle.len();
        // More points than this cannot be told apart.
        let step = (n / 320).max(1);
        let mut path = String::new();
        let mut last = [0_i32; 2];
        let mut index = from;
        loop {
            let (point, across) = (self.middle[index % n], self.across[index % n]);
            let at = [0, 1].map(|axis| (point[axis] + aside * across[axis]).round() as i32);
            if index == from {
                let _ = write!(path, "M{} {}l", at[0], at[1]);
            } else {
                let [dx, dy] = [at[0] - last[0], at[1] - last[1]];
                let blank = if path.ends_with('l') || dx < 0 { "" } else { " " };
                let _ = write!(path, "{blank}{dx}{}{dy}", if dy < 0 { "" } else { " " });
            }
            last = at;
            if index == to {
                return path;
            }
            index = (index + step).min(to);
        }
    }
}

/// The least distance between parts of a closed curve that are not near each other along it.
fn room(points: &[Point]) -> f32 {
    let step = (points.len() / 256).max(1);
    let points: Vec<&Point> = points.iter().step_by(step).collect();
    let n = points.len();
    let apart = n / 10;
    let mut least = f32::MAX;
    for i in 0..n {
        for j in i + apart..(n + i).saturating_sub(apart).min(n) {
            least = least.min((points[j][0] - points[i][0]).hypot(points[j][1] - points[i][1]));
        }
    }
    least
}

fn stroke(svg: &mut String, class: &str, path: &str, width: f32, more: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let _ = writeln!(svg, "<path{class} d=\"{path}\" stroke-width=\"{width:.0}\"{more}/>");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
