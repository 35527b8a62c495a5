//! Points at which a test build kills its own process: before and after every effect.
//!
//! With the feature `failpoints`, `AGENTSESSION_FAILPOINT=<effect>:before|after` makes the first such point end the process by SIGKILL, so that
//! nothing of it has a chance to clean up. Without the feature this is nothing at all.

/// Passes the point `<effect>:<when>`, or does not survive it.
#[cfg(feature = "failpoints")]
pub fn pass(effect: &str, when: &str) {
    use std::sync::OnceLock;

    static ARMED: OnceLock<Option<String>> = OnceLock::new();
    let armed = ARMED.get_or_init(|| std::env::var("AGENTSESSION_FAILPOINT").ok());
    if armed.as_deref().is_some_and(|point| point.split_once(':') == Some((effect, when))) {
        tracing::warn!(effect, when, "failpoint reached");
        let this = std::process::id().to_string();
        // The shell's kill is the one way to a SIGKILL of oneself without unsafe code.
        let _ = std::process::Command::new("kill").args(["-KILL", &this]).status();
        std::process::abort();
    }
}

/// Passes the point.
#[cfg(not(feature = "failpoints"))]
#[inline]
pub fn pass(_effect: &str, _when: &str) {}
