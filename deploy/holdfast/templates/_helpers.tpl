{{- define "holdfast.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "holdfast.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "holdfast.labels" -}}
{{ include "holdfast.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* Namespaces of jobs on the cluster of the release, with commas between; none where all clusters are others. */}}
{{- define "holdfast.namespaces" -}}
{{- $usual := .Values.jobs.namespaces | default (list .Release.Namespace) }}
{{- $here := ternary (list) $usual (gt (len .Values.clusters) 0) }}
{{- range .Values.clusters }}
{{- if not .kubeconfigSecret }}
{{- $here = concat $here (.namespaces | default $usual) }}
{{- end }}
{{- end }}
{{- $here | uniq | join "," }}
{{- end }}

{{- define "holdfast.agentServerUrl" -}}
{{- .Values.agent.serverUrl | default (printf "http://%s.%s.svc:%v" (include "holdfast.name" .) .Release.Namespace .Values.service.port) }}
{{- end }}

{{- /* The configuration file of several clusters: a table for each. */}}
{{- define "holdfast.config" -}}
{{- $tables := list }}
{{- $names := list }}
{{- range .Values.clusters }}
{{- if has .name $names }}
{{- fail (printf "two clusters are called %s: give each a name of its own" .name) }}
{{- end }}
{{- $names = append $names .name }}
{{- if and .kubeconfigSecret (not .serverUrl) (not $.Values.agent.serverUrl) }}
{{- fail (printf "pods of cluster %s do not reach the release's Service: set its serverUrl, or agent.serverUrl" .name) }}
{{- end }}
{{- $url := .serverUrl | default (include "holdfast.agentServerUrl" $) }}
{{- $table := dict "name" .name "kind" "kubernetes" "agent-server-url" $url }}
{{- $_ := set $table "namespaces" (.namespaces | default $.Values.jobs.namespaces | default (list $.Release.Namespace)) }}
{{- $_ := set $table "accelerator" (.accelerator | default $.Values.jobs.accelerator) }}
{{- $lost := hasKey . "nodeLostSeconds" | ternary .nodeLostSeconds $.Values.jobs.nodeLostSeconds }}
{{- $_ := set $table "node-lost-seconds" (int $lost) }}
{{- $_ := set $table "allow-host-paths" (hasKey . "allowHostPaths" | ternary .allowHostPaths $.Values.jobs.allowHostPaths) }}
{{- if .kubeconfigSecret }}
{{- $_ := set $table "kubeconfig" (printf "/etc/holdfast/kubeconfig/%s/config" .name) }}
{{- end }}
{{- with .context }}
{{- $_ := set $table "context" . }}
{{- end }}
{{- if .agentImage }}
{{- $_ := set $table "agent-image" .agentImage }}
{{- else if $.Values.agent.inImage }}
{{- $_ := set $table "agent-in-image" $.Values.agent.inImage }}
{{- else }}
{{- $_ := set $table "agent-image" (include "holdfast.agentImage" $) }}
{{- end }}
{{- if and .caSecret (not (hasPrefix "https://" $url)) }}
{{- fail (printf "caSecret of cluster %s is for servers that its agents reach by https: set its serverUrl to https://HOST" .name) }}
{{- end }}
{{- if .caSecret }}
{{- $_ := set $table "agent-ca-file" (printf "/etc/holdfast/cluster-ca/%s/ca.crt" .name) }}
{{- else if and (not (hasKey . "caSecret")) $.Values.agent.caSecret (hasPrefix "https://" $url) }}
{{- $_ := set $table "agent-ca-file" "/etc/holdfast/agent-ca/ca.crt" }}
{{- end }}
{{- $tables = append $tables $table }}
{{- end }}
{{- dict "cluster" $tables | toToml }}
{{- end }}

{{- define "holdfast.agentImage" -}}
{{- .Values.agent.image.repository }}:{{ .Values.agent.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* The host of publicUrl, which has neither a path nor a user. */}}
{{- define "holdfast.host" -}}
{{- (urlParse .Values.publicUrl).hostname }}
{{- end }}
