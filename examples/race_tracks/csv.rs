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
    let mut last_line = 0;
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
        points.push([x, y]);
        last_line = number;
    }
    let at_end = |what: String| CsvError { path: path.into(), line: Some(last_line.max(1)), what };
    if points.len() > 1 && points.first() == points.last() {
        points.pop();
    }
    if points.len() < 8 {
        return Err(at_end(format!("has {} points; a circuit needs at least 8", points.len())));
    }
    let gap = |index: usize| {
        let ([ax, ay], [bx, by]) = (points[index], points[(index + 1) % points.len()]);
        (bx - ax).hypot(by - ay)
    };
    let closing = gap(points.len() - 1);
    let mut gaps: Vec<f64> = (0..points.len() - 1).map(gap).collect();
    let length = gaps.iter().sum::<f64>() + closing;
    gaps.sort_by(f64::total_cmp);
    let usual = gaps[gaps.len() / 2];
    if closing > 20.0 * usual {
        return Err(at_end(format!(
            "the curve is open: {closing:.0} m from the last point to the first, where points are \
             {usual:.1} m apart"
        )));
    }
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
