{{/* Names and labels. */}}

{{- define "weft.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 36 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 36 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 36 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "weft.schedulerName" -}}
{{ include "weft.fullname" . }}-scheduler
{{- end -}}

{{- define "weft.authName" -}}
{{ .Values.auth.existingSecret | default (printf "%s-auth" (include "weft.fullname" .)) }}
{{- end -}}

{{/* The Secret from which users and tools take the token of role client. */}}
{{- define "weft.clientSecretName" -}}
{{- if .Values.auth.existingSecret -}}
{{ .Values.auth.existingClientSecret | default .Values.auth.existingSecret }}
{{- else -}}
{{ include "weft.fullname" . }}-client
{{- end -}}
{{- end -}}

{{/* The Secret with tls.crt, tls.key and ca.crt. */}}
{{- define "weft.tlsName" -}}
{{- if .Values.tls.certManager.enabled -}}
{{ include "weft.fullname" . }}-tls
{{- else -}}
{{ include "weft.authName" . }}
{{- end -}}
{{- end -}}

{{- define "weft.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "weft.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{/* The labels that select: they must never change. */}}
{{- define "weft.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of an object; takes dict "root" "component". */}}
{{- define "weft.labels" -}}
{{ include "weft.selector" .root }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/version: {{ .root.Values.image.tag | default .root.Chart.AppVersion | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/part-of: weft
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The metadata of an object; takes dict "root" "component" "name", and perhaps "annotations" "labels". */}}
{{- define "weft.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "weft.labels" . | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* An image; takes dict "root" "image": what is not given in `image` is that of the chart. */}}
{{- define "weft.image" -}}
{{- $own := .image | default dict -}}
{{- $all := .root.Values.image -}}
{{- $repository := $own.repository | default $all.repository -}}
{{- $inherits := not (or $own.repository $own.tag) -}}
{{- $digest := $own.digest | default (ternary $all.digest "" $inherits) -}}
{{- if $digest -}}
{{ $repository }}@{{ $digest }}
{{- else -}}
{{ $repository }}:{{ $own.tag | default $all.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* A service account; takes what "weft.metadata" takes. */}}
{{- define "weft.account" }}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "weft.metadata" . | nindent 2 }}
automountServiceAccountToken: false
{{- end -}}

{{/* What the pods share: identity, security, and the registry's secrets; takes dict "root", and perhaps "account". */}}
{{- define "weft.podBasics" -}}
serviceAccountName: {{ .account | default (include "weft.serviceAccountName" .root) }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "weft.placement" -}}
{{- with .priorityClassName -}}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Environment of each container: folders that it may write to, and the rule for mounted secrets. */}}
{{- define "weft.environment" -}}
- name: HOME
  value: /home/weft
- name: TMPDIR
  value: /tmp
# Kubernetes mounts secrets as links to files of root.
- name: WEFT_TRUST_MOUNTED_SECRETS
  value: "1"
{{- end -}}

{{/* The scheduler's address in the Kubernetes cluster. */}}
{{- define "weft.address" -}}
tls://{{ include "weft.schedulerName" . }}.{{ .Release.Namespace }}.svc:{{ .Values.scheduler.service.port }}
{{- end -}}

{{/* The names of the pages and of the certificate, one per line. */}}
{{- define "weft.serviceNames" -}}
{{- $service := include "weft.schedulerName" . -}}
{{- $namespace := .Release.Namespace -}}
{{ $service }}
{{ $service }}.{{ $namespace }}
{{ $service }}.{{ $namespace }}.svc
{{ $service }}.{{ $namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{/* The label "cluster" of all metrics. */}}
{{- define "weft.clusterLabel" -}}
{{ .Release.Namespace }}.{{ .Release.Name }}
{{- end -}}

{{- define "weft.pagesNames" -}}
{{- $names := splitList "\n" (include "weft.serviceNames" .) -}}
{{- if .Values.ingress.enabled -}}
{{- $names = concat $names .Values.ingress.hosts -}}
{{- end -}}
{{- concat $names .Values.scheduler.pagesHostNames | uniq | join "," -}}
{{- end -}}

{{- define "weft.certificateNames" -}}
{{- $headless := printf "*.%s-headless.%s.svc" (include "weft.schedulerName" .) .Release.Namespace -}}
{{- $names := append (splitList "\n" (include "weft.serviceNames" .)) $headless -}}
{{- concat $names (list "localhost") .Values.tls.extraNames | uniq | toJson -}}
{{- end -}}

{{/* The pools that an autoscaler scales: {name: {minReplicas, maxReplicas}}, as JSON. */}}
{{- define "weft.scaledPools" -}}
{{- $auto := .Values.autoscaling -}}
{{- $found := dict -}}
{{- if ne $auto.mode "none" -}}
{{- range $pool, $own := $auto.pools | default (dict $auto.pool dict) -}}
{{- $bounds := pick $auto "minReplicas" "maxReplicas" -}}
{{- include "weft.overlay" (dict "base" $bounds "over" ($own | default dict)) -}}
{{- $_ := set $found $pool $bounds -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* The values of a pool, as JSON; takes dict "root" "pool". */}}
{{- define "weft.poolValues" -}}
{{- $values := deepCopy .root.Values.workerDefaults -}}
{{- include "weft.overlay" (dict "base" $values "over" (get .root.Values.workers .pool | default dict)) -}}
{{- toJson $values -}}
{{- end -}}

{{/* Lays `over` upon `base`, which it changes: a pool's values upon those of all pools. */}}
{{- define "weft.overlay" -}}
{{- $base := .base -}}
{{- range $key, $value := .over -}}
{{- if and (kindIs "map" $value) (kindIs "map" (get $base $key)) -}}
{{- include "weft.overlay" (dict "base" (get $base $key) "over" $value) -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $_ := set $base $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Init containers and sidecars of the user; takes dict "root" "containers". One that names no security gets that of the chart, so that a
namespace with the "restricted" standard admits the pod, and may write into its own root file system, as most images do.
*/}}
{{- define "weft.ownContainers" -}}
{{- $security := omit (.root.Values.containerSecurityContext | default dict) "readOnlyRootFilesystem" -}}
{{- $containers := list -}}
{{- range .containers -}}
{{- $containers = append $containers (hasKey . "securityContext" | ternary . (merge (dict "securityContext" $security) .)) -}}
{{- end -}}
{{- toYaml $containers -}}
{{- end -}}
