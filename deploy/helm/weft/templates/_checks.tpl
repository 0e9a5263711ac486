{{/* What the schema cannot express. Each is one line that says what to do. */}}

{{/* The schema cannot require what a pool takes from workerDefaults; null removes it there. */}}
{{- define "weft.checkComplete" -}}
{{- $given := .values -}}
{{- range $name := list "enabled" "replicas" "processes" "threads" "isolate" "resources" "terminationGracePeriodSeconds" "orphanLease" "connectTimeout" "logLevel" "image" "serviceAccount" "temporarySize" "minReadySeconds" "strategy" "podDisruptionBudget" -}}
{{- if or (not (hasKey $given $name)) (kindIs "invalid" (get $given $name)) -}}
{{- fail (printf "workerDefaults.%s is null: remove that line, or give a value" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "weft.checkPool" -}}
{{- $where := printf "workers.%s" .pool -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]{0,14}[a-z0-9])?$" .pool) -}}
{{- fail (printf "%s: %q cannot name a pool: use at most 16 lower-case letters, digits and '-', a letter first" $where .pool) -}}
{{- end -}}
{{- $limits := .values.resources.limits | default dict -}}
{{- $requests := .values.resources.requests | default dict -}}
{{- if and (eq (toString .values.threads) "auto") (not (or (hasKey $limits "cpu") (hasKey $requests "cpu"))) -}}
{{- fail (printf "%s.threads is auto, and the pool has neither limits.cpu nor requests.cpu to take it from: set %s.threads, or %s.resources.requests.cpu" $where $where $where) -}}
{{- end -}}
{{- if and (eq (toString .values.threads) "auto") (gt (int .values.processes) 1) (not (hasKey $limits "cpu")) -}}
{{- fail (printf "%s has %d processes and no limits.cpu to divide among them: set %s.threads, the threads of each" $where (int .values.processes) $where) -}}
{{- end -}}
{{- end -}}

{{- define "weft.check" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository is empty: give the repository of an image with weft, such as registry.example.org/weft" -}}
{{- end -}}
{{- if not .Values.workers -}}
{{- fail "workers has no pool: remove the null, or name a pool; a cluster without workers of its own has workers.default.enabled=false" -}}
{{- end -}}
{{- $auto := .Values.autoscaling -}}
{{- $root := . -}}
{{- $owners := dict -}}
{{- $several := gt (len $auto.pools) 0 -}}
{{- range $pool, $bounds := include "weft.scaledPools" . | fromJson -}}
{{- $where := ternary (printf "autoscaling.pools.%s" $pool) (printf "autoscaling.pool is %q, and" $pool) $several -}}
{{- if not (hasKey $root.Values.workers $pool) -}}
{{- fail (printf "%s there is no such pool in workers (%s): name one of them" (ternary (printf "%s:" $where) $where $several) (keys $root.Values.workers | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $values := include "weft.poolValues" (dict "root" $root "pool" $pool) | fromJson -}}
{{- if not $values.enabled -}}
{{- fail (printf "%s workers.%s.enabled is false: enable that pool, or name another one" (ternary (printf "%s:" $where) $where $several) $pool) -}}
{{- end -}}
{{- if gt (int $bounds.minReplicas) (int $bounds.maxReplicas) -}}
{{- $at := ternary $where "autoscaling" $several -}}
{{- fail (printf "%s.minReplicas is %d, above %s.maxReplicas, %d: raise the one or lower the other" $at (int $bounds.minReplicas) $at (int $bounds.maxReplicas)) -}}
{{- end -}}
{{- if and (eq $auto.mode "hpa") (eq (int $bounds.minReplicas) 0) -}}
{{- fail "autoscaling.minReplicas is 0, which an HPA does not allow: set it to 1, or autoscaling.mode to keda" -}}
{{- end -}}
{{- $names := printf "resources %s" (keys $values.taskResources | sortAlpha | join ",") -}}
{{- if hasKey $owners $names -}}
{{- fail (printf "%s: the pool %s has the same taskResources, so each would be started for the work of both: give one of them a resource of its own" $where (get $owners $names)) -}}
{{- end -}}
{{- $_ := set $owners $names $pool -}}
{{- end -}}
{{- if and $several (eq $auto.mode "hpa") -}}
{{- fail "autoscaling.pools needs autoscaling.mode keda: the metric of an HPA is one number for the cluster" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress.enabled is true, and ingress.hosts is empty: give the names under which the pages are reached; requests for others are refused" -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.certManager.issuerRef) -}}
{{- fail "tls.certManager.enabled is true, and tls.certManager.issuerRef is empty: give the name and kind of an issuer" -}}
{{- end -}}
{{- if and .Values.auth.existingClientSecret (not .Values.auth.existingSecret) -}}
{{- fail "auth.existingClientSecret is given without auth.existingSecret: give both, or neither, and the chart makes them" -}}
{{- end -}}
{{- end -}}

{{/* Amounts as --resources takes them. */}}
{{- define "weft.taskResources" -}}
{{- $words := list -}}
{{- range $name, $amount := . -}}
{{- $words = append $words (printf "%s=%v" $name $amount) -}}
{{- end -}}
{{- join "," $words -}}
{{- end -}}

{{/* host:port of a list of both, for IPv6 too. */}}
{{- define "weft.hostPort" -}}
{{- $host := first . -}}
{{- ternary (printf "[%s]" $host) $host (contains ":" $host) }}:{{ last . | int }}
{{- end -}}
