//! What runs inside agent Pods: install, drive, record, read, deliver.

fn main() {}
