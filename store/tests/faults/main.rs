//! What happens when the ground moves: servers killed, paused, read-only and full, writers killed, roles without rights.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails as the test does: at once and loudly")]

mod disk;
mod grants;
mod pooler;
mod postgres;
mod sqlite;
mod work;
