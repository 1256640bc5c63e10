//! Warnings: a downgrade that somebody should know of, once for each runner (S20, S21).

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

/// Something that a runner does for good and that costs speed, with the remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Warning {
    /// A new variant runs eagerly, as every further one will (S20).
    VariantLimit {
        /// The producer.
        producer: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A variant stays eager, since other threads broke its captures in three calls (S21).
    GivenUp {
        /// The producer.
        producer: &'static str,
        /// The variant, by its `Debug`.
        variant: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VariantLimit { producer, limit } => write!(
                f,
                "`{producer}`: graphs of {limit} variants are cached, so calls with a further one \
                 run eagerly; pass fewer different variants, or raise the limit with \
                 `GraphRunner::set_variant_limit`"
            ),
            Self::GivenUp { producer, variant } => write!(
                f,
                "`{producer}`: other threads broke the captures of variant {variant} in three \
                 calls, so it runs eagerly from now on; keep context-wide synchronisation away from \
                 first runs, and call `GraphRunner::drop_graphs` to try again"
            ),
        }
    }
}

type Hook = dyn Fn(&Warning) + Send + Sync;

static HOOK: RwLock<Option<Arc<Hook>>> = RwLock::new(None);

/// Sends warnings to `hook` instead of the standard error stream (or, with the feature `tracing`,
/// to the current subscriber).
///
/// ```
/// graph_runner::set_warning_hook(|warning| eprintln!("{warning}"));
/// ```
pub fn set_warning_hook(hook: impl Fn(&Warning) + Send + Sync + 'static) {
    *HOOK.write() = Some(Arc::new(hook));
}

pub(crate) fn warn(warning: &Warning) {
    let hook = HOOK.read().clone();
    match hook {
        Some(hook) => hook(warning),
        #[cfg(feature = "tracing")]
        None => tracing::warn!(target: "graph_runner", "{warning}"),
        #[cfg(not(feature = "tracing"))]
        None => eprintln!("graph-runner: {warning}"),
    }
}
