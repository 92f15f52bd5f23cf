"""What runs where in Kubernetes: the replicas of a gateway, and each server that is a program in a pod of its own.

`describe` returns what the templates of the chart are filled with; Helm computes the same in `_helpers.tpl`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from dynamic_mcp.config import form
from dynamic_mcp.config.types import parse_seconds
from dynamic_mcp.features.cluster.chart import to_json

Json = Any  # parts of the config file and of values, as they are written

# A variable that needs a value, or one with a default, or a credential, which is a file of the pod.
REFERENCE = re.compile(r"\$+\{[A-Za-z_][A-Za-z0-9_]*(?::-?)?")
_CREDENTIAL = "${credential:"
# What a pod's environment has.
POD_NAME = "POD_NAME"
DEFAULT_KEY = "CLUSTER_KEY"
_LISTEN = "0.0.0.0:8808"
_METRICS = {"listen": "0.0.0.0:9464", "token": "${METRICS_TOKEN}"}
# Beside the config.
_VARIABLES_FILE = "variables.env"
# What starts a program belongs to its pod; how long to wait is said at both ends; all else belongs to the gateway.
_LAUNCH = ("command", "args", "env", "env_file", "inherit_env", "cwd", "type", "home")
_LAUNCH_DEFAULTS = ("env", "env_file", "inherit_env", "cwd")
_OF_PROGRAM = (
    *("command", "args", "env", "inherit_env", "cwd"),
    *("timeout", "idle_timeout", "connect", "retry", "concurrency", "share"),
)
_SETTINGS_OF_BOTH = ("log", "max_message_bytes", "secrets")
# The balancers learn within the first that a gateway ends. Streams and servers end within the second.
_DRAIN_S = 5
_END_S = 15
_SHUTDOWN = "10s"
_SESSIONS, _MAX_SESSIONS = 1000, 1_000_000
# The most that `concurrency` may be, and `max_in_flight`.
_CONCURRENCY, _MAX_IN_FLIGHT = 1024, 100_000
_STORE_PORT, _SENTINEL_PORT = 6379, 26379
_STORE_URL = re.compile(r"[a-z+]+://(?:[^@/]*@)?[^:/,]+(?::(\d+))?")
_PUBLIC_URL = re.compile(r"https?://([^/:$]+)(?::\d+)?(/.*)?")
_AUTH_IN_THE_INTERNET = ("jwt", "login")
_PATHS = ("/sse", "/messages")
_LOGIN_PATHS = ("/authorize", "/consent", "/token", "/register", "/revoke", "/login")


class Deployment:
    """A config and the values of the chart, and what follows from both."""

    def __init__(self, config: Mapping[str, Json], values: Mapping[str, Json], name: str) -> None:
        self.config = config
        self.values = values
        self.name = name
        self.settings: Mapping[str, Json] = config.get("settings") or {}
        self.http = _section(self.settings, "http")
        self.cluster = _section(self.settings, "cluster")
        self.defaults = _section(self.settings, "defaults")
        self.keys: list[str] = list(self.cluster.get("keys") or [f"${{{DEFAULT_KEY}}}"])

    # --- servers ---------------------------------------------------------------------------------------

    @property
    def servers(self) -> dict[str, Mapping[str, Json]]:
        """The servers that are not disabled."""
        return {name: entry for name, entry in self.config["mcpServers"].items() if self._is_enabled(entry)}

    @property
    def programs(self) -> list[str]:
        """The servers that get a pod of their own."""
        return [name for name, entry in self.servers.items() if form.kind(entry) == "stdio" and not entry.get("home")]

    def _is_enabled(self, entry: Mapping[str, Json]) -> bool:
        enabled = entry.get("enabled")
        return (self.defaults.get("enabled") if enabled is None else enabled) is not False

    def object_of(self, server: str) -> str:
        """Return the name of the objects of a server."""
        return f"{self.name}-server-{slug(server)}"

    # --- numbers ---------------------------------------------------------------------------------------

    @property
    def most_replicas(self) -> int:
        scaling, replicas = self.values["autoscaling"], int(self.values["gateway"]["replicas"])
        return max(replicas, int(scaling["maxReplicas"])) if scaling["enabled"] else replicas

    @property
    def _shutdown_s(self) -> int:
        return math.ceil(parse_seconds(self.http.get("shutdown_timeout") or _SHUTDOWN))

    # --- secrets ---------------------------------------------------------------------------------------

    def secrets_of_gateway(self) -> dict[str, str]:
        """Return the secrets that the gateway may use: those of the config, and those that are derived."""
        derived = {_token_variable(server): self._derive(0, f"server/{server}") for server in self.programs}
        return {**self._secrets(), **derived, "METRICS_TOKEN": self._derive(0, "metrics")}

    def secrets_of(self, server: str) -> dict[str, str]:
        """Return the secrets that a server may use."""
        tokens = {f"GATEWAY_TOKEN_{i}": self._derive(i, f"server/{server}") for i in range(len(self.keys))}
        return {**self._secrets(), **tokens, "METRICS_TOKEN": self._derive(0, "metrics")}

    def derived_names(self) -> set[str]:
        """Return the variables whose values are derived, and those of a pod."""
        servers = (_token_variable(server) for server in self.programs)
        return {*servers, *(f"GATEWAY_TOKEN_{i}" for i in range(len(self.keys))), "METRICS_TOKEN", POD_NAME}

    def _secrets(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.values["secrets"].items()}

    def _derive(self, number: int, purpose: str) -> str:
        """Return a secret for a purpose, which tells nothing about the key, nor about those for other purposes."""
        key = self._secrets().get(self.keys[number][2:-1], "")
        inner = _hash(f"{purpose}\n{key}")
        return _hash(f"{key}\n{inner}")

    # --- configs ---------------------------------------------------------------------------------------

    def gateway_config(self) -> dict[str, Json]:
        """Return the config of the replicas: servers that are programs are reached by URL."""
        programs = self.programs
        servers = {
            name: self._remote_entry(name, entry) if name in programs else entry
            for name, entry in self.servers.items()
        }
        settings = {
            **self.settings,
            "http": {
                **self.http,
                "listen": _LISTEN,
                "allowed_hosts": [*(self.http.get("allowed_hosts") or ()), self.name],
            },
            "cluster": {
                **self.cluster,
                "peers": f"dns+http://{self.name}-peers:8808",
                "keys": self.keys,
                "name": f"${{{POD_NAME}}}",
            },
            "variables_file": _VARIABLES_FILE,
        }
        if self.defaults and not any(entry.get("home") for entry in self.servers.values()):
            settings["defaults"] = _without(self.defaults, _LAUNCH_DEFAULTS)
        return {**self.config, "mcpServers": servers, "settings": self._with_metrics(settings)}

    def _remote_entry(self, name: str, entry: Mapping[str, Json]) -> dict[str, Json]:
        return {
            **_without(entry, _LAUNCH),
            "type": "http",
            "url": f"http://{self.object_of(name)}:8808/mcp/{quote(name, safe='')}",
            "headers": {"Authorization": f"Bearer ${{{_token_variable(name)}}}"},
        }

    def server_config(self, name: str) -> dict[str, Json]:
        """Return the config of the pod of a server, which shows it as it is: the gateway judges, limits and asks."""
        entry = {**_shared(_only(self.servers[name], _OF_PROGRAM)), "definitions": "trust"}
        tokens = [{"token": f"${{GATEWAY_TOKEN_{i}}}", "subject": "gateway"} for i in range(len(self.keys))]
        sessions = 2 * self.most_replicas * int(self.http.get("max_sessions") or _SESSIONS)
        settings: dict[str, Json] = {
            **_only(self.settings, _SETTINGS_OF_BOTH),
            "http": {
                **_only(self.http, ("shutdown_timeout",)),
                "listen": _LISTEN,
                "allowed_hosts": [self.object_of(name)],
                "auth": [{"kind": "bearer", "tokens": tokens}],
                "max_sessions": min(sessions, _MAX_SESSIONS),
                "max_in_flight": min(_CONCURRENCY * self.most_replicas, _MAX_IN_FLIGHT),
            },
            "variables_file": _VARIABLES_FILE,
        }
        if self.defaults:
            settings["defaults"] = _shared(_only(self.defaults, _OF_PROGRAM))
        return {"mcpServers": {name: entry}, "settings": self._with_metrics(settings)}

    def _with_metrics(self, settings: dict[str, Json]) -> dict[str, Json]:
        return {**settings, "metrics": _METRICS} if self.values["monitoring"]["enabled"] else settings

    # --- where clients come in -------------------------------------------------------------------------

    @property
    def host(self) -> str:
        """The host of the public URL."""
        match = _PUBLIC_URL.fullmatch(self.http.get("public_url") or "")
        return match[1].lower() if match is not None else ""

    @property
    def mcp_path(self) -> str:
        """The path of the public URL."""
        match = _PUBLIC_URL.fullmatch(self.http.get("public_url") or "")
        return (match[2] or "").rstrip("/") or "/" if match is not None else "/"

    @property
    def paths(self) -> list[str]:
        """The paths that clients use, which have those of the replicas, `/cluster`, not among them."""
        prefix = self.mcp_path.removesuffix(self.http.get("path") or "/mcp")
        has_login = any(each["kind"] == "login" for each in self.http.get("auth") or ())
        below = (*_PATHS, *(_LOGIN_PATHS if has_login else ()))
        return [self.mcp_path, *(prefix + each for each in below), "/.well-known"]

    @property
    def needs_internet(self) -> bool:
        """True if there are remote servers, or an issuer of tokens."""
        remote = any(form.kind(entry) == "remote" for entry in self.servers.values())
        return remote or any(each["kind"] in _AUTH_IN_THE_INTERNET for each in self.http.get("auth") or ())

    @property
    def store_port(self) -> int:
        """The port of the store that replicas share; 0 without one."""
        url: str = self.cluster.get("store") or ""
        match = _STORE_URL.match(url)
        if match is None:
            return 0
        return int(match[1] or (_SENTINEL_PORT if "+sentinel:" in url else _STORE_PORT))

    # --- all of it -------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Json]:
        """Return what the templates are filled with."""
        values, gateway = self.values, self.values["gateway"]
        is_pinned = values["httpRoute"]["enabled"] and values["httpRoute"]["affinity"]
        is_stateful = bool(is_pinned or gateway["storage"])
        config = self.gateway_config()
        return {
            "name": self.name,
            "values": values,
            "gateway": {
                "kind": "StatefulSet" if is_stateful else "Deployment",
                "isStateful": is_stateful,
                "image": gateway["image"] or values["image"],
                "replicas": 0 if values["autoscaling"]["enabled"] else int(gateway["replicas"]),
                "graceSeconds": _DRAIN_S + self._shutdown_s + _END_S,
                "storePort": self.store_port,
                "internet": self.needs_internet,
                "config": _to_text(config),
                "variables": _to_lines(config, self.secrets_of_gateway()),
            },
            "pinnedReplicas": [f"{self.name}-{i}" for i in range(int(gateway["replicas"]))] if is_pinned else [],
            "servers": [self._describe_server(name) for name in sorted(self.programs)],
            "host": self.host,
            "mcpPath": self.mcp_path,
            "paths": self.paths,
            "metricsToken": self._derive(0, "metrics"),
            "ingressAnnotations": self._ingress_annotations(),
            "monitoringLabels": {
                "app.kubernetes.io/name": "dynamic-mcp",
                "app.kubernetes.io/instance": self.name,
                **values["monitoring"]["labels"],
            },
        }

    def _describe_server(self, name: str) -> dict[str, Json]:
        values = self.values["serverDefaults"] | (self.values["servers"].get(name) or {})
        config = self.server_config(name)
        return {
            "name": name,
            "slug": slug(name),
            "object": self.object_of(name),
            "image": values["image"] or self.values["image"],
            "graceSeconds": self._shutdown_s + _END_S,
            "values": values,
            "config": _to_text(config),
            "variables": _to_lines(config, self.secrets_of(name)),
        }

    def _ingress_annotations(self) -> dict[str, str]:
        ingress = self.values["ingress"]
        pinned = {"nginx.ingress.kubernetes.io/upstream-hash-by": "$http_authorization"}
        return {**(pinned if ingress["nginxAffinity"] else {}), **ingress["annotations"]}


def slug(server: str) -> str:
    """Return the name of a server as Kubernetes writes names."""
    return re.sub(r"[^a-z0-9]+", "-", server.lower()).strip("-")


def references(config: Mapping[str, Json]) -> list[str]:
    """Return the variables in a config that need a value, sorted, without those of a pod's environment."""
    names = {each[2:].rstrip(":") for each in _find_references(config) if not each.endswith(":-")}
    return sorted(names - {POD_NAME})


def mentions(config: Mapping[str, Json]) -> list[str]:
    """Return the variables in a config, sorted, also those with a default."""
    return sorted({each[2:].rstrip(":-") for each in _find_references(config)})


def _find_references(config: Mapping[str, Json]) -> list[str]:
    found = REFERENCE.findall(json.dumps(config, ensure_ascii=False))
    return [each for each in found if not each.startswith("$$") and each != _CREDENTIAL]


def _to_lines(config: Mapping[str, Json], secrets: Mapping[str, str]) -> str:
    """Return the lines of an env file with the secrets that a config names."""
    found = ((name, secrets[name]) for name in mentions(config) if name in secrets)
    return "\n".join(f"{name}={_quote(value)}" for name, value in found)


def _quote(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _to_text(config: Mapping[str, Json]) -> str:
    return to_json(config, indent=2)


def _token_variable(server: str) -> str:
    return "SERVER_TOKEN_" + slug(server).upper().replace("-", "_")


def _shared(fields: dict[str, Json]) -> dict[str, Json]:
    """A person of the gateway is a session of the server."""
    return {**fields, "share": "session"} if fields.get("share") == "user" else fields


def _section(settings: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    section = settings.get(name)
    return section if isinstance(section, dict) else {}


def _only(fields: Mapping[str, Json], names: Iterable[str]) -> dict[str, Json]:
    return {name: fields[name] for name in names if name in fields}


def _without(fields: Mapping[str, Json], names: Iterable[str]) -> dict[str, Json]:
    return {name: value for name, value in fields.items() if name not in names}


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()
