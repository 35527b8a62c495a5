//! A scripted ACP agent and a fake model server, for tests.

fn main() {}
