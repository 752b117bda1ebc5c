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

{{- /* Namespaces of jobs, with commas between. */}}
{{- define "holdfast.namespaces" -}}
{{- .Values.jobs.namespaces | default (list .Release.Namespace) | join "," }}
{{- end }}

{{- define "holdfast.agentServerUrl" -}}
{{- .Values.agent.serverUrl | default (printf "http://%s.%s.svc:%v" (include "holdfast.name" .) .Release.Namespace .Values.service.port) }}
{{- end }}

{{- /* The host of publicUrl, which has neither a path nor a user. */}}
{{- define "holdfast.host" -}}
{{- (urlParse .Values.publicUrl).hostname }}
{{- end }}
