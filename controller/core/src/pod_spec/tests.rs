use k8s_openapi::api::core::v1::{Container, Volume};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::fixtures::session;

fn plan() -> PodPlan {
    PodPlan { attempt: Attempt(1), nonce: "0123456789abcdef0123456789abcdef".to_owned(), recorder_token_sha256: None }
}

fn settings() -> PodSettings {
    PodSettings::new("ghcr.io/agentsession/agentsession-sandbox:0.1.0")
}

/// A session that uses everything.
fn full() -> AgentSession {
    session(json!({"spec": {
        "mode": "Autonomous",
        "agent": {
            "image": "ghcr.io/acme/claude:1",
            "command": ["claude-agent-acp", "--verbose"],
            "env": [
                {"name": "ANTHROPIC_API_KEY", "valueFrom": {"secretKeyRef": {"name": "claude", "key": "key"}}},
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "CONFIG", "value": "$(HOME)/config"},
            ],
            "resources": {"limits": {"cpu": 2, "memory": "4Gi"}},
        },
        "workspace": {
            "volumeClaimTemplate": {
                "metadata": {"labels": {"team": "a", "agentsession.dev/session-uid": "forged"}, "annotations": {"note": "x"}},
                "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "10Gi"}}},
            },
            "setup": {"image": "alpine/git:2", "command": ["git", "clone", "https://example.com/repo.git", "."],
                      "env": [{"name": "HOME", "value": "/workspace"}]},
        },
        "podTemplate": {
            "runtimeClassName": "gvisor",
            "nodeSelector": {"pool": "agents"},
            "tolerations": [{"key": "agents", "operator": "Exists", "effect": "NoSchedule"}],
            "imagePullSecrets": [{"name": "registry"}],
            "labels": {"team": "a", "app.kubernetes.io/managed-by": "forged", "agentsession.dev/attempt": "99"},
            "annotations": {
                "example.com/cost-center": "42",
                "agentsession.dev/nonce": "forged",
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
                "container.apparmor.security.beta.kubernetes.io/agent": "unconfined",
            },
            "volumes": [
                {"name": "config", "configMap": {"name": "codex"}},
                {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
            ],
            "volumeMounts": [
                {"name": "config", "mountPath": "/home/agent/.codex/config.toml", "subPath": "config.toml", "readOnly": true},
                {"name": "scratch", "mountPath": "/scratch"},
            ],
        },
    }}))
}

fn pod_of(session: &AgentSession) -> Pod {
    agent_pod(session, &plan(), &settings())
}

fn container<'a>(pod: &'a Pod, name: &str) -> &'a Container {
    let spec = pod.spec.as_ref().unwrap();
    spec.containers.iter().chain(spec.init_containers.iter().flatten()).find(|c| c.name == name).unwrap()
}

#[test]
fn the_pod_of_a_minimal_session() {
    insta::assert_yaml_snapshot!(pod_of(&session(json!({}))));
}

#[test]
fn the_pod_of_a_session_that_uses_everything() {
    let plan = PodPlan { attempt: Attempt(7), recorder_token_sha256: Some("ab".repeat(32)), ..plan() };
    let settings = PodSettings {
        sandbox_pull_policy: PullPolicy::Always,
        sandbox_pull_secret: Some("sandbox-registry".to_owned()),
        ..settings()
    };
    insta::assert_yaml_snapshot!(agent_pod(&full(), &plan, &settings));
}

#[test]
fn the_pod_where_the_platform_gives_out_users() {
    let settings = PodSettings { run_as_user: None, ..settings() };
    let pod = agent_pod(&session(json!({})), &plan(), &settings);
    insta::assert_yaml_snapshot!(pod.spec.unwrap().security_context);
    // Nothing else depends on it.
    let given = pod_of(&session(json!({})));
    assert_eq!(pod.metadata, given.metadata);
    assert_eq!(container(&agent_pod(&session(json!({})), &plan(), &settings), "agent"), container(&given, "agent"));
}

#[test]
fn the_claim_of_a_workspace() {
    insta::assert_yaml_snapshot!(workspace_claim(&full()).unwrap());
    assert!(workspace_claim(&session(json!({}))).is_none());
    assert!(workspace_claim(&session(json!({"spec": {"workspace": {"setup": {"command": ["true"]}}}}))).is_none());
}

fn network() -> NetworkSettings {
    NetworkSettings {
        gateway_namespace: "agentsession-system".to_owned(),
        gateway_labels: [("app.kubernetes.io/name".to_owned(), "agentsession".to_owned())].into(),
        cluster_ranges: vec!["203.0.113.0/24".to_owned(), "10.0.0.0/8".to_owned(), "2001:db8::/32".to_owned()],
        ..NetworkSettings::default()
    }
}

#[test]
fn the_network_policy_of_a_namespace() {
    insta::assert_yaml_snapshot!(network_policy("team-a", &network()));
}

#[test]
fn without_egress_only_names_are_resolved_and_extra_rules_are_added() {
    let extra = serde_json::from_value(
        json!({"to": [{"namespaceSelector": {}}], "ports": [{"port": 8000, "protocol": "TCP"}]}),
    );
    let settings = NetworkSettings { egress: Egress::None, extra: vec![extra.unwrap()], ..network() };
    let egress = network_policy("team-a", &settings).spec.unwrap().egress.unwrap();
    assert_eq!(egress.len(), 2, "{egress:?}");
    assert!(egress[0].to.is_none() && egress[0].ports.as_ref().is_some_and(|ports| ports.len() == 2));
    assert_eq!(egress[1], settings.extra[0]);
}

#[test]
fn every_container_has_requests_and_the_recorder_no_limit_on_cpu() {
    let pod = pod_of(&full());
    for name in ["agent", "recorder", "install", "setup"] {
        let resources = container(&pod, name).resources.clone().unwrap();
        let counts = |resource: &str| {
            let has =
                |map: &Option<BTreeMap<String, Quantity>>| map.as_ref().is_some_and(|map| map.contains_key(resource));
            has(&resources.requests) || has(&resources.limits)
        };
        assert!(counts("cpu") && counts("memory"), "{name}: {resources:?}");
    }
    let recorder = container(&pod, "recorder").resources.clone().unwrap();
    assert!(!recorder.limits.unwrap().contains_key("cpu"));
    // A limit without a request is its own request; a default beside it could be above it.
    assert_eq!(container(&pod, "agent").resources.clone().unwrap().requests, None);
}

#[test]
fn only_the_driver_writes_the_log_and_only_the_recorder_the_inbox() {
    let pod = pod_of(&full());
    let writers = |volume: &str| {
        let spec = pod.spec.as_ref().unwrap();
        let all = spec.init_containers.iter().flatten().chain(&spec.containers);
        let writes = |c: &&Container| {
            c.volume_mounts.iter().flatten().any(|mount| mount.name == volume && mount.read_only != Some(true))
        };
        all.filter(writes).map(|c| c.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(writers(names::VOLUME_BIN), ["install"]);
    assert_eq!(writers(names::VOLUME_LOG), ["agent"]);
    assert_eq!(writers(names::VOLUME_INBOX), ["recorder"]);
    assert_eq!(writers(names::VOLUME_WORK), ["setup", "agent"]);
}

#[test]
fn the_user_may_move_home_but_not_take_a_variable_of_ours() {
    let session = session(json!({"spec": {"agent": {"env": [
        {"name": "HOME", "value": "/workspace"}, {"name": "AGENTSESSION_ATTEMPT", "value": "99"},
    ]}}}));
    let env = container(&pod_of(&session), "agent").env.clone().unwrap();
    let pairs: Vec<_> = env.iter().map(|var| (var.name.as_str(), var.value.as_deref().unwrap_or_default())).collect();
    assert_eq!(pairs, [("AGENTSESSION_ATTEMPT", "1"), ("HOME", "/workspace")]);
}

#[test]
fn the_same_session_plan_and_settings_make_the_same_object() {
    let text = |session: &AgentSession| serde_json::to_string(&pod_of(session)).unwrap();
    assert_eq!(text(&full()), text(&full()));
}

/// Everything of a Pod that confines what runs in it, or that the record depends on.
fn security(pod: &Pod) -> Value {
    let spec = pod.spec.clone().unwrap();
    let containers = |list: &[Container]| -> Vec<Value> {
        list.iter()
            .map(|c| {
                let ours: Vec<_> =
                    c.volume_mounts.iter().flatten().filter(|m| m.name.starts_with(names::VOLUME_PREFIX)).collect();
                let ports = c.ports.iter().flatten().count();
                json!([c.name, c.security_context, ours, ports, c.lifecycle, c.volume_devices, c.stdin, c.tty])
            })
            .collect()
    };
    let inits: Vec<_> =
        spec.init_containers.iter().flatten().filter(|c| c.name != names::CONTAINER_SETUP).cloned().collect();
    let ours: Vec<_> = spec.volumes.iter().flatten().filter(|v| v.name.starts_with(names::VOLUME_PREFIX)).collect();
    let whole = |name: &str| spec.containers.iter().chain(&inits).find(|c| c.name == name).cloned();
    json!({
        "pod": spec.security_context, "token": spec.automount_service_account_token, "account": spec.service_account_name,
        "host": [spec.host_network, spec.host_pid, spec.host_ipc, spec.host_users, spec.share_process_namespace],
        "links": spec.enable_service_links, "restart": spec.restart_policy, "grace": spec.termination_grace_period_seconds,
        "node": spec.node_name, "priority": spec.priority_class_name, "ephemeral": spec.ephemeral_containers,
        "containers": containers(&spec.containers), "inits": containers(&inits), "volumes": ours,
        "recorder": whole("recorder"), "install": whole("install"),
        "names": [pod.metadata.name, pod.metadata.namespace], "finalizers": pod.metadata.finalizers,
        "owners": pod.metadata.owner_references,
        "labels": pod.metadata.labels.iter().flatten().filter(|(key, _)| key.starts_with(names::KEY_PREFIX)).collect::<Vec<_>>(),
        "nonce": pod.metadata.annotations.as_ref().and_then(|map| map.get(names::ANNOTATION_NONCE)),
        "evict": pod.metadata.annotations.as_ref().and_then(|map| map.get(names::ANNOTATION_SAFE_TO_EVICT)),
    })
}

fn is_of_the_closed_list(volume: &Volume) -> bool {
    let known = [
        volume.config_map.is_some(),
        volume.secret.is_some(),
        volume.empty_dir.is_some(),
        volume.persistent_volume_claim.is_some(),
        volume.ephemeral.is_some(),
        volume.csi.is_some(),
        volume.image.is_some(),
    ];
    let mut rest = volume.clone();
    rest.config_map = None;
    rest.secret = None;
    rest.empty_dir = None;
    rest.persistent_volume_claim = None;
    rest.ephemeral = None;
    rest.csi = None;
    rest.image = None;
    known.into_iter().filter(|kind| *kind).count() == 1
        && rest == Volume { name: rest.name.clone(), ..Volume::default() }
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(names::LABEL_SESSION_UID.to_owned()),
        Just(names::LABEL_ATTEMPT.to_owned()),
        Just(names::ANNOTATION_NONCE.to_owned()),
        Just(names::ANNOTATION_SAFE_TO_EVICT.to_owned()),
        Just("container.apparmor.security.beta.kubernetes.io/agent".to_owned()),
        Just("seccomp.security.alpha.kubernetes.io/pod".to_owned()),
        "[a-z]{1,8}(/[a-z]{1,8})?",
    ]
}

fn volume() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        Just(names::VOLUME_LOG.to_owned()),
        Just(names::VOLUME_INBOX.to_owned()),
        Just("agentsession-x".to_owned()),
        "[a-z]{1,6}",
    ];
    let source = prop_oneof![
        Just(json!({"configMap": {"name": "c"}})),
        Just(json!({"secret": {"secretName": "s"}})),
        Just(json!({"emptyDir": {"medium": "Memory"}})),
        Just(json!({"persistentVolumeClaim": {"claimName": "p"}})),
        Just(json!({"csi": {"driver": "d"}})),
        Just(json!({"image": {"reference": "i:1"}})),
        Just(json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1Gi"}}}}}})),
    ];
    (name, source).prop_map(|(name, mut source)| {
        source["name"] = json!(name);
        source
    })
}

fn mount() -> impl Strategy<Value = Value> {
    let path = prop_oneof![
        Just("/agentsession/log".to_owned()),
        Just("/agentsession/bin".to_owned()),
        Just("/x/../agentsession/inbox".to_owned()),
        Just("//agentsession".to_owned()),
        Just("/proc".to_owned()),
        Just("/".to_owned()),
        "/[a-z]{1,6}(/[a-z]{1,6})?",
    ];
    let name = prop_oneof![Just(names::VOLUME_LOG.to_owned()), Just(names::VOLUME_BIN.to_owned()), "[a-z]{1,6}"];
    (name, path).prop_map(|(name, path)| json!({"name": name, "mountPath": path}))
}

prop_compose! {
    fn hostile()(
        labels in prop::collection::btree_map(key(), "[a-z]{0,6}", 0..6),
        annotations in prop::collection::btree_map(key(), "[a-z]{0,6}", 0..6),
        volumes in prop::collection::vec(volume(), 0..6),
        mounts in prop::collection::vec(mount(), 0..6),
        env in prop::collection::vec(prop_oneof![Just("AGENTSESSION_TOKEN_SHA256".to_owned()), Just("LD_PRELOAD".to_owned()), "[A-Z]{1,6}"], 0..4),
        setup in any::<bool>(),
        runtime in prop::option::of("[a-z]{1,8}"),
        command in prop::collection::vec("\\PC{1,12}", 1..4),
        desired in prop_oneof![Just("Active"), Just("Suspended"), Just("Canceled")],
    ) -> AgentSession {
        let env: Vec<_> = env.into_iter().map(|name| json!({"name": name, "value": "v"})).collect();
        let setup = setup.then(|| json!({"command": command, "env": env}));
        session(json!({"spec": {
            "desiredState": desired,
            "agent": {"image": "evil:1", "command": command, "env": env, "resources": {"requests": {"cpu": "64"}}},
            "workspace": {"setup": setup},
            "podTemplate": {
                "runtimeClassName": runtime, "labels": labels, "annotations": annotations, "volumes": volumes, "volumeMounts": mounts,
                "tolerations": [{"operator": "Exists"}], "nodeSelector": {"kubernetes.io/hostname": "control-plane"},
            },
        }}))
    }
}

proptest! {
    #[test]
    fn no_field_of_a_session_changes_a_security_field_of_its_pod(hostile in hostile()) {
        let pod = pod_of(&hostile);
        prop_assert_eq!(security(&pod), security(&pod_of(&session(json!({})))));

        let spec = pod.spec.as_ref().unwrap();
        for volume in spec.volumes.iter().flatten() {
            prop_assert!(is_of_the_closed_list(volume), "{volume:?}");
        }
        let annotations = pod.metadata.annotations.as_ref().unwrap();
        prop_assert!(!annotations.keys().any(|key| key.contains(".security.")), "{annotations:?}");
        let all = spec.init_containers.iter().flatten().chain(&spec.containers);
        for container in all {
            let user = container.volume_mounts.iter().flatten().filter(|m| !m.name.starts_with(names::VOLUME_PREFIX));
            for mount in user {
                prop_assert!(!mount.mount_path.contains(names::PATH_ROOT) && !mount.mount_path.contains(".."), "{mount:?}");
            }
            let security = container.security_context.as_ref().unwrap();
            prop_assert_eq!(security.allow_privilege_escalation, Some(false));
            prop_assert_eq!(security.capabilities.as_ref().and_then(|c| c.drop.clone()), Some(vec!["ALL".to_owned()]));
        }
        let agent = spec.containers.iter().find(|c| c.name == "agent").unwrap();
        prop_assert_eq!(agent.command.as_ref().unwrap()[..3].to_vec(), [names::PATH_SANDBOX, "drive", "--"]);
    }
}
