//! The operator: serve, controller, gateway, migrate, crd, release.

fn main() {}
