//! Where and on what it was measured: a figure without it means nothing to anybody else.

use agentsession_e2e::Cluster;
use serde_json::{Value, json};

/// The load average of the last minute; not a number where there is none.
pub fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}

/// The machine, the cluster and the programs. The cluster may be away: not every figure needs it.
pub async fn line() -> Value {
    let (server, kubectl) = match Cluster::connect().await {
        Ok(cluster) => {
            let server = cluster.client.apiserver_version().await.map(|version| version.git_version).ok();
            let client = cluster.kubectl_ok(&["version", "--client", "-o", "json"], None).await.ok();
            let client = client.and_then(|text| serde_json::from_str::<Value>(&text).ok());
            (server, client.map(|client| client["clientVersion"]["gitVersion"].clone()))
        }
        Err(_) => (None, None),
    };
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({"conditions": {
        "at": jiff::Timestamp::now().strftime("%FT%TZ").to_string(),
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "load": load(),
        "kernel": kernel.trim(),
        "kubernetes": server,
        "kubectl": kubectl,
        "build": if cfg!(debug_assertions) { "debug: of no use" } else { "release" },
    }})
}
