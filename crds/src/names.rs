//! Every name that more than one part of the system must spell alike: group, finalizer, labels, annotations, field managers, condition
//! types, containers, volumes, paths and ports.
//!
//! These are contracts with objects that exist in clusters already; changing one needs a migration.

// --- the API

/// API group.
pub const GROUP: &str = "agentsession.dev";
/// API version.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of an AgentSession.
pub const API_VERSION: &str = "agentsession.dev/v1alpha1";
/// Kind.
pub const KIND: &str = "AgentSession";
/// Resource name in URLs and RBAC.
pub const PLURAL: &str = "agentsessions";
/// Subresource that exists in RBAC only: `get` on it allows to read stored transcripts and streams.
pub const SUBRESOURCE_TRANSCRIPT: &str = "transcript";
/// Subresource that exists in RBAC only: `create` on it allows to add a turn through the gateway.
pub const SUBRESOURCE_TURNS: &str = "turns";
/// Audience of tokens that are meant for the gateway.
pub const TOKEN_AUDIENCE: &str = "agentsession";

// --- on AgentSessions and agent Pods

/// Finalizer of an AgentSession and of its Pod: present from before the Pod exists until every turn is settled or abandoned.
pub const FINALIZER: &str = "agentsession.dev/transcript";

/// Pod and claim label: UID of the session. Pods belong to sessions by this, never by ownerReference.
pub const LABEL_SESSION_UID: &str = "agentsession.dev/session-uid";
/// Pod and claim label, for people: name of the session, cut to what a label may hold.
pub const LABEL_SESSION: &str = "agentsession.dev/session";
/// Pod label: ordinal of the attempt.
pub const LABEL_ATTEMPT: &str = "agentsession.dev/attempt";
/// Recommended label: who manages the object.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`LABEL_MANAGED_BY`].
pub const MANAGED_BY: &str = "agentsession";
/// Prefix of labels and annotations that are ours; a podTemplate cannot set them.
pub const KEY_PREFIX: &str = "agentsession.dev/";

/// Pod annotation: the nonce that the store held before the Pod was created. A Pod of our name without it is not ours.
pub const ANNOTATION_NONCE: &str = "agentsession.dev/nonce";
/// Pod annotation: digest of the agent and podTemplate that the Pod was built from. A Pod that got no turn yet is replaced when it differs.
pub const ANNOTATION_TEMPLATE: &str = "agentsession.dev/template";
/// AgentSession annotation, set by `agentsession release --all`: settle, take both finalizers off and put none on while this stands.
pub const ANNOTATION_RELEASE: &str = "agentsession.dev/release";
/// AgentSession annotation, set by the gateway: the user who added the latest turn through it.
pub const ANNOTATION_TURN_BY: &str = "agentsession.dev/turn-added-by";
/// Pod annotation against the cluster autoscaler.
pub const ANNOTATION_SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
/// Pod annotation against Karpenter.
pub const ANNOTATION_DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// Prefix of the names of agent Pods; the optional admission policy goes by it, since it sees no labels on exec.
pub const POD_NAME_PREFIX: &str = "agentsession-";
/// Name of the NetworkPolicy that the controller keeps in each namespace with sessions.
pub const NETWORK_POLICY: &str = "agentsession-agents";
/// Name of the Lease that the controller is elected by.
pub const LEASE: &str = "agentsession-controller";

// --- field managers of server-side apply, one for each writer

/// The controller, for finalizers and for what it creates.
pub const MANAGER_CONTROLLER: &str = "agentsession-controller";
/// The controller, for the status of AgentSessions.
pub const MANAGER_STATUS: &str = "agentsession-status";
/// The gateway, for `spec.turns`.
pub const MANAGER_GATEWAY: &str = "agentsession-gateway";
/// `agentsession release`.
pub const MANAGER_RELEASE: &str = "agentsession-release";

// --- conditions of an AgentSession: always all four, once set, each with observedGeneration

/// True while the agent Pod has both containers running. Neither True nor False is bad by itself: a finished session has no Pod.
pub const CONDITION_POD_READY: &str = "PodReady";
/// True when every settled verdict is `Complete`, Unknown while a turn is active, False with the reason of the first that is not.
pub const CONDITION_TRANSCRIPT_COMPLETE: &str = "TranscriptComplete";
/// True when every turn in spec is settled; the reason is the last outcome's, or `AllTurnsSettled`. False again when a turn is added.
pub const CONDITION_FINISHED: &str = "Finished";
/// True when `desiredState: Suspended` is reached: no turn is active and no Pod is left.
pub const CONDITION_SUSPENDED: &str = "Suspended";
/// All condition types, in the order in which they are written.
pub const CONDITIONS: [&str; 4] =
    [CONDITION_POD_READY, CONDITION_TRANSCRIPT_COMPLETE, CONDITION_FINISHED, CONDITION_SUSPENDED];

// --- the agent Pod

/// Container with the user's image; the driver is its pid 1.
pub const CONTAINER_AGENT: &str = "agent";
/// Container that reads the log and answers exec. All execs go here.
pub const CONTAINER_RECORDER: &str = "recorder";
/// Init container that copies our binary into the Pod.
pub const CONTAINER_INSTALL: &str = "install";
/// Init container of `spec.workspace.setup`.
pub const CONTAINER_SETUP: &str = "setup";

/// Prefix of our volume names; a podTemplate cannot use it.
pub const VOLUME_PREFIX: &str = "agentsession-";
/// Volume of the binary.
pub const VOLUME_BIN: &str = "agentsession-bin";
/// Volume of the log: written by the driver, read by the recorder.
pub const VOLUME_LOG: &str = "agentsession-log";
/// Volume of the inbox: written by the recorder, read by the driver.
pub const VOLUME_INBOX: &str = "agentsession-inbox";
/// Volume of the workspace: emptyDir or the session's claim.
pub const VOLUME_WORK: &str = "agentsession-work";
/// Volume of the agent's home.
pub const VOLUME_HOME: &str = "agentsession-home";

/// Root of our paths in the Pod; nothing of the user's may be mounted there.
pub const PATH_ROOT: &str = "/agentsession";
/// Where the binary's volume is mounted.
pub const PATH_BIN: &str = "/agentsession/bin";
/// The binary, once installed.
pub const PATH_SANDBOX: &str = "/agentsession/bin/agentsession-sandbox";
/// Where the log's volume is mounted.
pub const PATH_LOG: &str = "/agentsession/log";
/// Where the inbox's volume is mounted.
pub const PATH_INBOX: &str = "/agentsession/inbox";
/// The agent's working directory.
pub const PATH_WORK: &str = "/workspace";
/// The agent's `HOME`.
pub const PATH_HOME: &str = "/home/agent";

/// Prefix of environment variables that are ours; `agent.env` cannot set them.
pub const ENV_PREFIX: &str = "AGENTSESSION_";

/// Port of the recorder's live tail.
pub const PORT_RECORDER: i32 = 8787;
/// Name of that port.
pub const PORT_RECORDER_NAME: &str = "recorder";
