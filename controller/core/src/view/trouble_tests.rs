use super::*;

/// What the Pod says → reason, heals, the words that must be kept.
fn start_errors() -> Vec<(&'static str, Value, Reason, bool, &'static str)> {
    let agent = |state: Value| with_states("Pending", &state, &json!({"waiting": {"reason": "PodInitializing"}}));
    let init = |name: &str, state: Value, phase: &str| json!({"status": {"phase": phase, "initContainerStatuses": [status(name, &state)]}});
    let scheduled =
        |reason: &str, text: &str| json!({"status": {"conditions": condition("PodScheduled", "False", reason, text)}});
    vec![
        (
            "an image that cannot be pulled, yet",
            agent(waiting(
                "ImagePullBackOff",
                "Back-off pulling image \"registry.invalid/x:1\": dial tcp: no such host",
            )),
            Reason::ImagePullFailed,
            true,
            "container agent: ImagePullBackOff: Back-off pulling image \"registry.invalid/x:1\": dial tcp: no such host",
        ),
        (
            "the same in between two tries",
            agent(waiting("ErrImagePull", "rpc error: code = NotFound")),
            Reason::ImagePullFailed,
            true,
            "ErrImagePull: rpc error: code = NotFound",
        ),
        (
            "a node that must not pull and has no such image",
            agent(waiting("ErrImageNeverPull", "Container image \"x\" is not present with pull policy of Never")),
            Reason::ImagePullFailed,
            true,
            "ErrImageNeverPull",
        ),
        (
            "a name that is no image",
            agent(waiting(
                "InvalidImageName",
                "Failed to apply default image tag \"bad//NAME\": invalid reference format",
            )),
            Reason::ImagePullFailed,
            false,
            "InvalidImageName: Failed to apply default image tag \"bad//NAME\": invalid reference format",
        ),
        (
            "our own image",
            init("install", waiting("ImagePullBackOff", "Back-off pulling image \"sandbox:1\""), "Pending"),
            Reason::ImagePullFailed,
            true,
            "container install: ImagePullBackOff",
        ),
        (
            "a Secret that is not there, yet",
            agent(waiting("CreateContainerConfigError", "secret \"claude\" not found")),
            Reason::ContainerConfigError,
            true,
            "CreateContainerConfigError: secret \"claude\" not found",
        ),
        (
            "a key that is not in its ConfigMap, yet",
            agent(waiting("CreateContainerConfigError", "couldn't find key k in ConfigMap team-a/settings")),
            Reason::ContainerConfigError,
            true,
            "couldn't find key k in ConfigMap team-a/settings",
        ),
        (
            "a root image where no uid is given",
            with_states(
                "Pending",
                &waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
                &running(),
            ),
            Reason::ContainerConfigError,
            false,
            "image will run as root",
        ),
        (
            "an image with a named user where no uid is given",
            agent(waiting(
                "CreateContainerConfigError",
                "container has runAsNonRoot and image has non-numeric user (node), cannot verify user is non-root",
            )),
            Reason::ContainerConfigError,
            false,
            "non-numeric user (node)",
        ),
        (
            "a user that the image does not know",
            agent(waiting(
                "CreateContainerError",
                "failed to create containerd container: unable to find user node: no matching entries in passwd file",
            )),
            Reason::ContainerConfigError,
            false,
            "unable to find user node",
        ),
        (
            "a runtime that is too slow",
            agent(waiting("CreateContainerError", "context deadline exceeded")),
            Reason::ContainerConfigError,
            true,
            "CreateContainerError: context deadline exceeded",
        ),
        (
            "a container that is being started once more",
            agent(waiting("RunContainerError", "failed to create containerd task")),
            Reason::ContainerConfigError,
            true,
            "RunContainerError: failed to create containerd task",
        ),
        (
            "a program for another machine",
            with_states(
                "Running",
                &ended(
                    128,
                    "StartError",
                    Some(
                        "failed to create shim task: exec: \"/agentsession/bin/agentsession-sandbox\": exec format error",
                    ),
                ),
                &running(),
            ),
            Reason::ContainerConfigError,
            false,
            "container agent: StartError: failed to create shim task",
        ),
        (
            "a setup that failed",
            init("setup", ended(3, "Error", Some("fatal: repository not found")), "Pending"),
            Reason::InitFailed,
            false,
            "init container setup exited with code 3: fatal: repository not found",
        ),
        (
            "a setup that took too much memory",
            init("setup", ended(137, "OOMKilled", None), "Failed"),
            Reason::InitFailed,
            false,
            "init container setup was killed for want of memory",
        ),
        (
            "a setup whose program is not there",
            init(
                "setup",
                ended(128, "StartError", Some("exec: \"gti\": executable file not found in $PATH")),
                "Failed",
            ),
            Reason::InitFailed,
            false,
            "init container setup exited with code 128: StartError: exec: \"gti\": executable file not found in $PATH",
        ),
        (
            "an injected init container that failed for good",
            init("mesh-init", ended(1, "Error", None), "Failed"),
            Reason::InitFailed,
            false,
            "init container mesh-init exited with code 1",
        ),
        (
            "no node has room",
            scheduled("Unschedulable", "0/1 nodes are available: 1 Insufficient cpu."),
            Reason::Unschedulable,
            true,
            "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.",
        ),
        (
            "somebody else holds the scheduling back",
            scheduled("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"),
            Reason::Unschedulable,
            true,
            "SchedulingGated",
        ),
    ]
}

#[test]
fn what_keeps_a_pod_from_starting_is_told_in_the_clusters_words() {
    for (what, patch, reason, heals, words) in start_errors() {
        let Some(error) = view(patch).start_error else { panic!("nothing said of {what}") };
        assert_eq!((error.reason, error.heals), (reason, heals), "{what}");
        assert!(error.message.contains(words), "{what}: {}", error.message);
    }
}

#[test]
fn the_ordinary_steps_of_a_start_are_no_errors() {
    let init = |state: Value| json!({"status": {"initContainerStatuses": [status("install", &state)]}});
    for patch in [
        json!({"status": null}),
        json!({"status": {"conditions": condition("PodScheduled", "True", "", "")}}),
        with_states(
            "Pending",
            &json!({"waiting": {"reason": "PodInitializing"}}),
            &json!({"waiting": {"reason": "ContainerCreating"}}),
        ),
        with_states("Running", &running(), &running()),
        init(running()),
        init(ended(0, "Completed", None)),
        json!({"status": {"initContainerStatuses": [status("mesh", &ended(1, "Error", None))]}}),
    ] {
        assert_eq!(view(patch.clone()).start_error, None, "{patch}");
    }
}

#[test]
fn a_container_of_somebody_else_does_not_hold_ours_up() {
    let patch = json!({"status": {"phase": "Running", "containerStatuses": [
        status("agent", &running()), status("recorder", &running()), status("mesh", &waiting("ImagePullBackOff", "no")),
    ]}});
    assert_eq!(view(patch).start_error, None);
}

#[test]
fn a_pod_that_is_taken_away_does_not_fail_to_start() {
    let init = json!([status("setup", &ended(143, "Error", None))]);
    let deleted = json!({
        "metadata": {"deletionTimestamp": "2026-11-30T18:00:00Z", "deletionGracePeriodSeconds": 60},
        "status": {"initContainerStatuses": init},
    });
    assert_eq!(view(deleted).start_error, None);
    let evicted = json!({"status": {
        "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory.", "initContainerStatuses": init,
    }});
    let view = view(evicted);
    assert_eq!(view.start_error, None::<StartError>);
    assert_eq!(view.disruption.map(|(reason, _)| reason), Some(Reason::Evicted));
}

#[test]
fn why_a_pod_is_taken_away_is_told_in_the_clusters_words() {
    let target = |reason: &str, text: &str| json!({"status": {"phase": "Running", "conditions": condition("DisruptionTarget", "True", reason, text)}});
    let failed = |reason: &str, text: &str| json!({"status": {"phase": "Failed", "reason": reason, "message": text}});
    let cases = [
        (
            target("EvictionByEvictionAPI", "Eviction API: evicting"),
            Reason::Evicted,
            "EvictionByEvictionAPI: Eviction API: evicting",
        ),
        (target("PreemptionByScheduler", "default-scheduler: preempting"), Reason::Evicted, "PreemptionByScheduler"),
        (
            target("TerminationByKubelet", "The node was low on resource: memory."),
            Reason::Evicted,
            "low on resource: memory",
        ),
        (
            target("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
            Reason::Evicted,
            "NoExecute taint",
        ),
        (target("DeletionByPodGC", "PodGC: node no longer exists"), Reason::NodeLost, "PodGC: node no longer exists"),
        (
            failed("Evicted", "Pod ephemeral local storage usage exceeds the total limit"),
            Reason::Evicted,
            "Evicted: Pod ephemeral",
        ),
        (failed("Preempting", "Preempted in order to admit critical pod"), Reason::Evicted, "Preempting: Preempted"),
        (
            failed("Terminated", "Pod was terminated in response to imminent node shutdown."),
            Reason::Evicted,
            "node shutdown",
        ),
        (failed("NodeShutdown", "Pod was rejected as the node is shutting down."), Reason::Evicted, "shutting down"),
        (
            failed("UnexpectedAdmissionError", "Allocate failed"),
            Reason::PodRefused,
            "UnexpectedAdmissionError: Allocate failed",
        ),
        (
            failed("OutOfcpu", "Node didn't have enough resource: cpu"),
            Reason::PodRefused,
            "OutOfcpu: Node didn't have enough",
        ),
        (failed("NodeAffinity", "Pod was rejected"), Reason::PodRefused, "NodeAffinity"),
        (
            json!({"status": {"phase": "Running", "reason": "NodeLost", "message": "Node n which was running pod p is unresponsive"}}),
            Reason::NodeLost,
            "NodeLost: Node n which was running pod p is unresponsive",
        ),
    ];
    for (patch, reason, words) in cases {
        let Some((told, text)) = view(patch.clone()).disruption else { panic!("nothing said of {patch}") };
        assert_eq!(told, reason, "{patch}");
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn a_pod_that_simply_runs_ends_or_is_deleted_is_not_disturbed() {
    for patch in [
        with_states("Running", &running(), &running()),
        json!({"status": {"phase": "Failed"}}),
        json!({"status": {"phase": "Running", "reason": "Evicted"}}),
        json!({"status": {"conditions": condition("DisruptionTarget", "False", "EvictionByEvictionAPI", "")}}),
        json!({"metadata": {"deletionTimestamp": "2026-11-30T18:00:00Z", "deletionGracePeriodSeconds": 60}}),
    ] {
        assert_eq!(view(patch.clone()).disruption, None, "{patch}");
    }
}

#[test]
fn a_taint_means_a_lost_node_only_where_the_node_is_silent() {
    let patch =
        json!({"status": {"conditions": condition("DisruptionTarget", "True", "DeletionByTaintManager", "deleting")}});
    for (ready, reason) in [(Some(false), Reason::NodeLost), (Some(true), Reason::Evicted), (None, Reason::Evicted)] {
        let direct = pod_view(&pod(patch.clone()), &SessionUid::from(UID), ready);
        let later = with_node(view(patch.clone()), ready);
        for view in [direct, later] {
            assert_eq!(view.node_ready, ready);
            assert_eq!(view.disruption.as_ref().map(|(reason, _)| *reason), Some(reason));
        }
    }
    let evicted =
        json!({"status": {"conditions": condition("DisruptionTarget", "True", "EvictionByEvictionAPI", "drain")}});
    assert_eq!(with_node(view(evicted), Some(false)).disruption.map(|(reason, _)| reason), Some(Reason::Evicted));
}
