"""What `cluster render` refuses, and what it warns of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynamic_mcp.config.environment import read_env_file
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.features.cluster.chart import merge, parse_documents
from dynamic_mcp.features.cluster.render import Rendering, render
from tests.deployment.rendered import Objects
from tests.program import Json

KEY = "CLUSTER_KEY=a-key-that-is-only-for-tests-0123456789\n"
AUTH = [{"kind": "bearer", "tokens": [{"token": "${CI_TOKEN:-}", "subject": "ci"}]}]
TIME = {"command": "mcp-server-time"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with a file of secrets."""
    (tmp_path / "secrets.env").write_text(KEY, encoding="utf-8")
    return tmp_path


def rendered(
    folder: Path,
    servers: Json = None,
    settings: Json = None,
    *changes: str,
    name: str = "mcp",
    values_file: Path | None = None,
) -> Rendering:
    """Render a config with these servers, and these changes of settings that are whole."""
    whole = merge({"http": {"auth": AUTH}}, settings or {})
    file = folder / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": servers or {"time": TIME}, "settings": whole}), encoding="utf-8")
    return render(file, name, values_file=values_file, changes=changes, secrets_file=folder / "secrets.env")


SECRET = "sk-test-0123456789abcdefghij"
LOGIN = {"kind": "login", "oidc": {"issuer": "https://a.example", "client_id": "x", "client_secret": "${S:-}"}}
PUBLIC = {"public_url": "https://mcp.example.com/mcp"}


@pytest.mark.parametrize(
    ("settings", "where", "hint"),
    [
        ({"http": {"auth": None}}, "settings.http.auth", "docs/serving.md"),
        ({"http": True}, "settings.http.auth", "docs/serving.md"),
        ({"http": {"tls": {"cert": "a", "key": "b"}}}, "settings.http.tls", "name the certificate there"),
        ({"daemon": True}, "settings.daemon", "remove it"),
        ({"http": {"auth": [{"kind": "bearer"}]}}, "settings.http.auth", "settings.cluster.store"),
        ({"http": {"auth": [LOGIN], **PUBLIC}}, "settings.http.auth", "a store"),
        (
            {"cluster": {"peers": "http://x", "keys": ["${CLUSTER_KEY}"], "store": "sqlite:///a"}},
            "cluster.store",
            "valkey",
        ),
        ({"cluster": {"peers": "http://x", "keys": ["k" * 40]}}, "settings.cluster.keys[0]", "--secrets"),
        ({"cluster": {"peers": "http://x", "keys": ["${credential:key}"]}}, "settings.cluster.keys[0]", "`${NAME}`"),
        (
            {"cluster": {"peers": "http://x", "keys": ["${CLUSTER_KEY}"], "store": "redis://a:pw123456@h/0"}},
            "settings.cluster.store",
            "${NAME}",
        ),
        (
            {"http": {"auth": [{"kind": "bearer", "tokens": [{"token": "t" * 30, "subject": "ci"}]}]}},
            "settings.http.auth[0].tokens[0].token",
            "${NAME}",
        ),
        (
            {
                "http": {
                    "auth": [{"kind": "bearer", "tokens": [{"token": "${T:-" + "t" * 30 + "}", "subject": "ci"}]}]
                }
            },
            "settings.http.auth[0].tokens[0].token",
            "${NAME}",
        ),
        (
            {
                "cluster": {
                    "peers": "http://x",
                    "keys": ["${CLUSTER_KEY}"],
                    "store": "redis://a:pw123456@${HOST:-h}/0",
                }
            },
            "settings.cluster.store",
            "${NAME}",
        ),
        ({"metrics": {"token": "a-literal-token"}}, "settings.metrics.token", "${NAME}"),
        ({"lock_file": "dynamic-mcp.lock.json"}, "settings.lock_file", "path in the image"),
        ({"defaults": {"env_file": "a.env"}}, "settings.defaults.env_file", "${NAME}"),
        ({"http": {"public_url": "https://${HOST}/mcp"}}, "settings.http.public_url", "https://"),
    ],
)
def test_settings_that_no_pod_can_have_are_refused(folder: Path, settings: Json, where: str, hint: str) -> None:
    with pytest.raises(ConfigError) as error:
        rendered(folder, settings=settings)
    assert where in str(error.value)
    assert hint in error.value.hint


@pytest.mark.parametrize(
    ("server", "where"),
    [
        ({**TIME, "env": {"API_TOKEN": SECRET}}, "env.API_TOKEN"),
        ({**TIME, "args": ["--token", SECRET]}, "args[1]"),
        ({"url": "https://a.example/mcp", "headers": {"Authorization": f"Bearer {SECRET}"}}, "headers.Authorization"),
        ({**TIME, "cwd": "."}, "cwd"),
        ({**TIME, "env_file": "x.env"}, "env_file"),
        ({"command": "./server.py"}, "command"),
        ({"skills": ["skills"]}, "skills"),
        ({"cli": {"use": "packs/own.json", "commands": ["log"], "cwd": {"roots": ["/srv"]}}}, "cli.use"),
        ({"cli": {"use": "git", "commands": ["log"], "cwd": {"roots": ["~/src"]}}}, "cli.cwd.roots"),
    ],
)
def test_secrets_in_plain_text_and_files_of_this_machine_are_refused(folder: Path, server: Json, where: str) -> None:
    with pytest.raises(ConfigError) as error:
        rendered(folder, {"time": server})
    assert error.value.where == f"mcpServers.time.{where}"
    assert error.value.hint
    assert SECRET not in str(error.value)


def test_names_that_kubernetes_cannot_have_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="the same as `a b`: `a-b`"):
        rendered(folder, {"a b": TIME, "A-B": TIME})
    with pytest.raises(ConfigError, match="rename the server"):
        rendered(folder, {"日本": TIME})
    with pytest.raises(ConfigError, match="`MCP` is no name"):
        rendered(folder, name="MCP")


def test_variables_without_a_value_are_named_together(folder: Path) -> None:
    env = {"A": "${ONE}", "B": "${TWO:-default}", "C": "$${THREE}", "D": "${FOUR:?it must be set}"}
    with pytest.raises(ConfigError) as error:
        rendered(folder, {"time": {**TIME, "env": env}})
    assert "no value for `${FOUR}`, `${ONE}`" in str(error.value)


def test_a_key_that_is_missing_or_short_is_refused_with_the_command_that_makes_one(folder: Path) -> None:
    for text in ("", "CLUSTER_KEY=short\n"):
        (folder / "secrets.env").write_text(text)
        with pytest.raises(ConfigError) as error:
            rendered(folder)
        assert "openssl rand -hex 32" in error.value.hint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("gateway.replica=3", "`replica` is not a parameter"),
        ("gateway.replicas=many", 'is not of type "integer"'),
        ("servers.clock.internet=true", "is no server of the config"),
        ("ingress.enabled=true", "`ingress` needs it"),
        ("httpRoute={enabled: true, parentRefs: [{name: a}]}", "`httpRoute` needs it"),
        ("autoscaling.callsInFlight=3", "no metrics without `monitoring`"),
        ("autoscaling={enabled: true, maxReplicas: 1}", "is less than `gateway.replicas`, 2"),
        ("nonsense", "is no change"),
        ("gateway.annotations={", "`gateway.annotations`: is not YAML"),
        ("image=2026-11-27", "`image`: has a date"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(folder: Path, change: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        rendered(folder, None, None, change)
    assert message in str(error.value)
    assert error.value.hint


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("gateway: null", "`gateway`: is null"),
        ("gateway: {resources: null}", "`gateway.resources`: is null"),
        ("image: null", "`image`: is null"),
        ("secrets: {PIN: 87654321}", "`secrets.PIN`: is not a text"),
        ("secrets: {PIN: [87654321]}", "`secrets.PIN`: is not a text"),
        ("secrets: {PIN: 2087-65-4321", "is not YAML"),
        ("secrets: {PIN: !!binary ODc2NTQzMjE=}", "has a date, binary data"),
        ("gateway: &a {env: [*a]}", "a link to itself"),
        ("secrets: {METRICS_TOKEN: '87654321'}", "`METRICS_TOKEN`: is a variable that the manifests have"),
        ("secrets: {GATEWAY_TOKEN_0: '87654321'}", "`GATEWAY_TOKEN_0`: is a variable that the manifests have"),
    ],
)
def test_a_file_of_values_that_cannot_be_meant_is_refused_without_what_may_be_a_secret(
    folder: Path, values: str, message: str
) -> None:
    (folder / "values.yaml").write_text(values, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        rendered(folder, values_file=folder / "values.yaml")
    assert message in str(error.value)
    assert error.value.hint
    assert "8765" not in str(error.value)


@pytest.mark.parametrize("http", [{"root_path": "/tools"}, {"path": "/tools/mcp"}])
def test_a_path_that_an_ingress_passes_on_is_one_that_is_served(folder: Path, http: Json) -> None:
    public = {"public_url": "https://mcp.example.com/tools/mcp"}
    assert rendered(folder, None, {"http": {**public, **http}}, "ingress.enabled=true").manifests
    with pytest.raises(ConfigError) as error:
        rendered(folder, None, {"http": public}, "ingress.enabled=true")
    assert "`root_path` and `path` together, `/mcp`" in str(error.value)


def test_a_route_that_names_replicas_needs_a_fixed_number_of_them(folder: Path) -> None:
    route = "httpRoute={enabled: true, affinity: true, parentRefs: [{name: a}]}"
    for change in ("autoscaling.enabled=true", "gateway.replicas=16"):
        with pytest.raises(ConfigError, match=r"httpRoute\.affinity"):
            rendered(folder, None, {"http": PUBLIC}, route, change)


def test_what_may_surprise_is_said(folder: Path) -> None:
    settings = {"audit": True, "http": {"auth": None, "insecure": True}}
    warnings = rendered(folder, {"a": {"command": "npx"}}, settings, "servers.a.storage=").warnings
    assert [each.partition(" ")[0] for each in warnings] == ["`a`", "`a`", "the", "clients"]


def test_secrets_that_are_made_by_other_means_are_described(folder: Path) -> None:
    (folder / "secrets.env").write_text("")
    env = {"time": {**TIME, "env": {"A": "${A}"}}}
    warnings = rendered(folder, env, None, "createSecrets=false", "monitoring.enabled=true").warnings
    assert warnings == [
        "the Secret `mcp` must have `variables.env` with the lines of CLUSTER_KEY, METRICS_TOKEN, SERVER_TOKEN_TIME",
        "the Secret `mcp-server-time` must have `variables.env` with the lines of A, GATEWAY_TOKEN_0, METRICS_TOKEN",
        "the Secret `mcp` must have `metrics-token`: the value of METRICS_TOKEN",
    ]


def test_secrets_come_from_the_files_that_the_config_names_too(folder: Path) -> None:
    (folder / "own.env").write_text("A=from the config\nB=from the config\n")
    (folder / "secrets.env").write_text(f"{KEY}B=for the cluster\n")
    found = rendered(folder, {"time": {**TIME, "env": {"A": "${A}", "B": "${B}"}}}, {"variables_file": "own.env"})
    (text,) = (
        each["stringData"]["variables.env"]
        for each in parse_documents(found.manifests)
        if each and each["kind"] == "Secret" and each["metadata"]["name"] == "mcp-server-time"
    )
    assert "A='from the config'\nB='for the cluster'\n" in text


@pytest.mark.parametrize("word", ["on", "true", "null", "y"])
def test_names_that_yaml_reads_as_something_else_stay_texts(folder: Path, word: str) -> None:
    found = rendered(folder, {word: TIME, "1": TIME, "1e3": TIME}, name=word).manifests
    for each in parse_documents(found):
        assert isinstance(each["metadata"]["name"], str)
        labels = {**each["metadata"].get("labels", {}), **each.get("spec", {}).get("selector", {})}
        assert {type(value) for value in labels.values()} <= {str, dict}


def test_texts_arrive_as_they_are_whatever_characters_they_have(folder: Path) -> None:
    odd = "a\r\nb\x7fc\x85d\u2028e\ufeff: {f}  \n\té\U0001f600 \\' # ${g"
    values = folder / "values.yaml"
    values.write_text(json.dumps({"secrets": {"A": odd}}), encoding="utf-8")
    server = {**TIME, "description": odd.removesuffix("${g"), "env": {"A": "${A}"}}
    objects = Objects(parse_documents(rendered(folder, {"time": server}, values_file=values).manifests))
    assert objects.config()["mcpServers"]["time"]["description"] == server["description"]
    lines = folder / "variables.env"
    lines.write_text(
        objects.one("Secret", "mcp-server-time")["stringData"]["variables.env"], encoding="utf-8", newline=""
    )
    assert read_env_file(lines)["A"] == odd


def test_credentials_are_files_of_the_pods_and_need_no_value(folder: Path) -> None:
    env = {"A": "${credential:a}", "B": "${credential:-b}", "C": "$${credential:c}"}
    found = rendered(folder, {"time": {**TIME, "env": env}})
    config = Objects(parse_documents(found.manifests)).config("mcp-server-time")
    assert config["mcpServers"]["time"]["env"] == env


def test_a_config_without_programs_has_a_gateway_alone(folder: Path) -> None:
    found = rendered(folder, {"a": {"url": "https://a.example/mcp"}}).manifests
    kinds = {each["kind"] for each in parse_documents(found)}
    assert "Deployment" in kinds
    assert "StatefulSet" not in kinds
