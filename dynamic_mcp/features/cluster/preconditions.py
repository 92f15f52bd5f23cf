"""What a config must have, and must not have, before it can run in Kubernetes. Each error says how to go on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from dynamic_mcp.config.keys import Keys, format_path
from dynamic_mcp.config.secrets import find_literals, plain_secrets
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.features.cluster.tiers import DEFAULT_KEY, Deployment, Json, references, slug

_OBJECT_NAME = re.compile(r"[a-z](?:[a-z0-9-]*[a-z0-9])?")
_LONGEST_NAME, _LONGEST_OBJECT = 40, 52
_SHORTEST_KEY = 32
_MOST_PINNED = 15  # an HTTPRoute has 16 rules
_KEY = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Places of the settings whose text is a secret, whatever their names look like.
_NOT_SECRET = ("token_store", "arguments", "jwks_url", "token_endpoint", "lock_file")
_SHORTEST_SECRET = 8
_PATH = "/mcp"
_LOCAL_STORES = ("sqlite:", "unix:")
_FILE_OF_STORE = re.compile(r"[?&]ssl_\w+=(?!/|%2F|\$)")
_FETCHERS = ("npx", "uvx", "bunx", "pipx")
# What is a path in a config, by the keys that lead to it; `*` is any key.
_PATHS: tuple[Keys, ...] = (
    *(("mcpServers", "*", key) for key in ("cwd", "openapi", "skills")),
    *(("mcpServers", "*", "oauth", key) for key in ("assertion_file", "private_key_file")),
    *(("mcpServers", "*", "cli", *keys) for keys in (("use",), ("cwd", "roots"))),
    ("settings", "defaults", "cwd"),
    ("settings", "lock_file"),
    ("settings", "roots"),
    ("settings", "scripts", "folder"),
    ("settings", "audit", "path"),
    ("settings", "audit", "seal_key"),
)


class Preconditions:
    """Looks at a deployment before it is rendered. `file` is what errors name."""

    def __init__(self, deployment: Deployment, file: str) -> None:
        self._deployment = deployment
        self._values = deployment.values
        self._file = file

    def check(self) -> list[str]:
        """Return warnings. Raises ConfigError."""
        for problem in (
            *self._find_in_names(),
            *self._find_in_http(),
            *self._find_in_config(),
            *self._find_in_values(),
        ):
            raise problem
        if self._values["createSecrets"]:
            for problem in self._find_in_secrets():
                raise problem
        return [*self._warn_of_servers(), *self._warn_of_settings(), *self._list_missing_secrets()]

    def _error(self, where: str, message: str, hint: str) -> ConfigError:
        return ConfigError(self._file, where, message, hint=hint)

    # --- names -----------------------------------------------------------------------------------------

    def _find_in_names(self) -> Iterator[ConfigError]:
        name = self._deployment.name
        if not _OBJECT_NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
            hint = f"letters from a to z, digits and `-`, a letter first, and {_LONGEST_NAME} characters at most"
            yield ConfigError("--name", "", f"`{name}` is no name for objects of Kubernetes", hint=hint)
        others: dict[str, str] = {}
        for server in self._deployment.programs:
            place, short = format_path(("mcpServers", server)), slug(server)
            if not short or len(self._deployment.object_of(server)) > _LONGEST_OBJECT:
                yield self._error(place, "its name cannot be a part of the names of Kubernetes", "rename the server")
            elif short in others:
                what = f"in the names of Kubernetes, it would be the same as `{others[short]}`: `{short}`"
                yield self._error(place, what, "rename one of them")
            others[short] = server
        for server in self._values["servers"]:
            if server not in self._deployment.programs:
                what = "is no server of the config that gets a pod of its own"
                known = ", ".join(f"`{each}`" for each in self._deployment.programs) or "none does"
                yield ConfigError("values", format_path(("servers", server)), what, hint=f"these do: {known}")

    # --- settings.http, settings.cluster ---------------------------------------------------------------

    def _find_in_http(self) -> Iterator[ConfigError]:
        http, store = self._deployment.http, self._deployment.cluster.get("store")
        kinds = [each.get("kind") for each in http.get("auth") or ()]
        if not kinds and not http.get("insecure"):
            what = "clients need not authenticate, and everyone who reaches the cluster could use every server"
            yield self._error("settings.http.auth", what, "docs/serving.md shows each kind of `auth`")
        if http.get("tls"):
            what = "replicas serve plain HTTP in the cluster: TLS ends at the Ingress or the Gateway"
            yield self._error("settings.http.tls", what, "remove it, and name the certificate there")
        if self._deployment.settings.get("daemon"):
            what = "a daemon is for the windows of one machine"
            yield self._error("settings.daemon", what, "remove it")
        if not isinstance(store, str) and "login" in kinds:
            what = "replicas need `settings.cluster.store` for it: logins would end with their pod, at one replica"
            yield self._error("settings.http.auth", f"`login`: {what}", "docs/scaling.md shows a store")
        if not isinstance(store, str) and any(_has_no_tokens(each) for each in http.get("auth") or ()):
            what = "`bearer`: tokens of `dynamic-mcp token` would be known to one replica, until its pod ends"
            hint = "name tokens in `tokens`, or add `settings.cluster.store`"
            yield self._error("settings.http.auth", what, hint)
        if isinstance(store, str) and store.startswith(_LOCAL_STORES):
            what = "is for processes of one machine"
            yield self._error(
                "settings.cluster.store", what, "write `valkey://HOST:6379/0`, or `valkeys://…` with TLS"
            )
        if isinstance(store, str) and _FILE_OF_STORE.search(store):
            yield self._path(("settings", "cluster", "store"))
        if http.get("public_url") and not self._deployment.host:
            what = "must have a host without variables, by which the Ingress knows it"
            yield self._error("settings.http.public_url", what, "write `https://mcp.example.com/mcp`")

    # --- files and secrets in the config ---------------------------------------------------------------

    def _find_in_config(self) -> Iterator[ConfigError]:
        for path in plain_secrets(self._deployment.config):
            yield self._secret(path)
        for path in _find_secret_settings(self._deployment.settings, ("settings",)):
            yield self._secret(path)
        for number, key in enumerate(self._deployment.keys):
            if not isinstance(key, str) or not _KEY.fullmatch(key):
                yield self._key(("settings", "cluster", "keys", number), str(key))
        for path, text in _find_paths(self._deployment.config, _PATHS):
            is_pack = path[-1] == "use" and "/" not in text and not text.endswith(".json")
            if not is_pack and not text.startswith(("/", "${")) and "://" not in text:
                yield self._path(path)
        for name, entry in (*self._deployment.servers.items(), ("", self._deployment.defaults)):
            place: Keys = ("mcpServers", name) if name else ("settings", "defaults")
            if entry.get("env_file"):
                what = "is a file of this machine, which pods do not have"
                hint = 'write `"env": {"NAME": "${NAME}"}`, and the values with the other secrets'
                yield self._error(format_path((*place, "env_file")), what, hint)
            command = entry.get("command", "/")
            if "/" in command and not command.startswith(("/", "${")):
                yield self._path((*place, "command"))

    def _path(self, path: Keys) -> ConfigError:
        hint = "write a path in the image or in a volume (`volumes`), which begins with `/`"
        return self._error(format_path(path), "is a path of this machine, which pods do not have", hint)

    def _secret(self, path: Keys) -> ConfigError:
        what = "is a secret in plain text, which a ConfigMap would show"
        hint = "write `${NAME}` there, and `NAME=value` in a file that `--secrets` names"
        return self._error(format_path(path), what, hint)

    def _key(self, path: Keys, key: str) -> ConfigError:
        if "${" not in key:
            return self._secret(path)
        what = "must be one variable without a default: the secrets of the servers are derived from its value"
        return self._error(format_path(path), what, "write `${NAME}`, and its value with the other secrets")

    def _find_in_secrets(self) -> Iterator[ConfigError]:
        secrets = self._values["secrets"]
        for name, value in secrets.items():
            if not _VARIABLE_NAME.fullmatch(name):
                yield ConfigError("secrets", name, "is no name of a variable", hint="write `NAME=value`")
            if name in self._deployment.derived_names():
                what = "is a variable that the manifests have a value of their own for"
                yield ConfigError("secrets", name, what, hint="give yours another name, also in the config")
            if str(value).endswith("\\"):
                yield ConfigError(
                    "secrets", name, "ends with `\\`, which a file of variables cannot say", hint="change it"
                )
        for key in self._deployment.keys:
            name = key[2:-1]
            if len(str(secrets.get(name) or "")) < _SHORTEST_KEY:
                what = "has no value" if not secrets.get(name) else f"has fewer than {_SHORTEST_KEY} characters"
                hint = f"`echo {name}=$(openssl rand -hex 32) >> secrets.env`, and `--secrets secrets.env`"
                why = "" if name != DEFAULT_KEY else ", by which replicas know each other,"
                yield ConfigError("secrets", name, f"the key{why} {what}", hint=hint)
        deployment = self._deployment
        configs = [(deployment.gateway_config(), deployment.secrets_of_gateway())]
        configs += [(deployment.server_config(each), deployment.secrets_of(each)) for each in deployment.programs]
        missing = dict.fromkeys(name for config, known in configs for name in references(config) if name not in known)
        if missing:
            names = ", ".join(f"`${{{name}}}`" for name in missing)
            hint = "write `NAME=value` in a file that `--secrets` names, or `${NAME:-}` where it may be empty"
            yield self._error("", f"no value for {names}", hint)

    # --- values ----------------------------------------------------------------------------------------

    def _find_in_values(self) -> Iterator[ConfigError]:
        values = self._values
        outside = [each for each in ("ingress", "httpRoute") if values[each]["enabled"]]
        if outside and not self._deployment.host:
            what = f"`{outside[0]}` needs it: it says the host and the path"
            yield self._error("settings.http.public_url", what, "write `https://mcp.example.com/mcp`")
        http = self._deployment.http
        path = (http.get("root_path") or "").rstrip("/") + (http.get("path") or _PATH).rstrip("/")
        if outside and self._deployment.mcp_path != (path or "/"):
            what = (
                f"its path must be that of `root_path` and `path` together, `{path or '/'}`, which no Ingress changes"
            )
            hint = "write `root_path` as the path begins, or another path"
            yield self._error("settings.http.public_url", what, hint)
        route = values["httpRoute"]
        if route["enabled"] and not route["parentRefs"]:
            hint = "write `[{name: NAME, namespace: NAMESPACE}]` of your Gateway"
            yield ConfigError("values", "httpRoute.parentRefs", "is empty", hint=hint)
        if route["enabled"] and route["affinity"] and values["autoscaling"]["enabled"]:
            what = "the replicas that the route names are of a fixed number"
            yield ConfigError("values", "httpRoute.affinity", what, hint="disable it, or `autoscaling`")
        if route["enabled"] and route["affinity"] and values["gateway"]["replicas"] > _MOST_PINNED:
            what = f"an HTTPRoute has room for {_MOST_PINNED} replicas"
            yield ConfigError(
                "values", "httpRoute.affinity", what, hint="disable it: sessions then take one hop more"
            )
        scaling = values["autoscaling"]
        if scaling["enabled"] and scaling["maxReplicas"] < values["gateway"]["replicas"]:
            what = f"is less than `gateway.replicas`, {values['gateway']['replicas']}"
            yield ConfigError("values", "autoscaling.maxReplicas", what, hint="write at least as many")
        if values["autoscaling"]["callsInFlight"] and not values["monitoring"]["enabled"]:
            what = "there are no metrics without `monitoring`"
            yield ConfigError("values", "autoscaling.callsInFlight", what, hint="enable that, or go by the CPU alone")

    # --- warnings --------------------------------------------------------------------------------------

    def _warn_of_servers(self) -> Iterator[str]:
        for name in self._deployment.programs:
            values = self._values["serverDefaults"] | (self._values["servers"].get(name) or {})
            command = str(self._deployment.servers[name].get("command"))
            is_fetched = command in _FETCHERS
            if is_fetched and not values["internet"] and self._values["networkPolicy"]["enabled"]:
                yield (
                    f"`{name}` is started by `{command}`, which fetches it from the internet, where its pod may not"
                    f" connect: allow it with `servers.{name}.internet`, or use an image that has it"
                )
            if not values["storage"]:
                yield f"`{name}` loses its files with its pod: `servers.{name}.storage` has no size"

    def _warn_of_settings(self) -> Iterator[str]:
        if self._deployment.settings.get("audit") and not self._values["gateway"]["storage"]:
            yield "the audit log of each replica ends with its pod: give it a volume with `gateway.storage`"
        if self._deployment.http.get("insecure") and not self._deployment.http.get("auth"):
            yield "clients need not authenticate: whoever reaches the service can use every server"

    def _list_missing_secrets(self) -> Iterator[str]:
        """Yield the Secrets that are made by other means, and what they must have."""
        if self._values["createSecrets"]:
            return
        deployment = self._deployment
        configs = {deployment.name: deployment.gateway_config()}
        configs |= {deployment.object_of(each): deployment.server_config(each) for each in deployment.programs}
        for name, config in configs.items():
            yield f"the Secret `{name}` must have `variables.env` with the lines of {', '.join(references(config))}"
        if self._values["monitoring"]["enabled"]:
            yield f"the Secret `{deployment.name}` must have `metrics-token`: the value of METRICS_TOKEN"


def _has_no_tokens(provider: Mapping[str, Json]) -> bool:
    return provider.get("kind") == "bearer" and not provider.get("tokens")


def _find_secret_settings(value: Json, at: Keys) -> Iterator[Keys]:
    """Yield the places of settings whose names say that they are secrets, and whose texts have no variable."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        if isinstance(each, dict | list):
            yield from _find_secret_settings(each, (*at, key))
        elif isinstance(each, str) and isinstance(key, str) and _is_secret(key, each):
            yield (*at, key)


def _is_secret(key: str, text: str) -> bool:
    if key in _NOT_SECRET:
        return False
    found = find_literals({"env": {"" if "://" in text else key: text}})
    return any(len(each.value) >= _SHORTEST_SECRET or each.name == "password" for each in found)


def _find_paths(value: Json, patterns: tuple[Keys, ...], at: Keys = ()) -> Iterator[tuple[Keys, str]]:
    """Yield the texts at the places that patterns describe, also those in lists there."""
    if () in patterns:
        texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        yield from ((at, each) for each in texts if isinstance(each, str))
    if isinstance(value, dict):
        for key, each in value.items():
            below = tuple(pattern[1:] for pattern in patterns if pattern and pattern[0] in ("*", key))
            if below:
                yield from _find_paths(each, below, (*at, key))
