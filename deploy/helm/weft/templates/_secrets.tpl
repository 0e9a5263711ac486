{{/*
The tokens of the lower roles are derived from that of an admin as weft derives them (HKDF with SHA-256, RFC 5869),
with what templates have: sha256sum, which takes any bytes and returns hexadecimal digits, and base64.
*/}}

{{- define "weft.digits" -}}
{"0": 0, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "6": 6, "7": 7, "8": 8, "9": 9, "a": 10, "b": 11, "c": 12, "d": 13, "e": 14, "f": 15}
{{- end -}}

{{/* Hexadecimal digits, a multiple of 2, as base64. */}}
{{- define "weft.hexToBase64" -}}
{{- $values := include "weft.digits" . | fromJson -}}
{{- $alphabet := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/" -}}
{{- $over := mod (len .) 6 | int -}}
{{- $text := "" -}}
{{- range regexFindAll "..." (printf "%s%s" . (ternary "" (repeat (sub 6 $over | int) "0") (eq $over 0))) -1 -}}
{{- $n := add (mul 256 (get $values (substr 0 1 .))) (mul 16 (get $values (substr 1 2 .))) (get $values (substr 2 3 .)) | int -}}
{{- $high := div $n 64 | int -}}
{{- $low := mod $n 64 | int -}}
{{- $text = printf "%s%s%s" $text (substr $high (add $high 1 | int) $alphabet) (substr $low (add $low 1 | int) $alphabet) -}}
{{- end -}}
{{- if eq $over 2 -}}
{{- printf "%s==" (trunc (sub (len $text) 2 | int) $text) -}}
{{- else if eq $over 4 -}}
{{- printf "%s=" (trunc (sub (len $text) 1 | int) $text) -}}
{{- else -}}
{{- $text -}}
{{- end -}}
{{- end -}}

{{/* Hexadecimal digits, each pair XORed with one byte; takes dict "hex" "high" "low", the tables of the byte's halves. */}}
{{- define "weft.xor" -}}
{{- $text := "" -}}
{{- $tables := . -}}
{{- $values := include "weft.digits" . | fromJson -}}
{{- range regexFindAll ".." .hex -1 -}}
{{- $high := get $values (substr 0 1 .) | int -}}
{{- $low := get $values (substr 1 2 .) | int -}}
{{- $text = printf "%s%s%s" $text (substr $high (add $high 1 | int) $tables.high) (substr $low (add $low 1 | int) $tables.low) -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{/* HMAC-SHA256 as hexadecimal digits; takes dict "key", hexadecimal digits of at most 64 bytes, and "message". */}}
{{- define "weft.hmac" -}}
{{- $left := sub 64 (div (len .key) 2) | int -}}
{{- $inner := include "weft.xor" (dict "hex" .key "high" "32107654ba98fedc" "low" "67452301efcdab89") -}}
{{- $outer := include "weft.xor" (dict "hex" .key "high" "54761032dcfe98ba" "low" "cdef89ab45670123") -}}
{{- $inner = printf "%s%s" (include "weft.hexToBase64" $inner | b64dec) (repeat $left "6") -}}
{{- $outer = printf "%s%s" (include "weft.hexToBase64" $outer | b64dec) (repeat $left "\\") -}}
{{- $digest := printf "%s%s" $inner .message | sha256sum -}}
{{- printf "%s%s" $outer (include "weft.hexToBase64" $digest | b64dec) | sha256sum -}}
{{- end -}}

{{/* The token of the next lower role; takes dict "token" "role". */}}
{{- define "weft.lowered" -}}
{{- $salt := "7765667420746f6b656e" -}}{{/* "weft token" */}}
{{- $key := include "weft.hmac" (dict "key" $salt "message" .token) -}}
{{- $secret := include "weft.hmac" (dict "key" $key "message" (printf "%s\x01" .role)) -}}
{{- printf "%s.%s" .role (include "weft.hexToBase64" $secret | replace "+" "-" | replace "/" "_" | trimSuffix "=") -}}
{{- end -}}

{{/*
The data of the Secret as JSON: what there is in the Kubernetes cluster, or else new. It is made once per rendering, since
two objects show parts of it.
*/}}
{{- define "weft.secretData" -}}
{{- if not (hasKey .Values "_secretData") -}}
{{- $data := dict -}}
{{- $there := lookup "v1" "Secret" .Release.Namespace (include "weft.authName" .) -}}
{{- if $there -}}
{{- range $key, $value := $there.data -}}
{{- $_ := set $data $key ($value | b64dec) -}}
{{- end -}}
{{- end -}}
{{- $admin := get $data "admin-token" | default (randAlphaNum 43) -}}
{{- $client := include "weft.lowered" (dict "token" $admin "role" "client") -}}
{{- $worker := include "weft.lowered" (dict "token" $client "role" "worker") -}}
{{- $view := include "weft.lowered" (dict "token" $worker "role" "view") -}}
{{- $_ := set $data "admin-token" $admin -}}
{{- $_ := set $data "client-token" $client -}}
{{- $_ := set $data "worker-token" $worker -}}
{{- $_ := set $data "view-token" $view -}}
{{- $id := get $data "cluster-id" | default (randAlphaNum 64 | sha256sum | trunc 32) -}}
{{- $_ := set $data "cluster-id" $id -}}
{{- if not (or .Values.tls.certManager.enabled (get $data "tls.crt")) -}}
{{- $name := printf "weft-%s" $id -}}
{{- $days := .Values.tls.days | int -}}
{{- $names := prepend (include "weft.certificateNames" . | fromJsonArray) $name -}}
{{- $ca := genCAWithKey (printf "%s-ca" $name) $days (genPrivateKey "ecdsa") -}}
{{- $certificate := genSignedCertWithKey $name (list "127.0.0.1") $names $days $ca (genPrivateKey "ecdsa") -}}
{{- $_ := set $data "tls.crt" $certificate.Cert -}}
{{- $_ := set $data "tls.key" $certificate.Key -}}
{{- $_ := set $data "ca.crt" $ca.Cert -}}
{{- end -}}
{{- if and (eq .Values.autoscaling.mode "keda") (not (get $data "keda.crt")) -}}
{{- $pair := genSelfSignedCert "keda" list list (.Values.tls.days | int) -}}
{{- $_ := set $data "keda.crt" $pair.Cert -}}
{{- $_ := set $data "keda.key" $pair.Key -}}
{{- end -}}
{{- $_ := set .Values "_secretData" $data -}}
{{- end -}}
{{- .Values._secretData | toJson -}}
{{- end -}}

{{/* A connection file of role client; takes dict "root" "data". */}}
{{- define "weft.connectionFile" -}}
{{- $file := dict "version" 1 "cluster_id" (get .data "cluster-id") "addresses" (list (include "weft.address" .root)) -}}
{{- $_ := set $file "token" (get .data "client-token") -}}
{{- if not .root.Values.tls.certManager.enabled -}}
{{- $_ := set $file "certificate_pem" (get .data "tls.crt") -}}
{{- end -}}
{{- $service := .root.Values.scheduler.service -}}
{{- $host := printf "%s.%s.svc" (include "weft.schedulerName" .root) .root.Release.Namespace -}}
{{- $_ := set $file "dashboard" (printf "https://%s:%v/" $host $service.pagesPort) -}}
{{- $_ := set $file "pid" 1 -}}
{{- $_ := set $file "host" (printf "%s-0" (include "weft.schedulerName" .root)) -}}
{{- $_ := set $file "created" 0 -}}
{{- toPrettyJson $file -}}
{{- end -}}
