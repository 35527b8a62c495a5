//! This crate cannot exec into a Pod: the part of the Kubernetes client that could is not compiled into it, and nothing in it calls it.

use std::{fs, path::Path, process::Command};

#[test]
fn the_kubernetes_client_of_this_crate_has_no_exec() {
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "--package",
            "agentsession-gateway",
            "--edges",
            "normal,features",
            "--prefix",
            "none",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let text = String::from_utf8_lossy(&tree.stdout);
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    assert!(text.contains("kube-client feature \"client\""), "the check reads the tree of features:\n{text}");
    for line in text.lines() {
        assert!(!line.contains("feature \"ws\"") && !line.contains("tungstenite"), "{line}");
    }
}

/// The all-in-one program compiles the controller's client too, and features add up there: so no line may even name what could exec.
#[test]
fn nothing_in_this_crate_names_exec() {
    let mut files = 0;
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for word in [
                ".exec(",
                ".attach(",
                ".portforward(",
                "AttachParams",
                "AttachedProcess",
                "core::v1::Pod",
                "core::v1::Secret",
            ] {
                assert!(!text.contains(word), "{word} in {}", path.display());
            }
            files += 1;
        }
    }
    assert!(files > 10);
}
