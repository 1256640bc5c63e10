//! Kernels: declared once, with a host function, CUDA code or both, and launched by typed
//! arguments.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::args::{Args, Slot};
use super::driver::{Driver, Keep, RawKernel, RawPtr};
use crate::error::{Error, Result};

/// How many threads a launch has, and how CUDA groups them.
///
/// ```
/// use graph_runner::Grid;
/// assert_eq!(Grid::over(1000).threads(), 1000);
/// assert_eq!(Grid::blocks([8, 4, 1], [32, 2, 1]).threads(), 8 * 4 * 64);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    pub(crate) blocks: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) threads: u64,
    pub(crate) cooperative: bool,
}

impl Grid {
    /// Threads in a block of [`Grid::over`].
    pub const DEFAULT_BLOCK: u32 = 256;

    /// One thread for each of `items` items, in blocks of [`Grid::DEFAULT_BLOCK`].
    ///
    /// A host function runs for exactly `items` threads. A CUDA kernel sees whole blocks, so it
    /// compares its index with a count that it gets as an argument. Zero items launch nothing.
    #[must_use]
    pub fn over(items: usize) -> Self {
        Self::over_in_blocks(items, Self::DEFAULT_BLOCK)
    }

    /// As [`Grid::over`], in blocks of `block` threads (at least 1).
    #[must_use]
    pub fn over_in_blocks(items: usize, block: u32) -> Self {
        let block = block.max(1);
        let blocks = u32::try_from(items.div_ceil(block as usize)).unwrap_or(u32::MAX);
        Self {
            blocks: [blocks, 1, 1],
            block: [block, 1, 1],
            shared_bytes: 0,
            threads: items as u64,
            cooperative: false,
        }
    }

    /// `blocks` blocks of `block` threads, both as x, y, z. A zero anywhere launches nothing.
    #[must_use]
    pub fn blocks(blocks: [u32; 3], block: [u32; 3]) -> Self {
        let threads = blocks.iter().chain(&block).map(|&n| u64::from(n)).product();
        Self { blocks, block, shared_bytes: 0, threads, cooperative: false }
    }

    /// Dynamic shared memory of each block, in bytes. Host functions have no shared memory.
    #[must_use]
    pub fn shared_bytes(mut self, bytes: u32) -> Self {
        self.shared_bytes = bytes;
        self
    }

    /// A cooperative launch: all blocks are resident at once and may wait for each other.
    #[must_use]
    pub fn cooperative(mut self) -> Self {
        self.cooperative = true;
        self
    }

    /// The threads that a host function runs for.
    #[must_use]
    pub fn threads(&self) -> u64 {
        self.threads
    }

    /// The number of blocks.
    #[must_use]
    pub fn block_count(&self) -> u64 {
        self.blocks.iter().map(|&n| u64::from(n)).product()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.threads == 0
    }
}

/// Which thread of the grid a host function runs as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thread {
    /// From 0 to `count - 1`, x fastest.
    pub index: usize,
    /// All threads of the launch.
    pub count: usize,
}

/// Which block of the grid a host function runs as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// From 0 to `count - 1`, x fastest.
    pub index: usize,
    /// All blocks of the launch.
    pub count: usize,
    /// Threads in a block.
    pub threads: usize,
}

/// Device code for CUDA.
#[derive(Clone)]
pub(crate) enum CudaCode {
    /// PTX text.
    Ptx(Arc<str>),
    /// A cubin or fatbin image.
    Image(Arc<[u8]>),
    /// CUDA C++, compiled by NVRTC for the device at hand.
    Source(Arc<str>),
}

impl fmt::Debug for CudaCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ptx(text) => write!(f, "Ptx({} bytes)", text.len()),
            Self::Image(image) => write!(f, "Image({} bytes)", image.len()),
            Self::Source(text) => write!(f, "Source({} bytes)", text.len()),
        }
    }
}

/// A kernel's declaration without its argument types.
#[derive(Clone)]
pub(crate) struct KernelDecl {
    pub(crate) name: Arc<str>,
    pub(crate) host: Option<Arc<dyn HostKernel>>,
    pub(crate) cuda: Option<CudaDecl>,
}

/// A kernel's CUDA code and its name in there.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "read by the CUDA driver"))]
pub(crate) struct CudaDecl {
    pub(crate) code: CudaCode,
    pub(crate) entry: Arc<str>,
}

/// A host function over all threads of a grid.
pub(crate) trait HostKernel: Send + Sync {
    /// Into how many groups the grid falls: what each writable buffer is divided by.
    fn groups(&self, grid: &Grid) -> usize;
    /// Runs every thread of the grid; `slots` has one entry for each argument, in order.
    fn run<'a>(&self, grid: &Grid, slots: &mut dyn Iterator<Item = Slot<'a>>);
}

/// One argument of a launch, as a device sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RawArg<'a> {
    /// Device memory.
    Buffer { ptr: RawPtr, bytes: usize, element: usize, access: Access },
    /// A value that is copied into the launch.
    Scalar(&'a [u8]),
}

/// What a kernel may do with a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// All threads read all of it.
    Read,
    /// Each thread (or block) reads and writes its own share.
    Own,
    /// All threads read and write all of it, by atomic accesses.
    Shared,
}

/// A kernel before it is loaded: its name, its argument types, and its code for the devices it
/// can run on.
///
/// `A` is the tuple of argument types: [`In`](crate::In), [`Out`](crate::Out),
/// [`Shared`](crate::Shared) for buffers, and any plain value by itself. Declaring a host function
/// is safe, since its types allow no race. Attaching CUDA code is `unsafe`: nothing can check that
/// it takes these arguments and stays inside its buffers.
///
/// ```
/// use graph_runner::{Device, In, KernelSpec, Out};
/// let axpy = KernelSpec::<(f32, In<f32>, Out<f32>)>::per_thread("axpy", |t, (a, x, y)| {
///     y[0] += a * x[t.index];
/// });
/// let kernel = Device::host().load(&axpy)?;
/// assert_eq!(kernel.name(), "axpy");
/// # Ok::<(), graph_runner::Error>(())
/// ```
pub struct KernelSpec<A: Args> {
    decl: KernelDecl,
    args: PhantomData<fn(A)>,
}

impl<A: Args> KernelSpec<A> {
    /// Threads that one task on a core takes at the least; see
    /// [`per_thread_with_grain`](Self::per_thread_with_grain).
    pub const DEFAULT_GRAIN: usize = 1024;

    /// A kernel whose host function runs once for each thread.
    ///
    /// Each [`Out`](crate::Out) buffer is divided evenly: thread `i` of `n` gets the `i`-th of `n`
    /// equal pieces, so its length must be a multiple of the thread count.
    pub fn per_thread<F>(name: &str, function: F) -> Self
    where
        F: for<'a> Fn(Thread, A::Item<'a>) + Send + Sync + 'static,
    {
        Self::host(
            name,
            PerThread { function, grain: Self::DEFAULT_GRAIN, args: PhantomData::<fn(A)> },
        )
    }

    /// A kernel whose threads work together in blocks: its host function runs once for each block,
    /// and [`Out`](crate::Out) buffers are divided by blocks.
    pub fn per_block<F>(name: &str, function: F) -> Self
    where
        F: for<'a> Fn(Block, A::Item<'a>) + Send + Sync + 'static,
    {
        Self::host(name, PerBlock { function, args: PhantomData::<fn(A)> })
    }

    /// A kernel whose host function runs once for each thread, where `grain` threads are worth a
    /// task of their own: 1 for threads with much work, thousands for a few operations each.
    pub fn per_thread_with_grain<F>(name: &str, grain: usize, function: F) -> Self
    where
        F: for<'a> Fn(Thread, A::Item<'a>) + Send + Sync + 'static,
    {
        Self::host(name, PerThread { function, grain: grain.max(1), args: PhantomData::<fn(A)> })
    }

    fn host(name: &str, kernel: impl HostKernel + 'static) -> Self {
        let decl = KernelDecl { name: name.into(), host: Some(Arc::new(kernel)), cuda: None };
        Self { decl, args: PhantomData }
    }

    /// A kernel with no host function; add CUDA code to it.
    #[must_use]
    pub fn device_only(name: &str) -> Self {
        let decl = KernelDecl { name: name.into(), host: None, cuda: None };
        Self { decl, args: PhantomData }
    }

    /// Attaches CUDA C++, compiled by NVRTC when the kernel is loaded; `entry` is the name of an
    /// `extern "C" __global__` function.
    ///
    /// Arguments arrive in order: a pointer for each buffer, the value itself for all others. Products
    /// and sums are not contracted (`--fmad=false`), so that the arithmetic can agree with a host
    /// function's to the bit; call `fmaf` where it may be fused.
    ///
    /// # Safety
    ///
    /// The function takes exactly these arguments, stays inside its buffers for every grid that
    /// it is launched with, writes only to `Out` and `Shared` buffers, and has no data race.
    #[must_use]
    #[allow(unsafe_code)]
    pub unsafe fn cuda_source(self, source: &str, entry: &str) -> Self {
        self.cuda(CudaCode::Source(source.into()), entry)
    }

    /// Attaches PTX text; as [`cuda_source`](Self::cuda_source).
    ///
    /// # Safety
    ///
    /// As [`cuda_source`](Self::cuda_source).
    #[must_use]
    #[allow(unsafe_code)]
    pub unsafe fn cuda_ptx(self, ptx: &str, entry: &str) -> Self {
        self.cuda(CudaCode::Ptx(ptx.into()), entry)
    }

    /// Attaches a cubin or fatbin image; as [`cuda_source`](Self::cuda_source).
    ///
    /// # Safety
    ///
    /// As [`cuda_source`](Self::cuda_source).
    #[must_use]
    #[allow(unsafe_code)]
    pub unsafe fn cuda_image(self, image: &[u8], entry: &str) -> Self {
        self.cuda(CudaCode::Image(image.into()), entry)
    }

    fn cuda(mut self, code: CudaCode, entry: &str) -> Self {
        self.decl.cuda = Some(CudaDecl { code, entry: entry.into() });
        self
    }

    pub(crate) fn decl(&self) -> &KernelDecl {
        &self.decl
    }
}

impl<A: Args> Clone for KernelSpec<A> {
    fn clone(&self) -> Self {
        Self { decl: self.decl.clone(), args: PhantomData }
    }
}

impl<A: Args> fmt::Debug for KernelSpec<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelSpec")
            .field("name", &self.decl.name)
            .field("host", &self.decl.host.is_some())
            .field("cuda", &self.decl.cuda)
            .finish()
    }
}

/// A kernel loaded on a device: a counted handle. The code stays loaded while a handle or a graph
/// that launches it is alive (S30).
pub struct Kernel<A> {
    pub(crate) core: Arc<KernelCore>,
    args: PhantomData<fn(A)>,
}

impl<A: Args> Kernel<A> {
    pub(crate) fn load(driver: &Arc<dyn Driver>, spec: &KernelSpec<A>) -> Result<Self> {
        let core = KernelCore::load(driver, spec.decl())?;
        Ok(Self { core: Arc::new(core), args: PhantomData })
    }
}

impl<A> Kernel<A> {
    /// The name that it was declared with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.decl.name
    }
}

impl<A> Clone for Kernel<A> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), args: PhantomData }
    }
}

impl<A> fmt::Debug for Kernel<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("name", &self.core.decl.name).finish_non_exhaustive()
    }
}

/// A loaded kernel without its types; unloads when dropped.
pub(crate) struct KernelCore {
    driver: Arc<dyn Driver>,
    pub(crate) raw: RawKernel,
    pub(crate) decl: KernelDecl,
}

impl KernelCore {
    fn load(driver: &Arc<dyn Driver>, decl: &KernelDecl) -> Result<Self> {
        let kind = driver.info().kind;
        let has_code = match kind {
            super::DeviceKind::Cuda => decl.cuda.is_some(),
            super::DeviceKind::Host | super::DeviceKind::Simulated => decl.host.is_some(),
        };
        if !has_code {
            return Err(Error::NoKernelCode { kernel: decl.name.to_string(), device: kind });
        }
        let _relaxed = super::Relaxed::enter(driver);
        let raw = driver.kernel_load(decl)?;
        Ok(Self { driver: Arc::clone(driver), raw, decl: decl.clone() })
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    pub(crate) fn keep(self: &Arc<Self>) -> Keep {
        Arc::clone(self) as Keep
    }
}

impl Drop for KernelCore {
    fn drop(&mut self) {
        let _relaxed = super::Relaxed::enter(&self.driver);
        // A refusal leaves the code loaded, which is all that can be done about it here.
        let _ = self.driver.kernel_unload(self.raw);
    }
}

struct PerThread<A, F> {
    function: F,
    grain: usize,
    args: PhantomData<fn(A)>,
}

impl<A, F> HostKernel for PerThread<A, F>
where
    A: Args,
    F: for<'a> Fn(Thread, A::Item<'a>) + Send + Sync,
{
    fn groups(&self, grid: &Grid) -> usize {
        usize::try_from(grid.threads).unwrap_or(usize::MAX)
    }

    fn run<'a>(&self, grid: &Grid, slots: &mut dyn Iterator<Item = Slot<'a>>) {
        let count = self.groups(grid);
        let span = A::span(slots, count);
        over_range::<A>(0, count, self.grain, span, &|index, item| {
            (self.function)(Thread { index, count }, item);
        });
    }
}

struct PerBlock<A, F> {
    function: F,
    args: PhantomData<fn(A)>,
}

impl<A, F> HostKernel for PerBlock<A, F>
where
    A: Args,
    F: for<'a> Fn(Block, A::Item<'a>) + Send + Sync,
{
    fn groups(&self, grid: &Grid) -> usize {
        usize::try_from(grid.block_count()).unwrap_or(usize::MAX)
    }

    fn run<'a>(&self, grid: &Grid, slots: &mut dyn Iterator<Item = Slot<'a>>) {
        let count = self.groups(grid);
        let threads = grid.block.iter().map(|&n| n as usize).product();
        let span = A::span(slots, count);
        let grain = 1024_usize.div_ceil(std::cmp::max(threads, 1));
        over_range::<A>(0, count, grain, span, &|index, item| {
            (self.function)(Block { index, count, threads }, item);
        });
    }
}

/// Runs `each` for every index of `from..to` with its share of `span`, on all cores where there
/// are at least two tasks of `grain` indices.
fn over_range<'a, A: Args>(
    from: usize,
    to: usize,
    grain: usize,
    mut span: A::Span<'a>,
    each: &(impl Fn(usize, A::Item<'a>) + Sync),
) {
    let task = grain.max((to - from) / (rayon::current_num_threads() * 8));
    fn go<'a, A: Args>(
        from: usize,
        to: usize,
        task: usize,
        mut span: A::Span<'a>,
        each: &(impl Fn(usize, A::Item<'a>) + Sync),
    ) {
        if to - from < 2 * task {
            for index in from..to {
                each(index, A::next(&mut span));
            }
            return;
        }
        let middle = from + (to - from) / 2;
        let (left, right) = A::split(span, middle - from);
        rayon::join(
            || go::<A>(from, middle, task, left, each),
            || go::<A>(middle, to, task, right, each),
        );
    }
    if to - from < 2 * task {
        for index in from..to {
            each(index, A::next(&mut span));
        }
    } else {
        go::<A>(from, to, task, span, each);
    }
}
