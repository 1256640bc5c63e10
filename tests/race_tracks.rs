//! The example `race_tracks`, run as a person would, and what its tracks are.

#![allow(unreachable_pub)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use graph_runner::{Device, GraphRunner};

#[allow(dead_code)]
#[path = "../examples/race_tracks/geometry.rs"]
mod geometry;
#[path = "rules/gpu.rs"]
mod gpu;
#[path = "../examples/race_tracks/kernels.rs"]
mod kernels;
#[allow(dead_code)]
#[path = "../examples/race_tracks/producers.rs"]
mod producers;

use producers::{Circuit, HALF_WIDTH, MAX_ITERATIONS, RaceTracks, TRACK_RADIUS};

/// The example beside this test's own binary. `cargo test --test race_tracks` alone does not build
/// it, or leaves one of other features there: so cargo, where the test runs under it, makes sure.
fn binary() -> &'static Path {
    static BINARY: LazyLock<PathBuf> = LazyLock::new(|| {
        let own = std::env::current_exe().unwrap();
        let profile = own.parent().and_then(Path::parent).unwrap();
        if let Some(cargo) = std::env::var_os("CARGO") {
            build(Command::new(cargo), profile);
        }
        let path = profile.join("examples/race_tracks");
        assert!(path.exists(), "{} is missing: run `cargo build --examples`", path.display());
        path
    });
    &BINARY
}

/// Builds the example into the folder of a profile, with this test's features.
fn build(mut cargo: Command, profile: &Path) {
    cargo.args(["build", "--quiet", "--example", "race_tracks", "--no-default-features"]);
    cargo.args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
    cargo.arg("--target-dir").arg(profile.parent().unwrap());
    // What `cargo test` builds in `debug` is of the profile `test`.
    let name = profile.file_name().unwrap();
    cargo.arg("--profile").arg(if name == "debug" { "test".as_ref() } else { name });
    for (on, feature) in [
        (cfg!(feature = "cuda"), "cuda"),
        (cfg!(feature = "simulate"), "simulate"),
        (cfg!(feature = "tracing"), "tracing"),
    ] {
        if on {
            cargo.args(["--features", feature]);
        }
    }
    assert!(cargo.status().unwrap().success(), "the example must build");
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("race_tracks_{}_{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn run(folder: &Path, args: &[&str]) -> Output {
    Command::new(binary()).args(args).current_dir(folder).output().unwrap()
}

fn succeeds(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    assert_eq!(error, "", "no bar where there is no terminal");
    String::from_utf8(output.stdout).unwrap()
}

/// The fields of the last line.
fn fields(output: &str) -> Vec<(&str, &str)> {
    let last = output.lines().last().unwrap();
    let mut words = last.split(' ');
    assert_eq!(words.next(), Some("race_tracks"), "{last}");
    words.map(|word| word.split_once('=').unwrap()).collect()
}

#[test]
fn makes_tracks_and_a_gallery() {
    let folder = folder("makes_tracks");
    let args = ["--device", "host", "--tracks", "40", "--points", "128", "--steps", "3"];
    let output = succeeds(&folder, &args);
    let fields = fields(&output);
    let expected = ["device", "mode", "tracks", "points", "converged", "steps", "seconds"];
    assert_eq!(fields.iter().map(|(name, _)| *name).collect::<Vec<_>>(), expected);
    assert_eq!(fields[0].1, "host");
    assert_eq!(fields[1].1, "eager");
    assert_eq!((fields[2].1, fields[3].1, fields[5].1), ("40", "128", "3"));
    assert!(fields[4].1.parse::<u32>().unwrap() >= 38, "{output}");
    assert!(fields[6].1.parse::<f64>().is_ok() && fields[6].1.contains('.'));
    let svg = std::fs::read_to_string(folder.join("race_tracks.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("km · R ").count(), 36);
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn steps_count_from_the_seed_s_first_batch() {
    let folder = folder("steps");
    let device = Device::host();
    for seed in [3, 4] {
        let made = RaceTracks::new(&device, 6, 64, seed).unwrap();
        let mut runner = GraphRunner::new(&device, made).unwrap();
        for steps in 1..=2 {
            runner.run().unwrap();
            let (seed, steps) = (seed.to_string(), steps.to_string());
            succeeds(
                &folder,
                &["--tracks", "6", "--points", "64", "--seed", &seed, "--steps", &steps],
            );
            let svg = std::fs::read_to_string(folder.join("race_tracks.svg")).unwrap();
            for [length, radius] in runner.read(&runner.producer().batch.lengths).unwrap() {
                let caption = format!("{:.2} km · R {radius:.0} m", length / 1000.0);
                assert!(svg.contains(&caption), "seed {seed}, {steps} steps: {caption}");
            }
        }
    }
}

#[test]
#[cfg(feature = "simulate")]
fn the_simulated_device_replays_and_draws_the_same() {
    let folder = folder("the_same");
    for device in ["host", "simulated"] {
        let out = format!("{device}.svg");
        let args =
            ["--device", device, "--tracks", "24", "--points", "64", "--steps", "2", "--out", &out];
        let output = succeeds(&folder, &args);
        let mode = if device == "host" { "eager" } else { "self-graph" };
        assert_eq!(fields(&output)[1], ("mode", mode));
    }
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    assert!(read("host.svg") == read("simulated.svg"));
}

#[test]
#[cfg(not(feature = "simulate"))]
fn the_simulated_device_needs_its_feature_and_says_so() {
    let folder = folder("needs_feature");
    let output = run(&folder, &["--device", "simulated"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("--features simulate"), "{error}");
}

#[test]
fn bad_options_are_refused() {
    let folder = folder("bad_options");
    for args in [
        &["--tracks", "0"][..],
        &["--points", "3"],
        &["--steps", "0"],
        &["--points", "100000"],
        &["--tracks", "1048576", "--points", "4096"],
        &["--seed", "-1"],
        &["--centerlines"],
        &["--device", "quantum"],
        &["--out", "no/such/folder/tracks.svg", "--tracks", "4", "--points", "32"],
    ] {
        let output = run(&folder, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "{args:?}");
    }
}

/// A stadium: two straights and two half circles, `step` metres between points.
fn stadium(straight: f64, radius: f64, step: f64) -> (String, f64) {
    let length = 2.0 * straight + std::f64::consts::TAU * radius;
    let count = (length / step) as usize;
    let mut text = "# x_m,y_m,w_tr_right_m,w_tr_left_m\n".to_owned();
    for index in 0..count {
        let mut s = length * index as f64 / count as f64;
        let half = std::f64::consts::PI * radius;
        let (x, y) = if s < straight {
            (s, 0.0)
        } else if s < straight + half {
            s = (s - straight) / radius;
            (straight + radius * s.sin(), radius - radius * s.cos())
        } else if s < 2.0 * straight + half {
            (straight - (s - straight - half), 2.0 * radius)
        } else {
            s = (s - 2.0 * straight - half) / radius;
            (-radius * s.sin(), radius + radius * s.cos())
        };
        text += &format!("{x:.6},{y:.6},5.0,5.0\n");
    }
    (text, length)
}

#[test]
fn circuits_keep_their_length_and_show_their_tightest_turn() {
    let folder = folder("circuits");
    let (text, length) = stadium(900.0, 60.0, 5.0);
    std::fs::write(folder.join("Stadium.csv"), text).unwrap();
    let (text, _) = stadium(10.0, 400.0, 5.0);
    std::fs::write(folder.join("Round.csv"), text).unwrap();
    std::fs::write(folder.join("notes.txt"), "no circuit").unwrap();
    let args = ["--device", "host", "--centerlines", ".", "--out", "all.svg"];
    let output = succeeds(&folder, &args);
    let lines: Vec<&str> = output.lines().collect();
    assert!(lines[0].starts_with("Round") && lines[1].starts_with("Stadium"), "{output}");
    let number = |after: &str| -> f64 {
        let rest = &lines[1][lines[1].find(after).unwrap() + after.len()..];
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    assert!((number("Stadium") / length - 1.0).abs() < 0.005, "{output}");
    assert!((number("radius") / 60.0 - 1.0).abs() < 0.1, "{output}");
    let fields = fields(&output);
    assert_eq!(fields[2], ("tracks", "2"));
    assert_eq!(fields[4], ("converged", "2"));
    let svg = std::fs::read_to_string(folder.join("all.svg")).unwrap();
    assert!(svg.contains("Stadium") && svg.contains("Round"));
}

#[test]
fn a_circuit_with_a_turn_too_tight_is_widened_and_says_how_often() {
    let folder = folder("tight");
    // A rhombus: its points are turns of radius zero.
    let text: String = (0..400)
        .map(|index| (index / 100, (index % 100) as f64 / 100.0))
        .map(|(side, t)| {
            let ends = [(500.0, 0.0), (0.0, 200.0), (-500.0, 0.0), (0.0, -200.0), (500.0, 0.0)];
            let ((ax, ay), (bx, by)) = (ends[side], ends[side + 1]);
            format!("{:.4},{:.4},5,5\n", ax + t * (bx - ax), ay + t * (by - ay))
        })
        .collect();
    std::fs::write(folder.join("Rhombus.csv"), text).unwrap();
    let output = succeeds(&folder, &["--device", "host", "--centerlines", "Rhombus.csv"]);
    assert_eq!(fields(&output)[4], ("converged", "1"), "{output}");
    let words: Vec<&str> = output.lines().next().unwrap().split_whitespace().collect();
    let before = |word: &str| -> f64 {
        words[words.iter().position(|w| *w == word).unwrap() - 1].parse().unwrap()
    };
    assert!(before("iterations") > 0.0, "{output}");
    let radius = words.iter().position(|w| *w == "radius").unwrap();
    assert!(words[radius + 1].parse::<f64>().unwrap() >= 8.0, "{output}");
    assert!(!folder.join("race_tracks.svg").exists(), "drawn only if asked for");
}

#[test]
fn malformed_files_are_refused_by_name_and_line() {
    let folder = folder("malformed");
    let header = "# x_m,y_m,w_tr_right_m,w_tr_left_m\n";
    let good = stadium(500.0, 100.0, 5.0).0;
    let with = |line: usize, text: &str| {
        let mut lines: Vec<&str> = good.lines().collect();
        lines[line - 1] = text;
        lines.join("\n")
    };
    let tenth = good.lines().nth(9).unwrap();
    let open: String = good.lines().take(60).map(|line| format!("{line}\n")).collect();
    let gap: String = good
        .lines()
        .enumerate()
        .filter(|(index, _)| !(40..90).contains(index))
        .map(|(_, line)| format!("{line}\n"))
        .collect();
    for (name, text, line, says) in [
        ("columns", with(7, "1.0,2.0,3.0"), Some(7), "4 columns"),
        ("nan", with(9, "NaN,2.0,5.0,5.0"), Some(9), "NaN"),
        ("infinite", with(9, "inf,2.0,5.0,5.0"), Some(9), "inf"),
        ("word", with(9, "1.0,two,5.0,5.0"), Some(9), "`two`"),
        ("repeated", with(11, tenth), Some(11), "repeats"),
        ("negative", with(5, "1.0,2.0,-5.0,5.0"), Some(5), "negative"),
        ("two", format!("{header}0,0,5,5\n5,0,5,5\n"), Some(3), "2 points"),
        ("empty", String::new(), Some(1), "0 points"),
        ("open", open, Some(60), "from the last point to the first"),
        ("gap", gap, Some(41), "from the point before it"),
    ] {
        let file = format!("{name}.csv");
        std::fs::write(folder.join(&file), text).unwrap();
        let output = run(&folder, &["--centerlines", &file, "--out", "out.svg"]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {error}");
        let place = line.map_or(file.clone(), |line| format!("{file}:{line}:"));
        assert!(error.contains(&place) && error.contains(says), "{name}: {error}");
        assert!(!folder.join("out.svg").exists());
    }
    for (path, says) in [("missing.csv", "missing.csv"), ("empty_folder", "no .csv")] {
        std::fs::create_dir_all(folder.join("empty_folder")).unwrap();
        let output = run(&folder, &["--centerlines", path]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{path}: {error}");
        assert!(error.contains(says), "{error}");
    }
}

/// Two segments of a closed polyline that cross, if there are any.
fn crosses(track: &[[f32; 2]]) -> Option<(usize, usize)> {
    let side = |a: [f32; 2], b: [f32; 2], p: [f32; 2]| {
        let [a, b, p] = [a, b, p].map(|place| place.map(f64::from));
        (b[0] - a[0]) * (p[1] - a[1]) - (b[1] - a[1]) * (p[0] - a[0]) > 0.0
    };
    let n = track.len();
    let end = |i: usize| track[(i + 1) % n];
    (0..n).find_map(|i| {
        let cross = |&j: &usize| {
            let (a, b, c, d) = (track[i], end(i), track[j], end(j));
            side(a, b, c) != side(a, b, d) && side(c, d, a) != side(c, d, b)
        };
        (i + 2..n).filter(|j| (j + 1) % n != i).find(cross).map(|j| (i, j))
    })
}

/// The least distance between parts of a track that are more than `nearby` of lap apart.
fn clearance(track: &[[f32; 2]], spacing: f32, nearby: f32) -> f32 {
    let n = track.len();
    let apart = (nearby / spacing) as usize;
    let mut least = f32::MAX;
    for i in 0..n {
        for j in i + apart..(i + n + 1).saturating_sub(apart).min(n) {
            least = least.min((track[j][0] - track[i][0]).hypot(track[j][1] - track[i][1]));
        }
    }
    least
}

#[test]
fn tracks_are_closed_even_simple_wide_enough_and_new_in_each_batch() {
    let device = Device::host();
    let (tracks, n) = (128, 256);
    let (mut uneven, mut closest, mut most) = (0.0_f32, f32::MAX, 0);
    for seed in 1..=4 {
        let mut runner =
            GraphRunner::new(&device, RaceTracks::new(&device, tracks, n, seed).unwrap()).unwrap();
        let mut batches = Vec::new();
        for _ in 0..2 {
            runner.run().unwrap();
            let batch = &runner.producer().batch;
            let points = runner.read(&batch.points).unwrap();
            let (left, right) =
                (runner.read(&batch.left).unwrap(), runner.read(&batch.right).unwrap());
            let done = runner.read(&batch.done).unwrap();
            let iterations = runner.read(&batch.iterations).unwrap();
            most = most.max(*iterations.iter().max().unwrap());
            for (index, [length, radius]) in
                runner.read(&batch.lengths).unwrap().into_iter().enumerate()
            {
                let [track, left, right] =
                    [&points, &left, &right].map(|all| &all[index * n..][..n]);
                for (line, name) in [(track, "centre"), (left, "left"), (right, "right")] {
                    let place = crosses(line);
                    assert_eq!(
                        place, None,
                        "seed {seed}, track {index}: {name} line crosses itself"
                    );
                }
                let spacing = length / n as f32;
                let apart = clearance(track, spacing, 240.0);
                assert!(apart > 8.0 * HALF_WIDTH, "seed {seed}, track {index}: {apart} m");
                closest = closest.min(apart);
                for i in 0..n {
                    let ([ax, ay], [bx, by]) = (track[i], track[(i + 1) % n]);
                    uneven = uneven.max(((bx - ax).hypot(by - ay) / spacing - 1.0).abs());
                }
                assert!((1200.0..7000.0).contains(&length), "{length}");
                assert_eq!(done[index] == 1, radius >= TRACK_RADIUS);
                assert!(iterations[index] <= MAX_ITERATIONS);
            }
            assert!(done.iter().sum::<u32>() as usize >= tracks * 99 / 100);
            batches.push(points);
        }
        assert!(batches[0] != batches[1], "a step makes new tracks");
    }
    println!("{closest} m apart at least, {uneven} uneven, {most} steps at the most");
    assert!(uneven < 0.05, "{uneven}");
}

/// The same arithmetic in the same order, each operation rounded as IEEE 754 says.
#[test]
fn a_gpu_makes_the_tracks_of_the_host_to_the_bit() {
    let Some(cuda) = gpu::device() else { return };
    let made = [Device::host(), cuda].map(|device| {
        let made = RaceTracks::new(&device, 512, 256, 5).unwrap();
        let mut runner = GraphRunner::new(&device, made).unwrap();
        (0..3).for_each(|_| drop(runner.run().unwrap()));
        let batch = &runner.producer().batch;
        let places = [&batch.points, &batch.left, &batch.right]
            .map(|places| runner.read(places).unwrap().as_flattened().to_vec())
            .concat();
        let lengths = runner.read(&batch.lengths).unwrap().as_flattened().to_vec();
        let bits = |numbers: &[f32]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        (runner.read(&batch.iterations).unwrap(), bits(&places), bits(&lengths))
    });
    let [host, cuda] = made;
    let same = host.0.iter().zip(&cuda.0).filter(|(a, b)| a == b).count();
    assert_eq!(same, 512, "tracks that took as many steps on both");
    assert!(host.1 == cuda.1 && host.2 == cuda.2);
}

/// A circle of `count` points whose radius goes up and down by `wave` from one to the next.
fn circle(count: usize, wave: f32) -> Vec<[f32; 2]> {
    (0..count)
        .map(|at| (at as f32 / count as f32 * std::f32::consts::TAU, at % 2))
        .map(|(angle, odd)| (angle, 100.0 + if odd == 1 { wave } else { -wave }))
        .map(|(angle, radius)| [radius * angle.cos(), radius * angle.sin()])
        .collect()
}

#[test]
fn smoothing_takes_the_noise_and_leaves_the_size() {
    let device = Device::host();
    let smoothed = |wave: f32| -> [f32; 2] {
        let read = circle(32, wave);
        let circuit = Circuit::new(&device, &read, 628.0, 32).unwrap();
        let mut runner = GraphRunner::new(&device, circuit).unwrap();
        runner.run().unwrap();
        runner.read(&runner.producer().batch.lengths).unwrap()[0]
    };
    // Of the polygon that 32 points on the circle make.
    let polygon = 2.0 * 32.0 * 100.0 * (std::f32::consts::PI / 32.0).sin();
    let [length, radius] = smoothed(0.0);
    assert!((length / polygon - 1.0).abs() < 2e-3, "{length} of {polygon}");
    assert!((radius / 100.0 - 1.0).abs() < 0.02, "{radius}");
    let [length, radius] = smoothed(1.0);
    assert!((length / polygon - 1.0).abs() < 5e-3, "{length} of {polygon}");
    // Unsmoothed, its turns are of about 50 m.
    assert!(radius > 90.0, "{radius}");
}

/// So does the other producer, with its own kernels.
#[test]
fn a_gpu_smooths_circuits_as_the_host_does() {
    let Some(cuda) = gpu::device() else { return };
    let circle: Vec<[f32; 2]> = (0..300)
        .map(|at| at as f32 / 300.0 * std::f32::consts::TAU)
        .map(|angle| [310.0 * angle.cos(), 170.0 * angle.sin()])
        .collect();
    let made = [Device::host(), cuda].map(|device| {
        let circuit = Circuit::new(&device, &circle, 1540.0, 512).unwrap();
        let mut runner = GraphRunner::new(&device, circuit).unwrap();
        (0..2).for_each(|_| drop(runner.run().unwrap()));
        let points = runner.read(&runner.producer().batch.points).unwrap();
        points.as_flattened().iter().map(|x| x.to_bits()).collect::<Vec<_>>()
    });
    assert!(made[0] == made[1]);
}

#[test]
#[cfg(feature = "simulate")]
fn the_same_seed_gives_the_same_tracks_to_the_bit_on_every_software_device() {
    let reference = {
        let device = Device::host();
        let tracks = RaceTracks::new(&device, 16, 64, 5).unwrap();
        let mut runner = GraphRunner::new(&device, tracks).unwrap();
        (0..3).for_each(|_| drop(runner.run().unwrap()));
        runner.read(&runner.producer().batch.left).unwrap()
    };
    for order in 0..4 {
        let device = Device::simulated(order);
        let tracks = RaceTracks::new(&device, 16, 64, 5).unwrap();
        let mut runner = GraphRunner::new(&device, tracks).unwrap();
        (0..3).for_each(|_| drop(runner.run().unwrap()));
        let left = runner.read(&runner.producer().batch.left).unwrap();
        assert!(bytemuck::cast_slice::<_, u8>(&left) == bytemuck::cast_slice::<_, u8>(&reference));
    }
}
