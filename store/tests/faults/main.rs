//! What happens when the ground moves: servers killed, paused, read-only and full, writers killed, roles without rights.

mod grants;
mod postgres;
mod sqlite;
mod work;
