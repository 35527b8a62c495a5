//! The first stage, its pure half: from objects of the cluster to what decisions see.
//!
//! The shell reads caches and hands the objects over; nothing past this module knows what a Kubernetes object looks like. Of a Pod only metadata and
//! status are read, so that the cache may drop its spec.

mod disruption;
mod pod;
mod refusal;
mod session;
mod start_error;

pub use disruption::with_node;
pub use pod::pod_view;
pub use refusal::refusal;
pub use session::session_view;

/// Bound on each of the cluster's texts that a view carries, in bytes. What is shown to people is cut further where it is shown.
pub(crate) const WORDS_BYTES: usize = 2048;
