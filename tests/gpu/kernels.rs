//! Kernels: where their code comes from, what they take, and what a launch can ask for.

use bytemuck::{Pod, Zeroable};
use graph_runner::*;

use crate::device_or_return;

const SCALE_PTX: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry scale(.param .u64 x, .param .u32 factor, .param .u32 n)
{
    .reg .pred %p<1>;
    .reg .b32 %r<6>;
    .reg .b64 %d<2>;
    ld.param.u64 %d0, [x];
    ld.param.u32 %r0, [factor];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r2, %r2, %r3, %r4;
    setp.ge.u32 %p0, %r2, %r1;
    @%p0 bra DONE;
    cvta.to.global.u64 %d0, %d0;
    mul.wide.u32 %d1, %r2, 4;
    add.u64 %d0, %d0, %d1;
    ld.global.u32 %r5, [%d0];
    mul.lo.u32 %r5, %r5, %r0;
    st.global.u32 [%d0], %r5;
DONE:
    ret;
}
";

type ScaleArgs = (Out<u32>, u32, u32);

fn scales(device: &Device, kernel: &Kernel<ScaleArgs>) {
    let values: Vec<u32> = (0..1000).collect();
    let (buffer, stream) = (device.buffer(&values).unwrap(), device.stream().unwrap());
    stream.enqueue(|cx| cx.launch(kernel, Grid::over(999), (&buffer, 7, 999))).unwrap();
    let mut expected: Vec<u32> = values.iter().map(|value| value * 7).collect();
    expected[999] = 999;
    assert_eq!(stream.read(&buffer).unwrap(), expected);
}

#[test]
#[allow(unsafe_code)]
fn code_comes_from_source_ptx_or_an_image() {
    let (_turn, device) = device_or_return!();
    let source = "extern \"C\" __global__ void scale(unsigned* x, unsigned factor, unsigned n) {
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) x[i] *= factor;
    }";
    let spec = KernelSpec::<ScaleArgs>::device_only("scale");
    // An image is whatever the driver reads, PTX that ends in a zero included.
    let image = format!("{SCALE_PTX}\0");
    // SAFETY: each thread touches its own element, below the count that is passed.
    let specs = unsafe {
        [
            spec.clone().cuda_source(source, "scale"),
            spec.clone().cuda_ptx(SCALE_PTX, "scale"),
            spec.cuda_image(image.as_bytes(), "scale"),
        ]
    };
    for spec in specs {
        scales(&device, &device.load(&spec).unwrap());
    }
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Params {
    scale: f64,
    offset: i32,
    flags: u32,
    color: [f32; 3],
    pad: u32,
}

#[test]
#[allow(unsafe_code)]
fn twelve_arguments_of_every_size_arrive_as_they_are() {
    type A = (Out<f64>, u8, i16, u32, u64, f32, f64, Params, In<u32>, In<f32>, i8, Out<u32>);
    let (_turn, device) = device_or_return!();
    let source = "
        struct Params { double scale; int offset; unsigned flags; float color[3]; unsigned pad; };
        extern \"C\" __global__ void all(
            double* out, unsigned char a, short b, unsigned c, unsigned long long d, float e,
            double f, Params p, const unsigned* g, const float* h, signed char i, unsigned* second
        ) {
            out[0] = a; out[1] = b; out[2] = c; out[3] = (double)d; out[4] = e; out[5] = f;
            out[6] = p.scale; out[7] = p.offset; out[8] = p.flags; out[9] = p.color[2];
            out[10] = p.pad; out[11] = g[1]; out[12] = h[1]; out[13] = i;
            second[0] = g[0] + 1;
        }";
    // SAFETY: one thread writes 14 and 1 elements, of buffers with that many.
    let spec = unsafe { KernelSpec::<A>::device_only("all").cuda_source(source, "all") };
    let kernel = device.load(&spec).unwrap();
    let (out, second) = (device.zeros(14).unwrap(), device.zeros(1).unwrap());
    let (g, h) = (device.buffer(&[41_u32, 42]).unwrap(), device.buffer(&[0.5_f32, 1.5]).unwrap());
    let params = Params { scale: 2.25, offset: -9, flags: 77, color: [0.0, 0.0, 6.5], pad: 88 };
    let big = (1_u64 << 40) + 3;
    let stream = device.stream().unwrap();
    stream
        .enqueue(|cx| {
            let args = (&out, 200, -300, 70_000, big, 0.25, 1e100, params, &g, &h, -5, &second);
            cx.launch(&kernel, Grid::over(1), args)
        })
        .unwrap();
    let expected = [
        200.0, -300.0, 70_000.0, big as f64, 0.25, 1e100, 2.25, -9.0, 77.0, 6.5, 88.0, 42.0, 1.5,
        -5.0,
    ];
    assert_eq!(stream.read(&out).unwrap(), expected);
    assert_eq!(stream.read(&second).unwrap(), [42]);
}

#[test]
#[allow(unsafe_code)]
fn grids_and_blocks_have_three_dimensions() {
    let (_turn, device) = device_or_return!();
    let source = "extern \"C\" __global__ void where(unsigned* out) {
        unsigned x = blockIdx.x * blockDim.x + threadIdx.x, nx = gridDim.x * blockDim.x;
        unsigned y = blockIdx.y * blockDim.y + threadIdx.y, ny = gridDim.y * blockDim.y;
        unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
        out[(z * ny + y) * nx + x] = x + 100 * y + 10000 * z;
    }";
    let spec = KernelSpec::<(Shared<u32>,)>::device_only("where");
    // SAFETY: one element for each thread of the grid that is launched below.
    let kernel = device.load(&unsafe { spec.cuda_source(source, "where") }).unwrap();
    let grid = Grid::blocks([3, 2, 5], [4, 8, 2]);
    let out = device.zeros::<u32>(grid.threads() as usize).unwrap();
    let stream = device.stream().unwrap();
    stream.enqueue(|cx| cx.launch(&kernel, grid, (&out,))).unwrap();
    let out = stream.read(&out).unwrap();
    let mut expected = Vec::new();
    for z in 0..10 {
        for y in 0..16 {
            expected.extend((0..12).map(|x| x + 100 * y + 10000 * z));
        }
    }
    assert_eq!(out, expected);
}

/// Reverses `n` numbers through shared memory, `own` bytes of it static.
#[allow(unsafe_code)]
fn reverse(own: usize) -> KernelSpec<(Shared<u32>, u32)> {
    let source = format!(
        "extern \"C\" __global__ void reverse(unsigned* x, unsigned n) {{
            __shared__ unsigned own[{own} / 4 + 1];
            extern __shared__ unsigned rest[];
            for (unsigned i = threadIdx.x; i < {own} / 4; i += blockDim.x) own[i] = n;
            for (unsigned i = threadIdx.x; i < n; i += blockDim.x) rest[i] = x[i];
            __syncthreads();
            unsigned extra = {own} ? own[(threadIdx.x * 31) % ({own} / 4 + !{own})] - n : 0;
            for (unsigned i = threadIdx.x; i < n; i += blockDim.x) x[i] = rest[n - 1 - i] + extra;
        }}"
    );
    // SAFETY: `n` is the buffer's length and the dynamic shared memory holds as many.
    unsafe { KernelSpec::device_only("reverse").cuda_source(&source, "reverse") }
}

fn reverses(device: &Device, kernel: &Kernel<(Shared<u32>, u32)>, bytes: u32) {
    let n = bytes / 4;
    let values: Vec<u32> = (0..n).map(|i| i * 3).collect();
    let (x, stream) = (device.buffer(&values).unwrap(), device.stream().unwrap());
    let grid = Grid::blocks([1, 1, 1], [512, 1, 1]).shared_bytes(bytes);
    stream.enqueue(|cx| cx.launch(kernel, grid, (&x, n))).unwrap();
    let expected: Vec<u32> = values.into_iter().rev().collect();
    assert_eq!(stream.read(&x).unwrap(), expected);
}

#[test]
fn dynamic_shared_memory_goes_above_48_kib() {
    let (_turn, device) = device_or_return!();
    let kernel = device.load(&reverse(0)).unwrap();
    for kib in [1, 48, 64, 96, 49, 97] {
        reverses(&device, &kernel, kib << 10);
    }
}

#[test]
fn static_shared_memory_counts_too() {
    let (_turn, device) = device_or_return!();
    let kernel = device.load(&reverse(40 << 10)).unwrap();
    // Below 48 KiB by itself, above it with the static part.
    for kib in [4, 16, 40] {
        reverses(&device, &kernel, kib << 10);
    }
}

#[test]
fn the_shared_memory_limit_is_raised_by_many_threads_at_once() {
    let (_turn, device) = device_or_return!();
    for _ in 0..20 {
        let kernel = device.load(&reverse(0)).unwrap();
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for kib in [50, 96, 51, 90, 52, 80, 53, 70] {
                let (device, kernel, start) = (&device, &kernel, &start);
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..5 {
                        reverses(device, kernel, kib << 10);
                    }
                });
            }
        });
    }
}

#[test]
fn the_shared_memory_limit_is_raised_inside_a_capture() {
    let (_turn, device) = device_or_return!();
    let kernel = device.load(&reverse(0)).unwrap();
    let bytes = 80 << 10;
    let values: Vec<u32> = (0..bytes / 4).collect();
    let (x, stream) = (device.buffer(&values).unwrap(), device.stream().unwrap());
    let grid = Grid::blocks([1, 1, 1], [256, 1, 1]).shared_bytes(bytes);
    let graph =
        stream.capture(|capture| capture.enqueue().launch(&kernel, grid, (&x, bytes / 4))).unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!(stream.read(&x).unwrap()[0], bytes / 4 - 1);
    graph.launch(&stream).unwrap();
    assert_eq!(stream.read(&x).unwrap(), values);
}

#[test]
fn more_shared_memory_than_the_gpu_has_is_refused() {
    let (_turn, device) = device_or_return!();
    let kernel = device.load(&reverse(0)).unwrap();
    let (x, stream) = (device.zeros::<u32>(4).unwrap(), device.stream().unwrap());
    let grid = Grid::over(1).shared_bytes(16 << 20);
    let error = stream.enqueue(|cx| cx.launch(&kernel, grid, (&x, 4))).unwrap_err();
    let driver = error.driver().unwrap();
    assert_eq!((driver.call(), driver.code()), ("cuFuncSetAttribute", DriverCode::InvalidValue));
    assert!(error.to_string().contains("launch of `reverse`"), "{error}");
    reverses(&device, &kernel, 64 << 10);
}

/// Every block adds its number, waits for all the others, then notes the sum that it sees.
#[allow(unsafe_code)]
fn meeting() -> KernelSpec<(Shared<u32>, Shared<u32>, u32)> {
    // SAFETY: `sums` has one element more than there are blocks, and atomics order the rest.
    unsafe {
        KernelSpec::device_only("meeting").cuda_source(
            "extern \"C\" __global__ void meet(unsigned* sums, unsigned* met, unsigned blocks) {
                if (threadIdx.x != 0) return;
                atomicAdd(&sums[0], blockIdx.x + 1);
                __threadfence();
                atomicAdd(met, 1u);
                while (atomicAdd(met, 0u) < blocks) {}
                __threadfence();
                sums[1 + blockIdx.x] = atomicAdd(&sums[0], 0u);
            }",
            "meet",
        )
    }
}

#[test]
fn cooperative_blocks_wait_for_each_other() {
    let (_turn, device) = device_or_return!();
    let kernel = device.load(&meeting()).unwrap();
    let (blocks, stream) = (64, device.stream().unwrap());
    let sums = device.zeros::<u32>(blocks + 1).unwrap();
    let met = device.zeros::<u32>(1).unwrap();
    let grid = Grid::blocks([blocks as u32, 1, 1], [128, 1, 1]).cooperative();
    let expected = vec![(1..=blocks as u32).sum(); blocks + 1];
    stream.enqueue(|cx| cx.launch(&kernel, grid, (&sums, &met, blocks as u32))).unwrap();
    assert_eq!(stream.read(&sums).unwrap(), expected);

    let graph = stream
        .capture(|capture| {
            let mut cx = capture.enqueue();
            cx.fill(&sums, 0)?;
            cx.fill(&met, 0)?;
            cx.launch(&kernel, grid, (&sums, &met, blocks as u32))
        })
        .unwrap();
    graph.launch(&stream).unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!(stream.read(&sums).unwrap(), expected);
}

#[test]
fn a_cooperative_grid_that_does_not_fit_is_refused() {
    let (_turn, device) = device_or_return!();
    let kernel = device.load(&meeting()).unwrap();
    let (buffer, met) = (device.zeros::<u32>(1).unwrap(), device.zeros::<u32>(1).unwrap());
    let grid = Grid::blocks([1 << 20, 1, 1], [128, 1, 1]).cooperative();
    let stream = device.stream().unwrap();
    let error = stream.enqueue(|cx| cx.launch(&kernel, grid, (&buffer, &met, 1))).unwrap_err();
    assert_eq!(error.driver().unwrap().code(), DriverCode::CooperativeLaunchTooLarge);
    stream.synchronize().unwrap();
}

#[test]
fn a_grid_that_no_gpu_takes_is_refused_and_harms_nothing() {
    let (_turn, device) = device_or_return!();
    let kernel = device.load(&crate::add()).unwrap();
    let (x, stream) = (device.zeros::<u32>(4).unwrap(), device.stream().unwrap());
    for grid in [Grid::blocks([1, 70_000, 1], [1, 1, 1]), Grid::over_in_blocks(4096, 4096)] {
        let error = stream.enqueue(|cx| cx.launch(&kernel, grid, (&x, 1, 4))).unwrap_err();
        let driver = error.driver().unwrap();
        assert_eq!((driver.call(), driver.code()), ("cuLaunchKernel", DriverCode::InvalidValue));
    }
    stream.enqueue(|cx| cx.launch(&kernel, Grid::over(4), (&x, 1, 4))).unwrap();
    assert_eq!(stream.read(&x).unwrap(), [1; 4]);
}

fn log_of(device: &Device, spec: &KernelSpec<(Out<u32>,)>) -> String {
    match device.load(spec).unwrap_err() {
        Error::KernelCompile { kernel, log } => {
            assert_eq!(kernel, "broken");
            log
        }
        error => panic!("{error:?}"),
    }
}

#[test]
#[allow(unsafe_code)]
fn code_that_does_not_compile_or_load_says_why() {
    let (_turn, device) = device_or_return!();
    let spec = || KernelSpec::<(Out<u32>,)>::device_only("broken");
    let good = "extern \"C\" __global__ void f(unsigned* x) { x[0] = 1; }";
    // SAFETY: none of this is ever launched.
    unsafe {
        let log = log_of(&device, &spec().cuda_source("void f() {\n    absent = 1;\n}", "f"));
        assert!(log.contains("kernel.cu(2)") && log.contains("absent"), "{log}");
        let log = log_of(&device, &spec().cuda_source(good, "g"));
        assert!(log.contains("`g`") && log.contains("extern"), "{log}");
        let log = log_of(&device, &spec().cuda_source("a\0b", "g"));
        assert!(log.contains("zero byte"), "{log}");
        let ptx = SCALE_PTX.replace("mul.lo.u32", "mul.odd.u32");
        let log = log_of(&device, &spec().cuda_ptx(&ptx, "scale"));
        assert!(log.contains("line") && log.contains("odd"), "{log}");
        let log = log_of(&device, &spec().cuda_image(&[], "scale"));
        assert!(log.contains("empty"), "{log}");

        let future = SCALE_PTX.replace(".version 7.0", ".version 99.0");
        let error = device.load(&spec().cuda_ptx(&future, "scale")).unwrap_err();
        assert!(error.to_string().contains("UNSUPPORTED_PTX_VERSION"), "{error}");
        let error = device.load(&spec().cuda_image(b"no image\0", "f")).unwrap_err();
        let image_codes = ["INVALID_IMAGE", "INVALID_PTX", "NO_BINARY_FOR_GPU"];
        assert!(image_codes.iter().any(|code| error.to_string().contains(code)), "{error}");
    }
    let host_only = KernelSpec::<(Out<u32>,)>::per_thread("host only", |_, (x,)| x[0] = 1);
    let error = device.load(&host_only).unwrap_err();
    assert!(matches!(error, Error::NoKernelCode { device: DeviceKind::Cuda, .. }), "{error:?}");
    assert!(error.to_string().contains("cuda_source"), "{error}");
}
