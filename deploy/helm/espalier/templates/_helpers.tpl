{{- define "espalier.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "espalier.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "espalier.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "espalier.selectorLabels" -}}
app.kubernetes.io/name: {{ include "espalier.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "espalier.labels" -}}
{{ include "espalier.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "espalier.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "espalier.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "espalier.secretName" -}}
{{- default (include "espalier.fullname" .) .Values.secret.name -}}
{{- end -}}

{{/* The configuration: what the chart sets, and over it what the values say. */}}
{{- define "espalier.config" -}}
{{- $mesh := dict "backend" .Values.mesh.backend -}}
{{- if eq .Values.mesh.backend "peers" -}}
{{- $seed := printf "%s-peers.%s.svc:7946" (include "espalier.fullname" .) .Release.Namespace -}}
{{- $mesh = merge $mesh (dict "cluster" (printf "%s.%s" .Release.Namespace (include "espalier.fullname" .)) "host" "0.0.0.0" "port" 7946 "seeds" (list $seed)) -}}
{{- if .Values.mesh.tlsSecretName -}}
{{- $_ := set $mesh "tls" (dict "cert-file" "/etc/espalier/mesh-tls/tls.crt" "key-file" "/etc/espalier/mesh-tls/tls.key" "ca-file" "/etc/espalier/mesh-tls/ca.crt") -}}
{{- end -}}
{{- else if eq .Values.mesh.backend "redis" -}}
{{- $mesh = merge $mesh (dict "cluster" (printf "%s.%s" .Release.Namespace (include "espalier.fullname" .))) -}}
{{- end -}}
{{- with .Values.mesh.region -}}
{{- $_ := set $mesh "region" . -}}
{{- end -}}
{{- $listen := dict "host" "0.0.0.0" "port" 8080 -}}
{{- if .Values.tls.secretName -}}
{{- $tls := dict "cert-file" "/etc/espalier/tls/tls.crt" "key-file" "/etc/espalier/tls/tls.key" -}}
{{- if .Values.tls.clientCa -}}
{{- $_ := set $tls "ca-file" "/etc/espalier/tls/ca.crt" -}}
{{- end -}}
{{- $_ := set $listen "tls" $tls -}}
{{- end -}}
{{- $drain := dict "delay" (printf "%ds" (int .Values.drain.delaySeconds)) "grace" (printf "%ds" (int .Values.drain.graceSeconds)) -}}
{{- $own := dict "listen" $listen "admin" (dict "host" "0.0.0.0" "port" 9090) "mesh" $mesh "drain" $drain -}}
{{- if gt (int .Values.processes) 1 -}}
{{- $_ := set $own "processes" (int .Values.processes) -}}
{{- end -}}
{{- if .Values.endpointPicker.enabled -}}
{{- $picker := dict "host" "0.0.0.0" "port" (int .Values.endpointPicker.port) "health-port" (include "espalier.pickerHealthPort" . | int) "fallbacks" (int .Values.endpointPicker.fallbacks) -}}
{{- if .Values.endpointPicker.tlsSecretName -}}
{{- $_ := set $picker "tls" (dict "cert-file" "/etc/espalier/picker-tls/tls.crt" "key-file" "/etc/espalier/picker-tls/tls.key") -}}
{{- end -}}
{{- $_ := set $own "endpoint-picker" $picker -}}
{{- $_ := set $own "discovery" (dict "inference-pools" (list (include "espalier.poolName" .))) -}}
{{- end -}}
{{- mergeOverwrite $own (deepCopy .Values.config) | toYaml -}}
{{- end -}}

{{/* The InferencePool that gateways send to. */}}
{{- define "espalier.poolName" -}}
{{- default (include "espalier.fullname" .) .Values.endpointPicker.inferencePool.name -}}
{{- end -}}

{{/* The first one: with several processes each has one of its own. */}}
{{- define "espalier.pickerHealthPort" -}}
{{- add (int .Values.endpointPicker.port) 1 -}}
{{- end -}}

{{- define "espalier.healthPorts" -}}
{{- include "espalier.ports" (dict "name" "health" "first" (include "espalier.pickerHealthPort" . | int) "processes" .Values.processes) -}}
{{- end -}}

{{/* One entry for each process's port: its name, which is that of the first with a number, and its number. */}}
{{- define "espalier.ports" -}}
{{- $ports := list -}}
{{- range $at := until (int .processes) -}}
{{- $ports = append $ports (dict "name" (eq $at 0 | ternary $.name (printf "%s-%d" $.name (add $at 1))) "port" (add $.first $at)) -}}
{{- end -}}
{{- $ports | toJson -}}
{{- end -}}

{{- define "espalier.adminPorts" -}}
{{- include "espalier.ports" (dict "name" "admin" "first" 9090 "processes" .Values.processes) -}}
{{- end -}}

{{- define "espalier.meshPorts" -}}
{{- include "espalier.ports" (dict "name" "mesh" "first" 7946 "processes" .Values.processes) -}}
{{- end -}}

{{/* Namespaces that the API server is asked about, each with what for: {"namespace": ["services", "pods", "pools"]}. */}}
{{- define "espalier.watched" -}}
{{- $own := .Release.Namespace -}}
{{- $watched := dict -}}
{{- $config := include "espalier.config" . | fromYaml -}}
{{- $discovery := default dict $config.discovery -}}
{{- $mesh := default dict $config.mesh -}}
{{- range concat (default list $discovery.services) (default list (get $mesh "seed-services")) -}}
{{- $name := kindIs "string" . | ternary . (dig "service" "" (kindIs "map" . | ternary . dict)) -}}
{{- $namespace := contains "/" $name | ternary (splitList "/" $name | first) $own -}}
{{- $_ := set $watched $namespace (append (default list (get $watched $namespace)) "services" | uniq) -}}
{{- end -}}
{{- range concat (default list $discovery.pods) (default list (get $mesh "seed-pods")) -}}
{{- $namespace := default $own .namespace -}}
{{- $_ := set $watched $namespace (append (default list (get $watched $namespace)) "pods" | uniq) -}}
{{- end -}}
{{- range default list (get $discovery "inference-pools") -}}
{{- $name := kindIs "string" . | ternary . (dig "pool" "" (kindIs "map" . | ternary . dict)) -}}
{{- $namespace := contains "/" $name | ternary (splitList "/" $name | first) $own -}}
{{- $_ := set $watched $namespace (concat (default list (get $watched $namespace)) (list "pods" "pools") | uniq) -}}
{{- end -}}
{{- $watched | toJson -}}
{{- end -}}
