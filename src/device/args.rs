//! What a kernel can take: the argument types, how a launch passes them, and how a host function
//! sees them without a data race.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

use bytemuck::Pod;
use smallvec::SmallVec;

use super::buffer::{Buffer, BufferCore};
use super::kernel::{Access, RawArg};
use std::sync::Arc;

/// A type that can be stored in a [`Buffer`] or passed by value: plain old data of any thread.
///
/// Implemented for every [`bytemuck::Pod`] type, so derive that for your own structs.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not plain data that a device can hold",
    label = "not plain old data",
    note = "a device holds types without pointers, padding or invalid bit patterns: numbers, arrays of \
            them, and structs that derive `bytemuck::Pod` and `bytemuck::Zeroable`"
)]
pub trait Element: Pod + Send + Sync {}
#[diagnostic::do_not_recommend]
impl<T: Pod + Send + Sync> Element for T {}

/// A buffer argument that all threads read: `&[T]` in a host function, `const T*` in CUDA.
#[derive(Debug)]
pub struct In<T>(PhantomData<fn(T)>);

/// A buffer argument of which each thread reads and writes a share of its own: `&mut [T]` in a
/// host function (the thread's equal piece, old contents included), `T*` to the whole in CUDA.
#[derive(Debug)]
pub struct Out<T>(PhantomData<fn(T)>);

/// A buffer argument that all threads read and write anywhere: [`SharedSlice`] in a host function,
/// `T*` in CUDA. `T`'s size is a multiple of 4 bytes.
#[derive(Debug)]
pub struct Shared<T>(PhantomData<fn(T)>);

/// One argument as a host kernel receives it.
pub(crate) enum Slot<'a> {
    Read(&'a [u8]),
    Write(&'a mut [u8]),
    Scalar(&'a [u8]),
}

mod sealed {
    pub trait Arg {}
    pub trait Args {}
}

/// The type of one kernel argument: [`In`], [`Out`], [`Shared`], or a plain value.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a kernel",
    label = "not a kernel argument",
    note = "a kernel takes buffers as `In<T>`, `Out<T>` or `Shared<T>`, and plain data by value: \
            numbers, arrays of them, and structs that derive `bytemuck::Pod`"
)]
pub trait Arg: sealed::Arg + 'static {
    /// What a launch passes: `&Buffer<T>`, or the value.
    type Passed<'a>;
    /// What a range of threads sees.
    #[doc(hidden)]
    type Span<'a>: Send;
    /// What a host function of one thread (or block) sees.
    type Item<'a>;

    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn raw<'a>(passed: &'a Self::Passed<'_>) -> RawArg<'a>;
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn buffer<'a>(passed: &'a Self::Passed<'_>) -> Option<&'a Arc<BufferCore>>;
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn span<'a>(slot: Slot<'a>, groups: usize) -> Self::Span<'a>;
    #[doc(hidden)]
    fn split<'a>(span: Self::Span<'a>, at: usize) -> (Self::Span<'a>, Self::Span<'a>);
    #[doc(hidden)]
    fn next<'a>(span: &mut Self::Span<'a>) -> Self::Item<'a>;
}

/// The argument types of a kernel: a tuple of up to 12 [`Arg`]s.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tuple of kernel arguments",
    label = "not a tuple of kernel arguments",
    note = "write the argument types as a tuple, `(A,)` for one: `In<T>`, `Out<T>` or `Shared<T>` for \
            buffers, plain data by value, up to 12 of them"
)]
pub trait Args: sealed::Args + 'static {
    /// What a launch passes.
    type Passed<'a>;
    #[doc(hidden)]
    type Span<'a>: Send;
    /// What a host function of one thread (or block) sees.
    type Item<'a>;

    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn raw<'a>(passed: &'a Self::Passed<'_>) -> SmallVec<[RawArg<'a>; 12]>;
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn buffers(passed: &Self::Passed<'_>, each: &mut dyn FnMut(&Arc<BufferCore>));
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn span<'a>(slots: &mut dyn Iterator<Item = Slot<'a>>, groups: usize) -> Self::Span<'a>;
    #[doc(hidden)]
    fn split<'a>(span: Self::Span<'a>, at: usize) -> (Self::Span<'a>, Self::Span<'a>);
    #[doc(hidden)]
    fn next<'a>(span: &mut Self::Span<'a>) -> Self::Item<'a>;
}

macro_rules! tuple {
    ($($name:ident $index:tt),*) => {
        impl<$($name: Arg),*> sealed::Args for ($($name,)*) {}

        #[allow(unused_variables, clippy::unused_unit, private_interfaces)]
        impl<$($name: Arg),*> Args for ($($name,)*) {
            type Passed<'a> = ($($name::Passed<'a>,)*);
            type Span<'a> = ($($name::Span<'a>,)*);
            type Item<'a> = ($($name::Item<'a>,)*);

            fn raw<'a>(passed: &'a Self::Passed<'_>) -> SmallVec<[RawArg<'a>; 12]> {
                SmallVec::from_iter([$($name::raw(&passed.$index)),*])
            }
            fn buffers(passed: &Self::Passed<'_>, each: &mut dyn FnMut(&Arc<BufferCore>)) {
                $(if let Some(buffer) = $name::buffer(&passed.$index) { each(buffer); })*
            }
            fn span<'a>(slots: &mut dyn Iterator<Item = Slot<'a>>, groups: usize) -> Self::Span<'a> {
                ($($name::span(slots.next().expect("one slot an argument"), groups),)*)
            }
            fn split<'a>(span: Self::Span<'a>, at: usize) -> (Self::Span<'a>, Self::Span<'a>) {
                let halves = ($($name::split(span.$index, at),)*);
                (($(halves.$index.0,)*), ($(halves.$index.1,)*))
            }
            fn next<'a>(span: &mut Self::Span<'a>) -> Self::Item<'a> {
                ($($name::next(&mut span.$index),)*)
            }
        }
    };
}

tuple!();
tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);

fn buffer_arg<T: Element>(buffer: &Buffer<T>, access: Access) -> RawArg<'static> {
    RawArg::Buffer { ptr: buffer.ptr(), bytes: buffer.bytes(), element: size_of::<T>(), access }
}

impl<T: Element> sealed::Arg for In<T> {}
#[allow(private_interfaces)]
impl<T: Element> Arg for In<T> {
    type Passed<'a> = &'a Buffer<T>;
    type Span<'a> = &'a [T];
    type Item<'a> = &'a [T];

    fn raw<'a>(passed: &'a Self::Passed<'_>) -> RawArg<'a> {
        buffer_arg(passed, Access::Read)
    }
    fn buffer<'a>(passed: &'a Self::Passed<'_>) -> Option<&'a Arc<BufferCore>> {
        Some(passed.core())
    }
    fn span<'a>(slot: Slot<'a>, _groups: usize) -> Self::Span<'a> {
        match slot {
            Slot::Read(bytes) => bytemuck::cast_slice(bytes),
            Slot::Write(bytes) => bytemuck::cast_slice(bytes),
            Slot::Scalar(_) => unreachable!("a buffer argument has a buffer slot"),
        }
    }
    fn split<'a>(span: Self::Span<'a>, _at: usize) -> (Self::Span<'a>, Self::Span<'a>) {
        (span, span)
    }
    fn next<'a>(span: &mut Self::Span<'a>) -> Self::Item<'a> {
        span
    }
}

/// The shares of a range of threads, `share` elements each.
#[doc(hidden)]
#[derive(Debug)]
pub struct Shares<'a, T> {
    elements: &'a mut [T],
    share: usize,
}

impl<T: Element> sealed::Arg for Out<T> {}
#[allow(private_interfaces)]
impl<T: Element> Arg for Out<T> {
    type Passed<'a> = &'a Buffer<T>;
    type Span<'a> = Shares<'a, T>;
    type Item<'a> = &'a mut [T];

    fn raw<'a>(passed: &'a Self::Passed<'_>) -> RawArg<'a> {
        buffer_arg(passed, Access::Own)
    }
    fn buffer<'a>(passed: &'a Self::Passed<'_>) -> Option<&'a Arc<BufferCore>> {
        Some(passed.core())
    }
    fn span<'a>(slot: Slot<'a>, groups: usize) -> Self::Span<'a> {
        let Slot::Write(bytes) = slot else { unreachable!("an Out argument has a writable slot") };
        let elements: &mut [T] = bytemuck::cast_slice_mut(bytes);
        let share = elements.len() / groups.max(1);
        Shares { elements, share }
    }
    fn split<'a>(span: Self::Span<'a>, at: usize) -> (Self::Span<'a>, Self::Span<'a>) {
        let (left, right) = span.elements.split_at_mut(at * span.share);
        (
            Shares { elements: left, share: span.share },
            Shares { elements: right, share: span.share },
        )
    }
    fn next<'a>(span: &mut Self::Span<'a>) -> Self::Item<'a> {
        let (item, rest) = std::mem::take(&mut span.elements).split_at_mut(span.share);
        span.elements = rest;
        item
    }
}

/// A buffer that all threads of a host function read and write, by relaxed atomic accesses of 4
/// bytes: a race gives a mixed value, as on a GPU, and never undefined behaviour.
#[derive(Clone, Copy, Debug)]
pub struct SharedSlice<'a, T> {
    words: &'a [AtomicU32],
    element: PhantomData<T>,
}

impl<T: Element> SharedSlice<'_, T> {
    const WORDS: usize = {
        assert!(
            size_of::<T>() > 0 && size_of::<T>().is_multiple_of(4),
            "Shared<T>: T's size must be a multiple of 4 bytes"
        );
        size_of::<T>() / 4
    };

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.len() / Self::WORDS
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Reads element `index`.
    ///
    /// # Panics
    ///
    /// If `index` is not below [`len`](Self::len).
    #[must_use]
    pub fn get(&self, index: usize) -> T {
        let mut value = T::zeroed();
        let words = &self.words[index * Self::WORDS..][..Self::WORDS];
        for (bytes, word) in bytemuck::bytes_of_mut(&mut value).chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        value
    }

    /// Writes element `index`.
    ///
    /// # Panics
    ///
    /// If `index` is not below [`len`](Self::len).
    pub fn set(&self, index: usize, value: T) {
        let words = &self.words[index * Self::WORDS..][..Self::WORDS];
        for (bytes, word) in bytemuck::bytes_of(&value).chunks_exact(4).zip(words) {
            let bytes = bytes.try_into().expect("chunks of 4 bytes");
            word.store(u32::from_ne_bytes(bytes), Ordering::Relaxed);
        }
    }
}

macro_rules! shared_add {
    ($($number:ty: $add:expr;)*) => {$(
        impl SharedSlice<'_, $number> {
            /// Adds `value` to element `index` atomically (wrapping, for integers) and returns
            /// what was there, as CUDA's `atomicAdd`.
            ///
            /// # Panics
            ///
            /// If `index` is not below [`len`](Self::len).
            pub fn add(&self, index: usize, value: $number) -> $number {
                let add: fn($number, $number) -> $number = $add;
                let from = |bits: u32| <$number>::from_ne_bytes(bits.to_ne_bytes());
                let step = |bits| Some(u32::from_ne_bytes(add(from(bits), value).to_ne_bytes()));
                let old = self.words[index]
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, step)
                    .expect("the step always gives a value");
                from(old)
            }
        }
    )*};
}

shared_add! {
    u32: u32::wrapping_add;
    i32: i32::wrapping_add;
    f32: |a, b| a + b;
}

impl<T: Element> sealed::Arg for Shared<T> {}
#[allow(private_interfaces)]
impl<T: Element> Arg for Shared<T> {
    type Passed<'a> = &'a Buffer<T>;
    type Span<'a> = SharedSlice<'a, T>;
    type Item<'a> = SharedSlice<'a, T>;

    fn raw<'a>(passed: &'a Self::Passed<'_>) -> RawArg<'a> {
        buffer_arg(passed, Access::Shared)
    }
    fn buffer<'a>(passed: &'a Self::Passed<'_>) -> Option<&'a Arc<BufferCore>> {
        Some(passed.core())
    }
    fn span<'a>(slot: Slot<'a>, _groups: usize) -> Self::Span<'a> {
        let Slot::Write(bytes) = slot else {
            unreachable!("a Shared argument has a writable slot")
        };
        let words: &'a mut [u32] = bytemuck::cast_slice_mut(bytes);
        SharedSlice { words: as_atomic(words), element: PhantomData }
    }
    fn split<'a>(span: Self::Span<'a>, _at: usize) -> (Self::Span<'a>, Self::Span<'a>) {
        (span, span)
    }
    fn next<'a>(span: &mut Self::Span<'a>) -> Self::Item<'a> {
        *span
    }
}

#[allow(unsafe_code)]
fn as_atomic(words: &mut [u32]) -> &[AtomicU32] {
    let (pointer, len) = (words.as_mut_ptr(), words.len());
    // SAFETY: `AtomicU32` has the size, alignment and bit validity of `u32` (its documentation
    // says so), and the exclusive borrow is given up for the shared one's whole lifetime, so no
    // access that is not atomic can happen meanwhile.
    unsafe { std::slice::from_raw_parts(pointer.cast::<AtomicU32>(), len) }
}

#[diagnostic::do_not_recommend]
impl<T: Element> sealed::Arg for T {}
#[diagnostic::do_not_recommend]
#[allow(private_interfaces)]
impl<T: Element> Arg for T {
    type Passed<'a> = T;
    type Span<'a> = T;
    type Item<'a> = T;

    fn raw<'a>(passed: &'a Self::Passed<'_>) -> RawArg<'a> {
        RawArg::Scalar(bytemuck::bytes_of(passed))
    }
    fn buffer<'a>(_passed: &'a Self::Passed<'_>) -> Option<&'a Arc<BufferCore>> {
        None
    }
    fn span<'a>(slot: Slot<'a>, _groups: usize) -> Self::Span<'a> {
        match slot {
            Slot::Scalar(bytes) => bytemuck::pod_read_unaligned(bytes),
            _ => unreachable!("a value argument has a value slot"),
        }
    }
    fn split<'a>(span: Self::Span<'a>, _at: usize) -> (Self::Span<'a>, Self::Span<'a>) {
        (span, span)
    }
    fn next<'a>(span: &mut Self::Span<'a>) -> Self::Item<'a> {
        *span
    }
}
