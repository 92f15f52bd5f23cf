{{/*
What the templates are filled with, as JSON. `dynamic_mcp/features/cluster/tiers.py` computes the same for
`dynamic-mcp cluster render`, and tests compare both. The templates themselves only use what is known there, too.
*/}}
{{- define "dynamic-mcp.data" -}}
{{- $values := omit .Values "global" -}}
{{- $name := .Release.Name -}}
{{- $config := $values.config -}}
{{- $settings := $config.settings | default dict -}}
{{- $http := dict -}}
{{- if kindIs "map" $settings.http -}}{{- $http = $settings.http -}}{{- end -}}
{{- $cluster := $settings.cluster | default dict -}}
{{- $defaults := $settings.defaults | default dict -}}
{{- $keys := $cluster.keys | default (list "${CLUSTER_KEY}") -}}
{{- $auth := $http.auth | default list -}}
{{- $monitors := $values.monitoring.enabled -}}
{{- $metrics := dict "listen" "0.0.0.0:9464" "token" "${METRICS_TOKEN}" -}}

{{- /* the servers that are not disabled, and those of them that get a pod of their own */ -}}
{{- $servers := dict -}}
{{- $programs := dict -}}
{{- $hasHome := false -}}
{{- $internet := false -}}
{{- range $server, $entry := $config.mcpServers -}}
{{- $enabled := $entry.enabled -}}
{{- if kindIs "invalid" $enabled -}}{{- $enabled = $defaults.enabled -}}{{- end -}}
{{- if ne (toString $enabled) "false" -}}
{{- $_ := set $servers $server $entry -}}
{{- $kind := include "dynamic-mcp.kind" $entry -}}
{{- if eq $kind "remote" -}}{{- $internet = true -}}{{- end -}}
{{- if $entry.home -}}
{{- $hasHome = true -}}
{{- else if eq $kind "stdio" -}}
{{- $_ := set $programs $server $entry -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* numbers */ -}}
{{- $replicas := int $values.gateway.replicas -}}
{{- $most := $replicas -}}
{{- if $values.autoscaling.enabled -}}{{- $most = max $replicas (int $values.autoscaling.maxReplicas) -}}{{- end -}}
{{- $shutdown := include "dynamic-mcp.seconds" ($http.shutdown_timeout | default "10s") | int -}}
{{- $sessions := min 1000000 (mul 2 $most (int ($http.max_sessions | default 1000))) -}}
{{- $pinned := and $values.httpRoute.enabled $values.httpRoute.affinity -}}

{{- /* the public URL */ -}}
{{- $publicUrl := $http.public_url | default "" -}}
{{- $host := "" -}}
{{- $path := "/" -}}
{{- if regexMatch "^https?://[^/:$]+(:[0-9]+)?(/.*)?$" $publicUrl -}}
{{- $rest := regexReplaceAll "^https?://" $publicUrl "" -}}
{{- $host = lower (regexFind "^[^/:]+" $rest) -}}
{{- $path = regexReplaceAll "^[^/]+" $rest "" | trimAll "/" | printf "/%s" -}}
{{- end -}}
{{- $prefix := trimSuffix ($http.path | default "/mcp") $path -}}
{{- $paths := list $path -}}
{{- range list "/sse" "/messages" -}}{{- $paths = append $paths (print $prefix .) -}}{{- end -}}
{{- range $auth -}}
{{- if has .kind (list "jwt" "login") -}}{{- $internet = true -}}{{- end -}}
{{- if eq .kind "login" -}}
{{- range list "/authorize" "/consent" "/token" "/register" "/revoke" "/login" -}}
{{- $paths = append $paths (print $prefix .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $paths = append $paths "/.well-known" -}}

{{- /* the port of the store */ -}}
{{- $store := $cluster.store | default "" -}}
{{- $storePort := 0 -}}
{{- $address := regexFind "^[a-z+]+://([^@/]*@)?[^:/,]+(:[0-9]+)?" $store -}}
{{- if $address -}}
{{- $port := regexFind ":[0-9]+$" $address -}}
{{- $storePort = ternary 26379 6379 (contains "+sentinel:" $store) -}}
{{- if $port -}}{{- $storePort = trimPrefix ":" $port | int -}}{{- end -}}
{{- end -}}

{{- /* the secrets of the gateway: those of the config, and those that are derived */ -}}
{{- $secrets := $values.secrets | default dict -}}
{{- $firstKey := get $secrets (include "dynamic-mcp.variable" (first $keys)) | toString -}}
{{- $metricsToken := include "dynamic-mcp.derived" (list $firstKey "metrics") -}}
{{- $known := merge (dict "METRICS_TOKEN" $metricsToken) $secrets -}}
{{- range $server, $entry := $programs -}}
{{- $token := include "dynamic-mcp.derived" (list $firstKey (print "server/" $server)) -}}
{{- $_ := set $known (include "dynamic-mcp.tokenVariable" $server) $token -}}
{{- end -}}

{{- /* the config of the gateway: servers that are programs are reached by URL */ -}}
{{- $entries := dict -}}
{{- range $server, $entry := $servers -}}
{{- if hasKey $programs $server -}}
{{- $remote := omit $entry "command" "args" "env" "env_file" "inherit_env" "cwd" "type" "home" -}}
{{- $object := printf "%s-server-%s" $name (include "dynamic-mcp.slug" $server) -}}
{{- $_ := set $remote "type" "http" -}}
{{- $_ := set $remote "url" (printf "http://%s:8808/mcp/%s" $object (urlquery $server | replace "+" "%20")) -}}
{{- $token := include "dynamic-mcp.tokenVariable" $server -}}
{{- $_ := set $remote "headers" (dict "Authorization" (printf "Bearer ${%s}" $token)) -}}
{{- $_ := set $entries $server $remote -}}
{{- else -}}
{{- $_ := set $entries $server $entry -}}
{{- end -}}
{{- end -}}
{{- $ownHttp := omit $http "listen" -}}
{{- $_ := set $ownHttp "listen" "0.0.0.0:8808" -}}
{{- $_ := set $ownHttp "allowed_hosts" (concat ($http.allowed_hosts | default list) (list $name)) -}}
{{- $ownCluster := omit $cluster "peers" -}}
{{- $_ := set $ownCluster "peers" (printf "dns+http://%s-peers:8808" $name) -}}
{{- $_ := set $ownCluster "keys" $keys -}}
{{- $_ := set $ownCluster "name" "${POD_NAME}" -}}
{{- $ownSettings := omit $settings "http" "cluster" -}}
{{- $_ := set $ownSettings "http" $ownHttp -}}
{{- $_ := set $ownSettings "cluster" $ownCluster -}}
{{- $_ := set $ownSettings "variables_file" "variables.env" -}}
{{- if and $defaults (not $hasHome) -}}
{{- $_ := set $ownSettings "defaults" (omit $defaults "env" "env_file" "inherit_env" "cwd") -}}
{{- end -}}
{{- if $monitors -}}{{- $_ := set $ownSettings "metrics" $metrics -}}{{- end -}}
{{- $gatewayConfig := omit $config "mcpServers" "settings" "$schema" -}}
{{- $_ := set $gatewayConfig "mcpServers" $entries -}}
{{- $_ := set $gatewayConfig "settings" $ownSettings -}}

{{- include "dynamic-mcp.check" (dict "values" $values "name" $name "http" $http "settings" $settings "keys" $keys "store" $store "programs" $programs "host" $host "path" $path "secrets" $secrets) -}}

{{- /* the servers */ -}}
{{- $described := list -}}
{{- range $server, $entry := $programs -}}
{{- $slug := include "dynamic-mcp.slug" $server -}}
{{- $object := printf "%s-server-%s" $name $slug -}}
{{- $serverValues := merge (dict) (get $values.servers $server | default dict) -}}
{{- range $field, $value := $values.serverDefaults -}}
{{- if not (hasKey $serverValues $field) -}}{{- $_ := set $serverValues $field $value -}}{{- end -}}
{{- end -}}
{{- $own := pick $entry "command" "args" "env" "inherit_env" "cwd" "timeout" "idle_timeout" "connect" "retry" "concurrency" "share" -}}
{{- if eq ($own.share | default "" | toString) "user" -}}{{- $_ := set $own "share" "session" -}}{{- end -}}
{{- $_ := set $own "definitions" "trust" -}}
{{- $tokens := list -}}
{{- $serverSecrets := merge (dict "METRICS_TOKEN" $metricsToken) $secrets -}}
{{- range $i, $key := $keys -}}
{{- $tokens = append $tokens (dict "token" (printf "${GATEWAY_TOKEN_%d}" $i) "subject" "gateway") -}}
{{- $value := get $secrets (include "dynamic-mcp.variable" $key) | toString -}}
{{- $_ := set $serverSecrets (printf "GATEWAY_TOKEN_%d" $i) (include "dynamic-mcp.derived" (list $value (print "server/" $server))) -}}
{{- end -}}
{{- $serverHttp := pick $http "shutdown_timeout" -}}
{{- $_ := set $serverHttp "listen" "0.0.0.0:8808" -}}
{{- $_ := set $serverHttp "allowed_hosts" (list $object) -}}
{{- $_ := set $serverHttp "auth" (list (dict "kind" "bearer" "tokens" $tokens)) -}}
{{- $_ := set $serverHttp "max_sessions" $sessions -}}
{{- $_ := set $serverHttp "max_in_flight" (min 100000 (mul 1024 $most)) -}}
{{- $serverSettings := pick $settings "log" "max_message_bytes" -}}
{{- $_ := set $serverSettings "http" $serverHttp -}}
{{- $_ := set $serverSettings "variables_file" "variables.env" -}}
{{- if $defaults -}}
{{- $shared := pick $defaults "command" "args" "env" "inherit_env" "cwd" "timeout" "idle_timeout" "connect" "retry" "concurrency" "share" -}}
{{- if eq ($shared.share | default "" | toString) "user" -}}{{- $_ := set $shared "share" "session" -}}{{- end -}}
{{- $_ := set $serverSettings "defaults" $shared -}}
{{- end -}}
{{- if $monitors -}}{{- $_ := set $serverSettings "metrics" $metrics -}}{{- end -}}
{{- $serverConfig := dict "mcpServers" (dict $server $own) "settings" $serverSettings -}}
{{- $one := dict "name" $server "slug" $slug "object" $object "values" $serverValues -}}
{{- $_ := set $one "image" ($serverValues.image | default $values.image) -}}
{{- $_ := set $one "graceSeconds" (add $shutdown 15) -}}
{{- $_ := set $one "config" (toPrettyJson $serverConfig) -}}
{{- $_ := set $one "variables" (include "dynamic-mcp.lines" (dict "config" $serverConfig "secrets" $serverSecrets "isChecked" $values.createSecrets)) -}}
{{- $described = append $described $one -}}
{{- end -}}

{{- $isStateful := ternary true false (or $pinned (ne $values.gateway.storage "")) -}}
{{- $gateway := dict "kind" (ternary "StatefulSet" "Deployment" $isStateful) "isStateful" $isStateful -}}
{{- $_ := set $gateway "image" ($values.gateway.image | default $values.image) -}}
{{- $_ := set $gateway "replicas" (ternary 0 $replicas $values.autoscaling.enabled) -}}
{{- $_ := set $gateway "graceSeconds" (add 5 $shutdown 15) -}}
{{- $_ := set $gateway "storePort" $storePort -}}
{{- $_ := set $gateway "internet" $internet -}}
{{- $_ := set $gateway "config" (toPrettyJson $gatewayConfig) -}}
{{- $_ := set $gateway "variables" (include "dynamic-mcp.lines" (dict "config" $gatewayConfig "secrets" $known "isChecked" $values.createSecrets)) -}}
{{- $replicaNames := list -}}
{{- if $pinned -}}
{{- range until $replicas -}}{{- $replicaNames = append $replicaNames (printf "%s-%d" $name .) -}}{{- end -}}
{{- end -}}
{{- $annotations := dict -}}
{{- if $values.ingress.nginxAffinity -}}
{{- $_ := set $annotations "nginx.ingress.kubernetes.io/upstream-hash-by" "$http_authorization" -}}
{{- end -}}
{{- $annotations = mergeOverwrite $annotations ($values.ingress.annotations | default dict) -}}
{{- $labels := dict "app.kubernetes.io/name" "dynamic-mcp" "app.kubernetes.io/instance" $name -}}
{{- $labels = mergeOverwrite $labels ($values.monitoring.labels | default dict) -}}
{{- $alerts := .Files.Get "files/alerts.yaml" | trimSuffix "\n" | replace "NAME" $name -}}
{{- dict "name" $name "values" $values "gateway" $gateway "pinnedReplicas" $replicaNames "servers" $described "host" $host "mcpPath" $path "paths" $paths "metricsToken" $metricsToken "ingressAnnotations" $annotations "monitoringLabels" $labels "alerts" $alerts | toJson -}}
{{- end -}}

{{- /* what a server is: by its type, or else by the field that says it */ -}}
{{- define "dynamic-mcp.kind" -}}
{{- if eq (.type | default "" | toString) "stdio" -}}stdio
{{- else if .type -}}remote
{{- else if .cli -}}cli
{{- else if .url -}}remote
{{- else if .command -}}stdio
{{- else if .skills -}}skills
{{- else -}}stdio
{{- end -}}
{{- end -}}

{{- define "dynamic-mcp.slug" -}}
{{- regexReplaceAll "[^a-z0-9]+" (lower .) "-" | trimAll "-" -}}
{{- end -}}

{{- define "dynamic-mcp.variable" -}}
{{- trimPrefix "${" (toString .) | trimSuffix "}" -}}
{{- end -}}

{{- define "dynamic-mcp.tokenVariable" -}}
{{- printf "SERVER_TOKEN_%s" (include "dynamic-mcp.slug" . | upper | replace "-" "_") -}}
{{- end -}}

{{- /* a secret for a purpose, from a key */ -}}
{{- define "dynamic-mcp.derived" -}}
{{- $inner := printf "%s\n%s" (index . 1) (index . 0) | sha256sum -}}
{{- printf "%s\n%s" (index . 0) $inner | sha256sum -}}
{{- end -}}

{{- /* the seconds of a duration such as `1.5min`, rounded up */ -}}
{{- define "dynamic-mcp.seconds" -}}
{{- $text := toString . | nospace -}}
{{- $number := regexFind "^\\+?[0-9.]+" $text -}}
{{- $unit := trimPrefix $number $text -}}
{{- $units := dict "ms" 0.001 "s" 1.0 "m" 60.0 "min" 60.0 "h" 3600.0 "d" 86400.0 -}}
{{- mulf (float64 $number) (get $units ($unit | default "s")) | ceil | int -}}
{{- end -}}

{{- /* the lines of a file with the secrets that a config names */ -}}
{{- define "dynamic-mcp.lines" -}}
{{- $secrets := .secrets -}}
{{- $isChecked := .isChecked -}}
{{- $names := list -}}
{{- range regexFindAll "\\$+\\{[A-Za-z_][A-Za-z0-9_]*(?::-?)?" (toJson .config) -1 -}}
{{- if not (or (hasPrefix "$$" .) (eq . "${credential:")) -}}
{{- $variable := trimPrefix "${" . | trimSuffix ":-" | trimSuffix ":" -}}
{{- if hasKey $secrets $variable -}}
{{- $names = append $names $variable -}}
{{- else if and $isChecked (not (hasSuffix ":-" .)) (ne $variable "POD_NAME") -}}
{{- fail (printf "no value for `${%s}`: it belongs into `secrets`" $variable) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $lines := list -}}
{{- range $names | uniq | sortAlpha -}}
{{- $value := get $secrets . | toString | replace "\\" "\\\\" | replace "'" "\\'" -}}
{{- $lines = append $lines (printf "%s='%s'" . $value) -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end -}}

{{- /* what cannot be deployed; `dynamic-mcp cluster render` looks more closely, and says more */ -}}
{{- define "dynamic-mcp.check" -}}
{{- $store := .store -}}
{{- if not (regexMatch "^[a-z]([a-z0-9-]*[a-z0-9])?$" .name) -}}{{- fail (printf "`%s` is no name for objects of Kubernetes: letters from a to z, digits and `-`, a letter first" .name) -}}{{- end -}}
{{- if gt (len .name) 40 -}}{{- fail (printf "`%s` is too long for a name: 40 characters at most" .name) -}}{{- end -}}
{{- if and (not .http.auth) (not .http.insecure) -}}
{{- fail "config.settings.http.auth: clients need not authenticate, and everyone who reaches the cluster could use every server" -}}
{{- end -}}
{{- if .http.tls -}}{{- fail "config.settings.http.tls: TLS ends at the Ingress or the Gateway: remove it" -}}{{- end -}}
{{- if .settings.daemon -}}{{- fail "config.settings.daemon: a daemon is for the windows of one machine: remove it" -}}{{- end -}}
{{- range .http.auth -}}
{{- if and (eq .kind "login") (not $store) -}}{{- fail "config.settings.http.auth: `login` needs `settings.cluster.store`" -}}{{- end -}}
{{- if and (eq .kind "bearer") (not .tokens) (not $store) -}}
{{- fail "config.settings.http.auth: `bearer` without `tokens` needs `settings.cluster.store`" -}}
{{- end -}}
{{- end -}}
{{- if or (hasPrefix "sqlite:" $store) (hasPrefix "unix:" $store) -}}
{{- fail "config.settings.cluster.store: is for processes of one machine" -}}
{{- end -}}
{{- $secrets := .secrets -}}
{{- $createSecrets := .values.createSecrets -}}
{{- range .keys -}}
{{- if not (regexMatch "^\\$\\{[A-Za-z_][A-Za-z0-9_]*\\}$" .) -}}
{{- fail "config.settings.cluster.keys: write `${NAME}`, and its value in `secrets`" -}}
{{- end -}}
{{- $variable := include "dynamic-mcp.variable" . -}}
{{- if and $createSecrets (lt (len (get $secrets $variable | toString)) 32) -}}
{{- fail (printf "secrets.%s: needs 32 characters at least, as `openssl rand -hex 32` prints" $variable) -}}
{{- end -}}
{{- end -}}
{{- $derived := list "METRICS_TOKEN" "POD_NAME" -}}
{{- range $i, $_ := .keys -}}{{- $derived = append $derived (printf "GATEWAY_TOKEN_%d" $i) -}}{{- end -}}
{{- range $server, $_ := .programs -}}{{- $derived = append $derived (include "dynamic-mcp.tokenVariable" $server) -}}{{- end -}}
{{- if $createSecrets -}}
{{- range $variable, $value := $secrets -}}
{{- if has $variable $derived -}}{{- fail (printf "secrets.%s: is a variable that the manifests have a value of their own for: give yours another name" $variable) -}}{{- end -}}
{{- if hasSuffix "\\" (toString $value) -}}{{- fail (printf "secrets.%s: ends with a backslash, which a file of variables cannot say" $variable) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $slugs := dict -}}
{{- $release := .name -}}
{{- range $server, $entry := .programs -}}
{{- $slug := include "dynamic-mcp.slug" $server -}}
{{- if or (not $slug) (gt (len (printf "%s-server-%s" $release $slug)) 52) -}}
{{- fail (printf "config.mcpServers.%s: its name cannot be a part of the names of Kubernetes" $server) -}}
{{- end -}}
{{- if hasKey $slugs $slug -}}{{- fail (printf "config.mcpServers.%s: another server would have the same name, `%s`" $server $slug) -}}{{- end -}}
{{- $_ := set $slugs $slug true -}}
{{- if $entry.env_file -}}{{- fail (printf "config.mcpServers.%s.env_file: pods do not have this file" $server) -}}{{- end -}}
{{- range $variable, $value := $entry.env -}}
{{- if and (regexMatch "(?i)token|secret|passw|credential|api_?key" $variable) $value (not (contains "${" (toString $value))) -}}
{{- fail (printf "config.mcpServers.%s.env.%s: a secret in plain text: write `${NAME}`, and its value in `secrets`" $server $variable) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $programs := .programs -}}
{{- range $server, $_ := .values.servers -}}
{{- if not (hasKey $programs $server) -}}{{- fail (printf "servers.%s: is no server of the config that gets a pod of its own" $server) -}}{{- end -}}
{{- end -}}
{{- $route := .values.httpRoute -}}
{{- if and (or .values.ingress.enabled $route.enabled) (not .host) -}}
{{- fail "config.settings.http.public_url: the Ingress and the HTTPRoute need its host" -}}
{{- end -}}
{{- $servedPath := print (.http.root_path | default "" | trimSuffix "/") (.http.path | default "/mcp" | trimSuffix "/") | default "/" -}}
{{- if and (or .values.ingress.enabled $route.enabled) (ne .path $servedPath) -}}
{{- fail (printf "config.settings.http.public_url: its path must be that of `root_path` and `path` together, `%s`" $servedPath) -}}
{{- end -}}
{{- if and $route.enabled (not $route.parentRefs) -}}{{- fail "httpRoute.parentRefs: is empty" -}}{{- end -}}
{{- if and $route.enabled $route.affinity .values.autoscaling.enabled -}}
{{- fail "httpRoute.affinity: the replicas that the route names are of a fixed number: disable it, or `autoscaling`" -}}
{{- end -}}
{{- if and $route.enabled $route.affinity (gt (int .values.gateway.replicas) 15) -}}
{{- fail "httpRoute.affinity: an HTTPRoute has room for 15 replicas" -}}
{{- end -}}
{{- if and .values.autoscaling.enabled (lt (int .values.autoscaling.maxReplicas) (int .values.gateway.replicas)) -}}
{{- fail "autoscaling.maxReplicas: is less than `gateway.replicas`" -}}
{{- end -}}
{{- if and .values.autoscaling.callsInFlight (not .values.monitoring.enabled) -}}
{{- fail "autoscaling.callsInFlight: there are no metrics without `monitoring`" -}}
{{- end -}}
{{- end -}}
