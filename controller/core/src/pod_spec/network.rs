//! The NetworkPolicy of a namespace with sessions: who may reach agent Pods, and what these may reach.

use std::collections::BTreeMap;

use crds::names;
use k8s_openapi::{
    api::networking::v1::{
        IPBlock, NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer,
        NetworkPolicyPort, NetworkPolicySpec,
    },
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta},
        util::intstr::IntOrString,
    },
};

use super::metadata::common_labels;

/// Label that every namespace has, with its own name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
const DNS_PORT: i32 = 53;
const EVERYTHING: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// IPv4 ranges that are not the internet: this network, private, shared (providers keep metadata services in it), loopback, link-local with the
/// metadata address, protocol assignments with another one, benchmarks, multicast, reserved; and the host agent of one provider, which sits at a
/// public address.
const NOT_INTERNET_V4: [&str; 12] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "168.63.129.16/32",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
];
/// The same for IPv6, and the private IPv4 ranges as a NAT64 gateway would translate them.
const NOT_INTERNET_V6: [&str; 9] = [
    "::1/128",
    "64:ff9b::a00:0/104",
    "64:ff9b::6440:0/106",
    "64:ff9b::a9fe:0/112",
    "64:ff9b::ac10:0/108",
    "64:ff9b::c0a8:0/112",
    "fc00::/7",
    "fe80::/10",
    "ff00::/8",
];

/// What agents may reach beside DNS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Egress {
    /// Everything but cluster, nodes, private, link-local and metadata ranges. Agents must reach their model.
    #[default]
    Internet,
    /// Nothing but the extra rules.
    None,
}

/// What the installation decides for the network of every agent Pod.
#[derive(Clone, Debug, Default)]
pub struct NetworkSettings {
    /// Namespace of the gateway.
    pub gateway_namespace: String,
    /// Labels that the gateway's Pods have.
    pub gateway_labels: BTreeMap<String, String>,
    /// What agents may reach.
    pub egress: Egress,
    /// Ranges of cluster and nodes that are none of the private ones, in CIDR notation.
    pub cluster_ranges: Vec<String>,
    /// Further rules: a model inside the cluster.
    pub extra: Vec<NetworkPolicyEgressRule>,
}

/// The policy that the controller keeps in a namespace.
#[must_use]
pub fn network_policy(namespace: &str, settings: &NetworkSettings) -> NetworkPolicy {
    let mut egress = vec![NetworkPolicyEgressRule {
        // Anywhere: node-local DNS sits in the link-local range.
        ports: Some(vec![port(DNS_PORT, "UDP"), port(DNS_PORT, "TCP")]),
        to: None,
    }];
    match settings.egress {
        Egress::Internet => egress.push(internet(&settings.cluster_ranges)),
        Egress::None => {}
    }
    egress.extend(settings.extra.iter().cloned());
    NetworkPolicy {
        metadata: ObjectMeta {
            labels: Some(common_labels()),
            name: Some(names::NETWORK_POLICY.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(NetworkPolicySpec {
            egress: Some(egress),
            ingress: Some(vec![from_gateway(settings)]),
            pod_selector: Some(our_pods()),
            policy_types: Some(vec!["Ingress".to_owned(), "Egress".to_owned()]),
        }),
    }
}

/// Every agent Pod, of whatever session, and nobody else's.
fn our_pods() -> LabelSelector {
    LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: names::LABEL_SESSION_UID.to_owned(),
            operator: "Exists".to_owned(),
            values: None,
        }]),
        match_labels: None,
    }
}

/// One peer with both selectors: the gateway's Pods in its namespace. Two peers would be an "or".
fn from_gateway(settings: &NetworkSettings) -> NetworkPolicyIngressRule {
    let labels =
        |labels: BTreeMap<String, String>| LabelSelector { match_labels: Some(labels), match_expressions: None };
    let namespace = (NAMESPACE_NAME.to_owned(), settings.gateway_namespace.clone());
    NetworkPolicyIngressRule {
        from: Some(vec![NetworkPolicyPeer {
            namespace_selector: Some(labels([namespace].into())),
            pod_selector: Some(labels(settings.gateway_labels.clone())),
            ip_block: None,
        }]),
        ports: Some(vec![port(names::PORT_RECORDER, "TCP")]),
    }
}

fn internet(cluster_ranges: &[String]) -> NetworkPolicyEgressRule {
    let [v4, v6] = EVERYTHING;
    let block = |cidr: &str, fixed: &[&str], is_v6: bool| {
        let ranges = cluster_ranges.iter().filter(|range| range.contains(':') == is_v6).cloned();
        let mut except: Vec<String> = fixed.iter().map(|range| (*range).to_owned()).collect();
        except.extend(ranges.filter(|range| !fixed.contains(&range.as_str())));
        NetworkPolicyPeer {
            ip_block: Some(IPBlock { cidr: cidr.to_owned(), except: Some(except) }),
            ..NetworkPolicyPeer::default()
        }
    };
    NetworkPolicyEgressRule {
        ports: None,
        to: Some(vec![block(v4, &NOT_INTERNET_V4, false), block(v6, &NOT_INTERNET_V6, true)]),
    }
}

fn port(number: i32, protocol: &str) -> NetworkPolicyPort {
    NetworkPolicyPort { end_port: None, port: Some(IntOrString::Int(number)), protocol: Some(protocol.to_owned()) }
}
