//! Generates a batch of closed race tracks on a device, or smooths real circuits.
//!
//! ```text
//! cargo run --release --example race_tracks
//! cargo run --release --features simulate --example race_tracks -- --device simulated
//! cargo run --release --example race_tracks -- --centerlines FILE_OR_DIR...
//! ```
//!
//! One body (`producers.rs`) runs on every device: eagerly on the host, captured once and replayed
//! on CUDA and on the simulated device. The last line of the output is for machines.

mod csv;
mod geometry;
mod kernels;
mod producers;
mod svg;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use graph_runner::{Device, GraphRunner, Mode};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use producers::{Batch, CIRCUIT_RADIUS, Circuit, MAX_ITERATIONS, RaceTracks, TRACK_RADIUS};
use svg::Drawn;

/// Generates race tracks on a device.
#[derive(Parser, Debug)]
#[command(version, about)]
struct Options {
    /// Where to run: the best device of this machine, or a certain one.
    #[arg(long, value_enum, default_value_t = Where::Auto)]
    device: Where,
    /// Tracks in a batch.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    tracks: u32,
    /// Points of each track.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(32..=65_536))]
    points: u32,
    /// Equal seeds make equal tracks.
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// Batches to make, one after the other.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// The gallery to draw; `race_tracks.svg` unless circuits are read.
    #[arg(long, value_name = "FILE.svg")]
    out: Option<PathBuf>,
    /// Smooth these circuits (CSV files, or directories of them) instead of making up tracks.
    #[arg(long, value_name = "FILE_OR_DIR", num_args = 1..)]
    centerlines: Vec<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum, Debug)]
enum Where {
    Auto,
    Host,
    Simulated,
    Cuda,
}

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    let points = u64::from(options.tracks) * u64::from(options.points);
    if points > 1 << 26 {
        return Err(format!(
            "{} tracks of {} points are {points} points; at most {} fit in one batch",
            options.tracks,
            options.points,
            1 << 26
        )
        .into());
    }
    if options.centerlines.is_empty() { generate(options) } else { smooth(options) }
}

fn device(options: &Options) -> Result<Device, Failure> {
    match options.device {
        Where::Auto => Ok(Device::best()),
        Where::Host => Ok(Device::host()),
        #[cfg(feature = "simulate")]
        Where::Simulated => Ok(Device::simulated(u64::from(options.seed))),
        #[cfg(not(feature = "simulate"))]
        Where::Simulated => Err("this was built without the simulated device; run it with \
            `cargo run --release --features simulate --example race_tracks -- --device simulated`"
            .into()),
        #[cfg(feature = "cuda")]
        Where::Cuda => Ok(Device::cuda(0)?),
        #[cfg(not(feature = "cuda"))]
        Where::Cuda => Err("this was built without CUDA; build it with the feature `cuda`".into()),
    }
}

fn generate(options: &Options) -> Result<(), Failure> {
    let device = device(options)?;
    let (tracks, n) = (options.tracks as usize, options.points as usize);
    let mut runner = GraphRunner::new(&device, RaceTracks::new(&device, tracks, n, options.seed)?)?;
    let progress = progress(u64::from(options.steps) + 1, "batches");
    runner.prepare()?;
    progress.inc(1);
    // The preparing run was the first batch: begin again, so that steps count from there.
    runner.producer().restart(&device, options.seed)?;
    let began = Instant::now();
    let mut mode = Mode::Eager;
    for _ in 0..options.steps {
        mode = runner.call().sync(progress.length() > Some(2)).run()?.mode;
        progress.inc(1);
    }
    let batch = &runner.producer().batch;
    let done = runner.read(&batch.done)?;
    let seconds = began.elapsed().as_secs_f64();
    progress.finish_and_clear();

    let converged: u32 = done.iter().sum();
    let iterations = runner.read(&batch.iterations)?;
    let lengths = runner.read(&batch.lengths)?;
    let average = lengths.iter().map(|[length, _]| f64::from(*length)).sum::<f64>() / tracks as f64;
    println!(
        "{tracks} tracks on {}: {:.1} km on average, tightest turns widened to {TRACK_RADIUS} m in \
         {} steps at the most",
        device.name(),
        average / 1000.0,
        // One that never was wide enough failed once more, after its last step.
        iterations.iter().max().unwrap_or(&0).min(&MAX_ITERATIONS),
    );

    let shown = interesting(&lengths, &done);
    let all: Vec<Drawn> = drawn(&runner, batch, &shown, |index| {
        (format!("No. {}", index + 1), length_and_radius(lengths[index]))
    })?;
    let note = format!(
        "seed {} · batch {} · {tracks} tracks, {} shown",
        options.seed,
        options.steps,
        shown.len()
    );
    let out = options.out.clone().unwrap_or_else(|| "race_tracks.svg".into());
    write(&out, &svg::gallery("Race tracks", &note, &all, 6))?;
    println!("wrote {}", out.display());
    println!(
        "race_tracks device={} mode={mode} tracks={tracks} points={n} converged={converged} \
         steps={} seconds={seconds:.2}",
        device.kind(),
        options.steps,
    );
    Ok(())
}

fn smooth(options: &Options) -> Result<(), Failure> {
    let lines = csv::read_all(&options.centerlines)?;
    let device = device(options)?;
    let progress = progress(lines.len() as u64, "circuits");
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    let (mut converged, mut most, mut mode) = (0, 0, Mode::Eager);
    let began = Instant::now();
    for line in &lines {
        let n = (options.points as usize).max(line.points.len());
        let mut runner = GraphRunner::new(&device, Circuit::new(&device, &line.points, line.length, n)?)?;
        runner.prepare()?;
        mode = runner.call().sync(true).run()?.mode;
        let batch = &runner.producer().batch;
        let [length, radius] = runner.read(&batch.lengths)?[0];
        let iterations = runner.read(&batch.iterations)?[0];
        let off = 100.0 * (f64::from(length) / line.length - 1.0);
        converged += runner.read(&batch.done)?[0];
        most = most.max(n);
        rows.push(format!(
            "{:<16} {length:>8.1} m ({off:+.2} % of its polyline)  tightest radius {radius:>5.1} m  \
             {iterations:>3} iterations",
            line.name
        ));
        all.extend(drawn(&runner, batch, &[0], |_| {
            (line.name.clone(), length_and_radius([length, radius]))
        })?);
        progress.inc(1);
    }
    let seconds = began.elapsed().as_secs_f64();
    progress.finish_and_clear();
    for row in &rows {
        println!("{row}");
    }
    if let Some(out) = &options.out {
        let note = format!("smoothed and resampled; turns no tighter than {CIRCUIT_RADIUS} m");
        write(out, &svg::gallery("Circuits", &note, &all, 3))?;
        println!("wrote {}", out.display());
    }
    println!(
        "race_tracks device={} mode={mode} tracks={} points={most} converged={converged} steps=1 \
         seconds={seconds:.2}",
        device.kind(),
        lines.len(),
    );
    Ok(())
}

fn length_and_radius([length, radius]: [f32; 2]) -> String {
    format!("{:.2} km · R {radius:.0} m", length / 1000.0)
}

/// Up to 36 tracks for the gallery, from the longer half, in order of number.
fn interesting(lengths: &[[f32; 2]], done: &[u32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..lengths.len()).filter(|&index| done[index] == 1).collect();
    if order.is_empty() {
        order = (0..lengths.len()).collect();
    }
    order.sort_by(|&a, &b| lengths[b][0].total_cmp(&lengths[a][0]));
    let kept = order.len().div_ceil(2).max(36).min(order.len());
    let mut shown: Vec<usize> =
        (0..kept.min(36)).map(|index| order[index * kept / kept.min(36)]).collect();
    shown.sort_unstable();
    shown
}

fn drawn<P: graph_runner::Producer>(
    runner: &GraphRunner<P>,
    batch: &Batch,
    shown: &[usize],
    caption: impl Fn(usize) -> (String, String),
) -> Result<Vec<Drawn>, graph_runner::Error> {
    shown
        .iter()
        .map(|&index| {
            let range = index * batch.n..(index + 1) * batch.n;
            let (title, subtitle) = caption(index);
            Ok(Drawn {
                title,
                subtitle,
                left: runner.read(&batch.left.slice(range.clone())?)?,
                right: runner.read(&batch.right.slice(range.clone())?)?,
                bend: runner.read(&batch.bend.slice(range)?)?,
            })
        })
        .collect()
}

/// A bar on the error stream, if that is a terminal.
fn progress(steps: u64, what: &'static str) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() && steps > 2 {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(steps), target).with_style(style).with_message(what)
}

/// Writes the whole file or none of it.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        format!("{}: {error}", path.display()).into()
    })
}
