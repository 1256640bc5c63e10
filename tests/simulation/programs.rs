//! Random programs against the sequential result.

use super::*;
use proptest::prelude::*;

/// One operation of a random program: on which stream, from and to which buffer.
type Step = (usize, usize, usize);

const STREAMS: usize = 4;
const BUFFERS: usize = 3;

fn reference(program: &[Step]) -> [u32; BUFFERS] {
    let mut values = [0_u32; BUFFERS];
    for &(_, from, to) in program {
        values[to] = values[to].wrapping_mul(3).wrapping_add(values[from]).wrapping_add(1);
    }
    values
}

/// Enqueues `program`, every two operations that conflict ordered by an event.
fn enqueue(bench: &Bench, streams: &[Stream], buffers: &[Buffer<u32>], program: &[Step]) {
    let mut events: Vec<ForeignEvent> = Vec::new();
    for &(stream, from, to) in program {
        for (earlier, event) in program.iter().zip(&events) {
            if earlier.2 == from || earlier.2 == to || earlier.1 == to {
                event.make_wait(&streams[stream]).unwrap();
            }
        }
        bench.step(&streams[stream], &buffers[from], &buffers[to]).unwrap();
        let event = bench.foreign.event().unwrap();
        event.record(&streams[stream]).unwrap();
        events.push(event);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// A program whose conflicts are ordered by events gives the sequential result, run and
    /// replayed, for every seed.
    #[test]
    fn ordered_programs_are_right(
        seed: u64,
        program in prop::collection::vec((0..STREAMS, 0..BUFFERS, 1..BUFFERS), 0..24),
    ) {
        // A step reads and writes two different buffers.
        let program: Vec<Step> = program
            .into_iter()
            .map(|(stream, from, shift)| (stream, from, (from + shift) % BUFFERS))
            .collect();
        let bench = Bench::new(seed);
        let streams: Vec<_> = (0..STREAMS).map(|_| bench.stream()).collect();
        let buffers: Vec<_> = (0..BUFFERS).map(|_| bench.buffer(0)).collect();
        let values = || [0, 1, 2].map(|at| bench.read(&streams[0], &buffers[at]));
        let join = || streams[1..].iter().for_each(|s| bench.order(s, &streams[0]).unwrap());

        enqueue(&bench, &streams, &buffers, &program);
        join();
        prop_assert_eq!(values(), reference(&program));

        buffers.iter().for_each(|buffer| streams[0].write(buffer, &[0]).unwrap());
        bench.foreign.begin_capture(&streams[0], CaptureMode::Global).unwrap();
        streams[1..].iter().for_each(|s| bench.order(&streams[0], s).unwrap());
        enqueue(&bench, &streams, &buffers, &program);
        join();
        let graph = bench.foreign.end_capture(&streams[0]).unwrap();
        prop_assert_eq!(graph.nodes(), Ok(program.len()));
        graph.instantiate().unwrap().launch(&streams[0]).unwrap();
        prop_assert_eq!(values(), reference(&program));
    }
}
