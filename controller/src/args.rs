//! What can be set from outside: flags, each also an environment variable.

use std::{net::SocketAddr, path::PathBuf};

use k8s_openapi::api::networking::v1::NetworkPolicyEgressRule;

/// Settings of the controller, to be flattened into the arguments of a program.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Controller")]
#[group(id = "controller")]
pub struct Args {
    /// Image that has agentsession-sandbox; it is what install and record run in agent Pods
    #[arg(long, env = "AGENTSESSION_SANDBOX_IMAGE")]
    pub sandbox_image: String,

    /// imagePullPolicy of that image: Always, IfNotPresent or Never
    #[arg(long, env = "AGENTSESSION_SANDBOX_IMAGE_PULL_POLICY", default_value = "IfNotPresent")]
    pub sandbox_image_pull_policy: String,

    /// Name of a Secret, in the namespace of each session, to pull that image with
    #[arg(long, env = "AGENTSESSION_SANDBOX_IMAGE_PULL_SECRET")]
    pub sandbox_image_pull_secret: Option<String>,

    /// Uid, gid and fsGroup of all containers of agent Pods; "none" leaves them to the cluster (OpenShift)
    #[arg(long, env = "AGENTSESSION_RUN_AS_USER", default_value = "1000", value_parser = run_as_user)]
    pub run_as_user: RunAsUser,

    /// What agent Pods may reach beside DNS: Internet (all but cluster, node, private and metadata ranges) or None
    #[arg(long, env = "AGENTSESSION_AGENT_EGRESS", default_value = "Internet", value_enum)]
    pub agent_egress: AgentEgress,

    /// More that they may reach: a JSON list of NetworkPolicy egress rules
    #[arg(long, env = "AGENTSESSION_AGENT_EGRESS_EXTRA", default_value = "[]", value_parser = egress_rules)]
    pub agent_egress_extra: EgressRules,

    /// CIDRs beside the private ranges that Internet leaves out (Pods, Services, nodes)
    #[arg(long, env = "AGENTSESSION_CLUSTER_CIDRS", value_delimiter = ',')]
    pub cluster_cidrs: Vec<String>,

    /// Namespaces to look after; empty is all
    #[arg(long, env = "AGENTSESSION_WATCH_NAMESPACES", value_delimiter = ',')]
    pub watch_namespaces: Vec<String>,

    /// Namespace of the gateway's Pods, which alone may reach a recorder
    #[arg(long, env = "AGENTSESSION_GATEWAY_NAMESPACE", default_value = "agentsession-system")]
    pub gateway_namespace: String,

    /// Labels of the gateway's Pods, as k=v,k=v
    #[arg(
        long,
        env = "AGENTSESSION_GATEWAY_LABELS",
        default_value = "app.kubernetes.io/name=agentsession",
        value_delimiter = ','
    )]
    pub gateway_labels: Vec<String>,

    /// Elect a leader by a Lease; for more than one replica, so only with Postgres
    #[arg(
        long,
        env = "AGENTSESSION_LEADER_ELECT",
        default_value_t = false,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    pub leader_elect: bool,

    /// Namespace of that Lease
    #[arg(long, env = "AGENTSESSION_NAMESPACE", default_value = "agentsession-system")]
    pub namespace: String,

    /// File with the operator's key, from which session tokens are derived
    #[arg(long, env = "AGENTSESSION_OPERATOR_KEY_FILE")]
    pub operator_key_file: Option<PathBuf>,

    /// Address of /livez, /readyz and /metrics
    #[arg(long, env = "AGENTSESSION_OPS_LISTEN", default_value = "127.0.0.1:9090")]
    pub ops_listen: SocketAddr,

    /// Execs into recorders at once
    #[arg(long, env = "AGENTSESSION_EXEC_CONCURRENCY", default_value_t = 32)]
    pub exec_concurrency: usize,

    /// Bytes of logs that harvests may hold in memory, all together
    #[arg(long, env = "AGENTSESSION_HARVEST_MEMORY_BYTES", default_value_t = 256 << 20)]
    pub harvest_memory_bytes: u64,

    /// Bytes of parts that one session may store
    #[arg(long, env = "AGENTSESSION_SESSION_QUOTA_BYTES", default_value_t = transcript::limits::SESSION_BYTES)]
    pub session_quota_bytes: u64,
}

/// What agent Pods may reach beside DNS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum AgentEgress {
    /// Everything but cluster, node, private and metadata ranges.
    Internet,
    /// Nothing.
    None,
}

/// `--run-as-user`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunAsUser(pub Option<i64>);

/// `--agent-egress-extra`.
#[derive(Clone, Debug, PartialEq)]
pub struct EgressRules(pub Vec<NetworkPolicyEgressRule>);

fn run_as_user(text: &str) -> Result<RunAsUser, String> {
    if text == "none" {
        return Ok(RunAsUser(None));
    }
    match text.parse::<i64>() {
        Ok(uid) if uid > 0 => Ok(RunAsUser(Some(uid))),
        Ok(_) => Err("0 is root, which Pod Security \"restricted\" refuses; give another uid, or \"none\"".to_owned()),
        Err(_) => Err("give a uid such as 1000, or \"none\" to leave it to the cluster".to_owned()),
    }
}

fn egress_rules(text: &str) -> Result<EgressRules, String> {
    serde_json::from_str(text).map(EgressRules).map_err(|error| {
        format!("{error}; give a JSON list of NetworkPolicy egress rules, such as [{{\"to\":[{{\"namespaceSelector\":{{}}}}]}}]")
    })
}

impl Args {
    /// `--gateway-labels` as pairs.
    ///
    /// # Errors
    /// Says which one has no `=`.
    pub fn gateway_labels(&self) -> Result<Vec<(String, String)>, String> {
        let pair = |label: &String| match label.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(format!("--gateway-labels: {label:?} is not key=value")),
        };
        self.gateway_labels.iter().filter(|label| !label.is_empty()).map(pair).collect()
    }

    /// `--watch-namespaces` without empty ones.
    #[must_use]
    pub fn namespaces(&self) -> Vec<String> {
        self.watch_namespaces.iter().filter(|namespace| !namespace.is_empty()).cloned().collect()
    }
}
