{{- define "agentsession.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "agentsession.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "agentsession.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "agentsession.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "agentsession.selector" -}}
app.kubernetes.io/name: {{ include "agentsession.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "agentsession.labels" -}}
{{ include "agentsession.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "agentsession.tag" -}}
{{- default .Chart.AppVersion .Values.image.tag -}}
{{- end }}

{{- define "agentsession.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (include "agentsession.tag" .) -}}
{{- end -}}
{{- end }}

{{- define "agentsession.sandboxImage" -}}
{{- default (printf "ghcr.io/agentsession/agentsession-sandbox:%s" (include "agentsession.tag" .)) .Values.sandbox.image -}}
{{- end }}

{{- /* "true" with Postgres: controller and gateway apart. */ -}}
{{- define "agentsession.split" -}}
{{- if .Values.store.postgres.existingSecret }}true{{ end -}}
{{- end }}

{{- /* The component whose Pods serve users. */ -}}
{{- define "agentsession.gatewayComponent" -}}
{{- if include "agentsession.split" . }}gateway{{ else }}serve{{ end -}}
{{- end }}

{{- /* The component whose Pods control. */ -}}
{{- define "agentsession.controllerComponent" -}}
{{- if include "agentsession.split" . }}controller{{ else }}serve{{ end -}}
{{- end }}

{{- define "agentsession.serviceAccount" -}}
{{- printf "%s-%s" (include "agentsession.fullname" .root) .component -}}
{{- end }}

{{- define "agentsession.keySecret" -}}
{{- default (printf "%s-operator-key" (include "agentsession.fullname" .)) .Values.operatorKey.existingSecret -}}
{{- end }}

{{- /* "true" when the CRD is there and is not this release's: applied by hand, or another release's. It is left alone then, and the notes say so. */ -}}
{{- define "agentsession.foreignCrd" -}}
{{- $crd := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "agentsessions.agentsession.dev" }}
{{- if $crd }}
{{- $annotations := default dict $crd.metadata.annotations }}
{{- if not (and (eq (get $annotations "meta.helm.sh/release-name") .Release.Name) (eq (get $annotations "meta.helm.sh/release-namespace") .Release.Namespace)) }}true{{ end -}}
{{- end }}
{{- end }}

{{- /* Of every container: what Pod Security "restricted" asks for, and a root that cannot be written. */ -}}
{{- define "agentsession.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "agentsession.podSpec" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- end }}

{{- /* The store, for a role with a Secret of its own or the common one. */ -}}
{{- define "agentsession.storeEnv" -}}
- name: AGENTSESSION_STORE
  {{- if include "agentsession.split" .root }}
  valueFrom: {secretKeyRef: {name: {{ default .root.Values.store.postgres.existingSecret .secret | quote }}, key: {{ .root.Values.store.postgres.secretKey | quote }}}}
  {{- else }}
  value: sqlite:///var/lib/agentsession/agentsession.db
  {{- end }}
{{- if .root.Values.store.postgres.transactionPooler }}
- {name: AGENTSESSION_STORE_TRANSACTION_POOLER, value: "true"}
{{- end }}
{{- end }}

{{- define "agentsession.commonEnv" -}}
- {name: AGENTSESSION_OPS_LISTEN, value: "0.0.0.0:9090"}
- {name: AGENTSESSION_OPERATOR_KEY_FILE, value: /etc/agentsession/operator-key/key}
- {name: AGENTSESSION_LOG_FORMAT, value: {{ .Values.log.format }}}
- {name: AGENTSESSION_LOG, value: {{ .Values.log.filter | quote }}}
- name: AGENTSESSION_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- with .Values.watchNamespaces }}
- {name: AGENTSESSION_WATCH_NAMESPACES, value: {{ join "," . | quote }}}
{{- end }}
{{- end }}

{{- define "agentsession.controllerEnv" -}}
- {name: AGENTSESSION_SANDBOX_IMAGE, value: {{ include "agentsession.sandboxImage" . | quote }}}
- {name: AGENTSESSION_SANDBOX_IMAGE_PULL_POLICY, value: {{ .Values.sandbox.imagePullPolicy }}}
{{- with .Values.sandbox.imagePullSecret }}
- {name: AGENTSESSION_SANDBOX_IMAGE_PULL_SECRET, value: {{ . | quote }}}
{{- end }}
- {name: AGENTSESSION_RUN_AS_USER, value: {{ if kindIs "invalid" .Values.agentPod.runAsUser }}none{{ else }}{{ .Values.agentPod.runAsUser | int64 | quote }}{{ end }}}
- {name: AGENTSESSION_AGENT_EGRESS, value: {{ .Values.agentEgress.mode | quote }}}
{{- with .Values.agentEgress.extra }}
- {name: AGENTSESSION_AGENT_EGRESS_EXTRA, value: {{ toJson . | quote }}}
{{- end }}
{{- with .Values.agentEgress.clusterCIDRs }}
- {name: AGENTSESSION_CLUSTER_CIDRS, value: {{ join "," . | quote }}}
{{- end }}
- {name: AGENTSESSION_GATEWAY_LABELS, value: {{ printf "app.kubernetes.io/name=%s,app.kubernetes.io/instance=%s,app.kubernetes.io/component=%s" (include "agentsession.name" .) .Release.Name (include "agentsession.gatewayComponent" .) | quote }}}
- name: AGENTSESSION_GATEWAY_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- if include "agentsession.split" . }}
- {name: AGENTSESSION_LEADER_ELECT, value: "true"}
{{- end }}
{{- end }}

{{- define "agentsession.gatewayEnv" -}}
- {name: AGENTSESSION_HTTP_LISTEN, value: "0.0.0.0:8080"}
{{- end }}

{{- /* A started process answers /livez at once; /readyz waits for the store, and the Pod stays while it does. */ -}}
{{- define "agentsession.probes" -}}
startupProbe: {httpGet: {path: /livez, port: ops}, periodSeconds: 1, failureThreshold: 60}
livenessProbe: {httpGet: {path: /livez, port: ops}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}
readinessProbe: {httpGet: {path: /readyz, port: ops}, periodSeconds: 3, timeoutSeconds: 3}
{{- end }}

{{- /* Same annotations wherever a change of the key must restart the Pods that read it at start. */ -}}
{{- define "agentsession.podMetadata" -}}
labels:
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- include "agentsession.selector" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
{{- with .root.Values.podAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "agentsession.keyVolume" -}}
- name: operator-key
  secret:
    secretName: {{ include "agentsession.keySecret" . }}
    items: [{key: {{ .Values.operatorKey.secretKey | quote }}, path: key}]
    defaultMode: 0440
{{- end }}
