{{- define "millrace.labels" -}}
app.kubernetes.io/name: {{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/part-of: millrace
{{- end }}

{{/* Objects of two releases in one namespace differ by the name of the release. */}}
{{- define "millrace.name" -}}
{{- if eq .Release.Name "millrace" }}millrace{{ else }}{{ printf "%s-millrace" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "millrace.image" -}}
{{ .root.Values.image.repository }}-{{ .tier }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- define "millrace.secret" -}}
{{ index .root.Values.secrets.existing .tier | default (printf "%s-%s" (include "millrace.name" .root) .tier) }}
{{- end }}

{{- define "millrace.environment" -}}
- configMapRef: { name: {{ include "millrace.name" .root }} }
- secretRef: { name: {{ include "millrace.secret" (dict "root" .root "tier" "shared") }} }
{{- if eq .tier "api" }}
- secretRef: { name: {{ include "millrace.secret" (dict "root" .root "tier" "api") }} }
{{- end }}
{{- end }}

{{- define "millrace.settings" -}}
{{- range $name, $value := . }}
- { name: {{ $name }}, value: {{ $value | toString | quote }} }
{{- end }}
{{- end }}

{{- define "millrace.podSecurity" -}}
automountServiceAccountToken: false
securityContext: { runAsNonRoot: true, runAsUser: {{ . }}, fsGroup: {{ . }}, seccompProfile: { type: RuntimeDefault } }
{{- end }}

{{- define "millrace.containerSecurity" -}}
securityContext: { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: [ALL] } }
{{- end }}

{{- define "millrace.mounts" -}}
- { name: data, mountPath: /data }
- { name: tmp, mountPath: /tmp }
{{- if .Values.models }}
- { name: models, mountPath: /app/models.json, subPath: models.json, readOnly: true }
{{- end }}
{{- end }}

{{- define "millrace.volumes" -}}
- { name: tmp, emptyDir: {} }
{{- if .Values.models }}
- { name: models, configMap: { name: {{ include "millrace.name" . }}-models } }
{{- end }}
{{- end }}

{{/* Changed settings replace the pods. */}}
{{- define "millrace.annotations" -}}
checksum/settings: {{ toJson (list .root.Values.settings .root.Values.secrets .root.Values.models) | sha256sum }}
{{- with .own }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "millrace.spread" -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector: { matchLabels: {{ toJson . }} }
- maxSkew: 1
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: ScheduleAnyway
  labelSelector: { matchLabels: {{ toJson . }} }
{{- end }}

{{/* A secret that was generated stays as it is through upgrades. */}}
{{- define "millrace.kept" -}}
{{- $data := get (lookup "v1" "Secret" .root.Release.Namespace .secret | default dict) "data" | default dict -}}
{{- $found := get $data .key -}}
{{- $found | default (printf "%s%s" (.prefix | default "") (randAlphaNum 43) | b64enc) -}}
{{- end }}
