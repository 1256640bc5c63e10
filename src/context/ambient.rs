//! Which stream a call goes to (S15): explicit > ambient > the runner's default > a foreign
//! framework's capturing stream > the device's current stream.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;

use crate::device::{Device, DeviceKind, Stream};
use crate::error::Result;

thread_local! {
    static AMBIENT: RefCell<Vec<Stream>> = const { RefCell::new(Vec::new()) };
}

/// The scope that a running body opens for what it calls, in its thread.
pub(crate) struct Ambient(());

impl Ambient {
    pub(crate) fn enter(stream: &Stream) -> Self {
        AMBIENT.with_borrow_mut(|streams| streams.push(stream.clone()));
        Self(())
    }
}

impl Drop for Ambient {
    fn drop(&mut self) {
        let stream = AMBIENT.with_borrow_mut(Vec::pop);
        // Dropped outside the borrow: the last handle of a stream calls the driver.
        drop(stream);
    }
}

fn ambient(device: &Device) -> Option<Stream> {
    AMBIENT.with_borrow(|streams| {
        streams.iter().rev().find(|stream| stream.device_id() == device.id()).cloned()
    })
}

/// Resolves the stream of one call.
pub(crate) fn resolve(
    device: &Device,
    explicit: Option<&Stream>,
    default: Option<&Stream>,
) -> Result<Stream> {
    if device.kind() == DeviceKind::Host {
        return Ok(device.current_stream());
    }
    if let Some(stream) = explicit {
        device.check_stream(stream, "the stream of this call")?;
        return Ok(stream.clone());
    }
    if let Some(stream) = ambient(device) {
        return Ok(stream);
    }
    if let Some(stream) = default {
        return Ok(stream.clone());
    }
    Ok(foreign_capture(device).unwrap_or_else(|| device.current_stream()))
}

type Probe = dyn Fn(&Device) -> Option<Stream> + Send + Sync;

static PROBES: RwLock<Vec<(usize, Arc<Probe>)>> = RwLock::new(Vec::new());
static PROBE_COUNT: AtomicUsize = AtomicUsize::new(0);

/// A registered probe; dropping it takes the probe back.
#[derive(Debug)]
#[must_use = "dropping this takes the probe back"]
pub struct ForeignProbe {
    id: usize,
}

/// Registers a probe for a foreign framework: asked in the calling thread, it gives the stream that
/// the framework is capturing there on this device, if any (S15).
///
/// Calls that name no stream then record into that capture, construction and preparing are refused
/// (S18), and no host synchronisation is made (S33). The probe must not launch, wait or allocate.
///
/// ```
/// let probe = graph_runner::register_foreign_probe(|_device| None);
/// drop(probe);
/// ```
pub fn register_foreign_probe(
    probe: impl Fn(&Device) -> Option<Stream> + Send + Sync + 'static,
) -> ForeignProbe {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut probes = PROBES.write();
    probes.push((id, Arc::new(probe)));
    PROBE_COUNT.store(probes.len(), Ordering::Release);
    ForeignProbe { id }
}

impl Drop for ForeignProbe {
    fn drop(&mut self) {
        let mut probes = PROBES.write();
        probes.retain(|(id, _)| *id != self.id);
        PROBE_COUNT.store(probes.len(), Ordering::Release);
    }
}

/// The stream that a foreign framework captures in this thread on `device`.
pub(crate) fn foreign_capture(device: &Device) -> Option<Stream> {
    if PROBE_COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let probes: Vec<Arc<Probe>> = PROBES.read().iter().map(|(_, probe)| probe.clone()).collect();
    probes.iter().find_map(|probe| probe(device)).filter(|s| s.device_id() == device.id())
}
