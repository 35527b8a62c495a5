{{- /* What each part may do, and why. Namespaced rules stand in one ClusterRole, or, with watchNamespaces, in a Role in each of these. */ -}}

{{- define "agentsession.controllerRules" -}}
# To know which sessions there are; patch: our finalizer, on and off; delete: ttlAfterFinished.
- apiGroups: [agentsession.dev]
  resources: [agentsessions]
  verbs: [get, list, watch, patch, delete]
# What people see of a session.
- apiGroups: [agentsession.dev]
  resources: [agentsessions/status]
  verbs: [patch]
# Where owner references are checked (OpenShift): agent Pods and claims name their session as an owner that waits for them.
- apiGroups: [agentsession.dev]
  resources: [agentsessions/finalizers]
  verbs: [update]
# Agent Pods; patch: our finalizer, off.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
# To read the log and to deliver prompts. get: the WebSocket's request; create: what it counts as since Kubernetes 1.35.
- apiGroups: [""]
  resources: [pods/exec]
  verbs: [get, create]
# Workspaces that outlive a Pod; they go with their session by its owner reference.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, create]
# The one policy in each namespace with sessions, before its first Pod; create and patch are what an apply needs.
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create, patch]
# Its UID: the history of an earlier namespace of that name is not this one's.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
# What users should see; an event is named after what it says, so it is never changed.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end }}

{{- define "agentsession.controllerClusterRules" -}}
# Whether a Pod's node still answers: on one that does not, a Pod that is being deleted cannot be read any more.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get]
{{- end }}

{{- define "agentsession.gatewayRules" -}}
# Phase and address of a session, and which there are. Nothing here can start a Pod or look into one.
- apiGroups: [agentsession.dev]
  resources: [agentsessions]
  verbs: [get, list, watch]
# Its UID: the history of an earlier namespace of that name is not this one's.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
{{- end }}

{{- define "agentsession.gatewayClusterRules" -}}
# Who is it?
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
# And may they? Plain RBAC on agentsessions/transcript decides.
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}

{{- define "agentsession.releaseRules" -}}
# Asks each session to be settled and released, sees it happen, and takes the finalizer off by itself when no controller answers.
- apiGroups: [agentsession.dev]
  resources: [agentsessions]
  verbs: [get, list, watch, patch]
# The finalizers of agent Pods, in the same case.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch]
{{- end }}

{{- /* Rights of one component: (dict root component namespaced cluster annotations). */ -}}
{{- define "agentsession.grant" -}}
{{- $root := .root }}
{{- $name := printf "%s-%s" (include "agentsession.fullname" .root) .component }}
{{- $account := include "agentsession.serviceAccount" (dict "root" .root "component" .component) }}
{{- $namespaces := .root.Values.watchNamespaces }}
{{- $rules := ternary .cluster (printf "%s\n%s" .namespaced .cluster) (gt (len $namespaces) 0) | trim }}
{{- $meta := dict "root" .root "component" .component "annotations" .annotations }}
{{- if $rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  {{- include "agentsession.grantMeta" $meta | nindent 2 }}
rules:
{{ $rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  {{- include "agentsession.grantMeta" $meta | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $name }}}
subjects: [{kind: ServiceAccount, name: {{ $account }}, namespace: {{ .root.Release.Namespace }}}]
{{- end }}
{{- $namespaced := .namespaced }}
{{- range $namespace := $namespaces }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  {{- include "agentsession.grantMeta" $meta | nindent 2 }}
rules:
{{ $namespaced }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  {{- include "agentsession.grantMeta" $meta | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $name }}}
subjects: [{kind: ServiceAccount, name: {{ $account }}, namespace: {{ $root.Release.Namespace }}}]
{{- end }}
{{- end }}

{{- define "agentsession.grantMeta" -}}
labels:
  {{- include "agentsession.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
{{- with .annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
