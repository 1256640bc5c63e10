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

mod choice;
mod csv;
mod geometry;
mod kernels;
mod producers;
mod svg;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use graph_runner::{Device, GraphRunner, Mode, Producer};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use producers::{Batch, CIRCUIT_RADIUS, Circuit, RaceTracks, TRACK_RADIUS};
use svg::{Drawn, Page};

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
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(32..=4096))]
    points: u32,
    /// Equal seeds make equal tracks.
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// Batches to make, one after the other.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Tracks to draw, the most varied ones.
    #[arg(long, default_value_t = 36, value_parser = clap::value_parser!(u32).range(1..=1000))]
    show: u32,
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
    /// About 1 GiB on the device.
    const MOST_POINTS: u64 = 1 << 24;
    let points = u64::from(options.tracks) * u64::from(options.points);
    if points > MOST_POINTS {
        return Err(format!(
            "{} tracks of {} points are {points} points; at most {MOST_POINTS} fit in one batch",
            options.tracks, options.points,
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
    let progress = progress(u64::from(options.steps) + 1, "batches");
    let mut runner = GraphRunner::new(&device, RaceTracks::new(&device, tracks, n, options.seed)?)?;
    runner.prepare()?;
    progress.inc(1);
    // The preparing run was the first batch: begin again, so that steps count from there.
    runner.producer().restart(&device, options.seed)?;
    let began = Instant::now();
    let mut mode = Mode::Eager;
    for _ in 0..options.steps {
        mode = runner.call().sync(!progress.is_hidden()).run()?.mode;
        progress.inc(1);
    }
    let batch = &runner.producer().batch;
    let done = runner.read(&batch.done)?;
    let seconds = began.elapsed().as_secs_f64();

    let converged: u32 = done.iter().sum();
    let iterations = runner.read(&batch.iterations)?;
    let lengths = runner.read(&batch.lengths)?;
    let shown = chosen(&runner, batch, &lengths, &done, options.show as usize)?;
    let all = shown
        .iter()
        .map(|&index| drawn(&runner, batch, index, format!("No. {}", index + 1), lengths[index]))
        .collect::<Result<Vec<_>, _>>()?;
    let note = format!(
        "seed {} · batch {} · {tracks} made, {} shown · no turn tighter than {TRACK_RADIUS} m",
        options.seed,
        options.steps,
        shown.len()
    );
    let out = options.out.clone().unwrap_or_else(|| "race_tracks.svg".into());
    let columns = if all.len() <= 16 { 4 } else { 6 };
    let page = Page { heading: "Race tracks", note, columns, card: [296.0, 206.0] };
    write(&out, &page.draw(&all))?;
    progress.finish_and_clear();

    let average = lengths.iter().map(|[length, _]| f64::from(*length)).sum::<f64>() / tracks as f64;
    println!(
        "{tracks} tracks on {}: {:.1} km on average, turns widened to {TRACK_RADIUS} m in {:.1} \
         iterations on average, {} at the most",
        device.name(),
        average / 1000.0,
        iterations.iter().map(|&taken| f64::from(taken)).sum::<f64>() / tracks as f64,
        iterations.iter().max().unwrap_or(&0),
    );
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
    let mut seconds = 0.0;
    for line in &lines {
        // No coarser than what was read.
        let n = (options.points as usize).max(line.points.len());
        let circuit = Circuit::new(&device, &line.points, line.length, n)?;
        let mut runner = GraphRunner::new(&device, circuit)?;
        runner.prepare()?;
        let began = Instant::now();
        for _ in 0..options.steps {
            mode = runner.run()?.mode;
        }
        let batch = &runner.producer().batch;
        let [length, radius] = runner.read(&batch.lengths)?[0];
        seconds += began.elapsed().as_secs_f64();
        let iterations = runner.read(&batch.iterations)?[0];
        converged += runner.read(&batch.done)?[0];
        most = most.max(n);
        rows.push(format!(
            "{:<16} {length:>9.1} m, {:+.2} % of its polyline's {:.1} m · tightest radius \
             {radius:.1} m · {iterations} iterations",
            line.name,
            100.0 * (f64::from(length) / line.length - 1.0),
            line.length,
        ));
        if options.out.is_some() {
            all.push(drawn(&runner, batch, 0, line.name.clone(), [length, radius])?);
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    if let Some(out) = &options.out {
        let note = format!("smoothed and resampled · no turn tighter than {CIRCUIT_RADIUS} m");
        let columns = if all.len() <= 9 { 3 } else { 5 };
        let page = Page { heading: "Circuits", note, columns, card: [360.0, 330.0] };
        write(out, &page.draw(&all))?;
    }
    for row in &rows {
        println!("{row}");
    }
    if let Some(out) = &options.out {
        println!("wrote {}", out.display());
    }
    println!(
        "race_tracks device={} mode={mode} tracks={} points={most} converged={converged} \
         steps={} seconds={seconds:.2}",
        device.kind(),
        lines.len(),
        options.steps,
    );
    Ok(())
}

/// The tracks to draw, of the first that were wide enough.
fn chosen<P: Producer>(
    runner: &GraphRunner<P>,
    batch: &Batch,
    lengths: &[[f32; 2]],
    done: &[u32],
    count: usize,
) -> Result<Vec<usize>, graph_runner::Error> {
    const LOOKED_AT: usize = 2048;
    let mut candidates: Vec<usize> =
        (0..batch.tracks).filter(|&index| done[index] == 1).take(LOOKED_AT).collect();
    if candidates.is_empty() {
        candidates = (0..batch.tracks.min(LOOKED_AT)).collect();
    }
    let traits = candidates
        .iter()
        .map(|&index| {
            let range = index * batch.n..(index + 1) * batch.n;
            let points = runner.read(&batch.points.slice(range.clone())?)?;
            let bend = runner.read(&batch.bend.slice(range)?)?;
            Ok(choice::traits(&points, &bend, lengths[index][0]))
        })
        .collect::<Result<Vec<_>, graph_runner::Error>>()?;
    Ok(choice::most_varied(&traits, count).into_iter().map(|index| candidates[index]).collect())
}

fn drawn<P: Producer>(
    runner: &GraphRunner<P>,
    batch: &Batch,
    index: usize,
    title: String,
    [length, radius]: [f32; 2],
) -> Result<Drawn, graph_runner::Error> {
    let range = index * batch.n..(index + 1) * batch.n;
    Ok(Drawn {
        title,
        subtitle: format!("{:.2} km · R {radius:.0} m", length / 1000.0),
        length,
        left: runner.read(&batch.left.slice(range.clone())?)?,
        right: runner.read(&batch.right.slice(range.clone())?)?,
        bend: runner.read(&batch.bend.slice(range)?)?,
    })
}

/// A bar on the error stream, if that is a terminal.
fn progress(steps: u64, what: &'static str) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style =
        ProgressStyle::with_template("{spinner} {bar:40} {pos}/{len} {msg}, {elapsed}, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::with_draw_target(Some(steps), target).with_style(style);
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    bar.with_message(what)
}

/// Writes the whole file or none of it.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        format!("{}: {error}", path.display()).into()
    })
}
