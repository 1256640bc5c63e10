//! What a body is, in the type system (S9 to S12, S14).

/// A body that only enqueues: it can be recorded into a caller's capture, captured and replayed.
///
/// A type-level name; it has no values.
#[derive(Debug)]
pub enum Capturable {}

/// A body of named parts, some of which need the host between device work.
///
/// A type-level name; it has no values.
#[derive(Debug)]
pub enum HostSegmented {}

/// A body that launches on the device's current stream by itself.
///
/// A type-level name; it has no values.
#[derive(Debug)]
pub enum Legacy {}

/// The kind of two producers in a row (S14): one HOST stage makes the whole segmented, and one
/// legacy member makes a capturable whole legacy.
pub trait Join<K> {
    /// The kind of the whole.
    type Output;
}

impl<K> Join<K> for Capturable {
    type Output = K;
}
impl<K> Join<K> for HostSegmented {
    type Output = HostSegmented;
}
impl Join<Capturable> for Legacy {
    type Output = Legacy;
}
impl Join<Legacy> for Legacy {
    type Output = Legacy;
}
impl Join<HostSegmented> for Legacy {
    type Output = HostSegmented;
}
