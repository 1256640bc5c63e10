//! Centre lines from files: `x_m, y_m, w_tr_right_m, w_tr_left_m`, one header line that begins with
//! `#`, closed curves whose first point is not repeated.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::geometry::Point;

/// A circuit as it was read.
#[derive(Debug)]
pub(crate) struct CenterLine {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
    /// Length of the closed polyline, m, in double precision.
    pub(crate) length: f64,
}

/// What is wrong with a file, and where.
#[derive(Debug)]
pub(crate) struct CsvError {
    path: PathBuf,
    line: Option<usize>,
    what: String,
}

impl fmt::Display for CsvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for CsvError {}

/// Points of a circuit at the most.
const MOST_POINTS: usize = 65_536;
/// A gap so many times as wide as the usual one means that the curve is open there.
const OPEN: f64 = 20.0;

/// Reads every file, and every `.csv` of every directory, in order of name.
pub(crate) fn read_all(paths: &[PathBuf]) -> Result<Vec<CenterLine>, CsvError> {
    let mut lines = Vec::new();
    for path in paths {
        if path.is_dir() {
            let failed = |error: std::io::Error| whole(path, error.to_string());
            let mut files = std::fs::read_dir(path)
                .map_err(failed)?
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<Result<Vec<_>, _>>()
                .map_err(failed)?;
            files.retain(|file| file.extension().is_some_and(|ending| ending == "csv"));
            if files.is_empty() {
                return Err(whole(path, "has no .csv file"));
            }
            files.sort();
            for file in files {
                lines.push(read(&file)?);
            }
        } else {
            lines.push(read(path)?);
        }
    }
    Ok(lines)
}

fn read(path: &Path) -> Result<CenterLine, CsvError> {
    let text = std::fs::read_to_string(path).map_err(|error| whole(path, error.to_string()))?;
    let mut points: Vec<[f64; 2]> = Vec::new();
    let mut numbers = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let (number, line) = (number + 1, line.trim());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = |what: String| CsvError { path: path.into(), line: Some(number), what };
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        if fields.len() != 4 {
            return Err(at(format!(
                "needs 4 columns (x_m, y_m, w_tr_right_m, w_tr_left_m) and has {}",
                fields.len()
            )));
        }
        let mut values = [0.0_f64; 4];
        for (value, field) in values.iter_mut().zip(&fields) {
            *value = field.parse().map_err(|_| at(format!("`{field}` is not a number")))?;
            if !value.is_finite() || value.abs() > 1e6 {
                return Err(at(format!("`{field}` is not a length in metres")));
            }
        }
        let [x, y, right, left] = values;
        if right < 0.0 || left < 0.0 {
            return Err(at("a width is negative".into()));
        }
        if points.last() == Some(&[x, y]) {
            return Err(at("repeats the point before it".into()));
        }
        if points.len() == MOST_POINTS {
            return Err(at(format!("has more than {MOST_POINTS} points")));
        }
        points.push([x, y]);
        numbers.push(number);
    }
    let last_line = numbers.last().copied().unwrap_or(1);
    let at_line =
        |line: usize, what: String| CsvError { path: path.into(), line: Some(line), what };
    if points.len() > 1 && points.first() == points.last() {
        points.pop();
    }
    if points.len() < 8 {
        let what = format!("has {} points; a circuit needs at least 8", points.len());
        return Err(at_line(last_line, what));
    }
    let gaps: Vec<f64> = (0..points.len())
        .map(|index| {
            let ([ax, ay], [bx, by]) = (points[index], points[(index + 1) % points.len()]);
            (bx - ax).hypot(by - ay)
        })
        .collect();
    let mut sorted = gaps.clone();
    sorted.sort_by(f64::total_cmp);
    let usual = sorted[sorted.len() / 2];
    if let Some(index) = gaps.iter().position(|&gap| gap > OPEN * usual) {
        let (line, between) = match numbers.get(index + 1).filter(|_| index + 1 < points.len()) {
            Some(&line) => (line, "from the point before it"),
            None => (last_line, "from the last point to the first"),
        };
        let what = format!(
            "the curve is open: {:.0} m {between}, where points are {usual:.1} m apart",
            gaps[index]
        );
        return Err(at_line(line, what));
    }
    let length = gaps.iter().sum();
    // Around the middle, so that single precision on the device costs nothing.
    let count = points.len() as f64;
    let middle = [0, 1].map(|axis| points.iter().map(|point| point[axis]).sum::<f64>() / count);
    let points = points
        .iter()
        .map(|point| [(point[0] - middle[0]) as f32, (point[1] - middle[1]) as f32])
        .collect();
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(CenterLine { name, points, length })
}

fn whole(path: &Path, what: impl Into<String>) -> CsvError {
    CsvError { path: path.into(), line: None, what: what.into() }
}
