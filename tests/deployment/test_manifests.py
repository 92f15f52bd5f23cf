"""What the manifests of `cluster render` promise, seen in their objects."""

from __future__ import annotations

import json
import re

import pytest

from dynamic_mcp.config.form import root
from dynamic_mcp.features.cluster.chart import parse_documents
from tests.deployment.rendered import CONFIGS, NAME, Json, Objects, golden_file, objects_of, rendering_of

SERVERS = {"team": ["mcp-server-sales-db", "mcp-server-memory"], "company": ["mcp-server-notes"]}


@pytest.fixture(params=CONFIGS)
def objects(request: pytest.FixtureRequest) -> Objects:
    """The manifests of each config."""
    return objects_of(request.param)


@pytest.fixture
def team() -> Objects:
    """Two servers that are programs, and a remote one."""
    return objects_of("team")


@pytest.fixture
def company() -> Objects:
    """A service with all that there is."""
    return objects_of("company")


@pytest.mark.parametrize("config", CONFIGS)
def test_the_manifests_are_the_golden_ones_each_time(config: str) -> None:
    expected = golden_file(config).read_text(encoding="utf-8")
    hint = "`python -m tests.deployment.rendered` writes the golden files again"
    assert rendering_of(config).manifests == expected, hint
    assert rendering_of(config).manifests == expected


# --- two tiers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", ["team", "company"])
def test_each_program_has_one_replica_of_its_own_which_shows_it_alone(config: str) -> None:
    objects = objects_of(config)
    found = objects.of("StatefulSet")
    assert [each["metadata"]["name"] for each in found] == SERVERS[config]
    for each in found:
        assert each["spec"]["replicas"] == 1
        assert len(objects.config(each["metadata"]["name"])["mcpServers"]) == 1


def test_the_gateway_has_urls_where_the_config_has_programs(team: Objects) -> None:
    servers = team.config()["mcpServers"]
    assert [*servers] == ["memory", "Sales DB", "github"]  # in the order of the config, which clients see
    assert servers["memory"]["url"] == "http://mcp-server-memory:8808/mcp/memory"
    assert servers["Sales DB"]["url"] == "http://mcp-server-sales-db:8808/mcp/Sales%20DB"
    assert not any("command" in each or "env" in each for each in servers.values())


def test_rules_stay_at_the_gateway_and_what_starts_a_program_at_its_pod(team: Objects) -> None:
    at_gateway = team.config()["mcpServers"]["Sales DB"]
    (at_server,) = team.config("mcp-server-sales-db")["mcpServers"].values()
    assert at_gateway["limits"] == [{"per": ["person"], "rate": "60/min"}]
    assert at_server == {
        "command": "/opt/servers/postgres-mcp",
        "env": {"DATABASE_URL": "${DATABASE_URL}"},
        "share": "session",  # which each person of the gateway has there
        "definitions": "trust",
    }


def test_a_program_that_each_replica_may_run_stays_there_and_one_that_is_disabled_is_nowhere(
    company: Objects,
) -> None:
    config = company.config()
    assert [*config["mcpServers"]] == ["notes", "dates", "legacy"]
    assert config["mcpServers"]["dates"] == {"command": "dates-mcp", "home": True}
    assert config["settings"]["defaults"]["env"] == {"TZ": "UTC"}


def test_timeouts_are_those_of_the_config_at_both_ends(company: Objects) -> None:
    for config in (company.config(), company.config("mcp-server-notes")):
        assert config["mcpServers"]["notes"]["timeout"] == {"tools": "5min"}
        assert config["settings"]["defaults"]["timeout"] == {"tools": "2min"}


def test_all_configs_of_pods_are_valid(objects: Objects) -> None:
    for each in objects.of("ConfigMap"):
        root(json.loads(each["data"]["dynamic-mcp.json"]))


def test_replicas_find_each_other_by_a_headless_service_and_are_named_by_their_pods(objects: Objects) -> None:
    cluster = objects.config()["settings"]["cluster"]
    peers = objects.one("Service", "mcp-peers")["spec"]
    assert cluster["peers"] == "dns+http://mcp-peers:8808"
    assert (peers["clusterIP"], peers["publishNotReadyAddresses"]) == ("None", True)
    assert cluster["name"] == "${POD_NAME}"
    kind = "StatefulSet" if objects.of("HTTPRoute") else "Deployment"
    (container,) = objects.pod(kind)["containers"]
    assert container["env"] == [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]


def test_the_host_that_the_gateway_names_is_one_that_the_server_accepts(team: Objects) -> None:
    for each in SERVERS["team"]:
        assert team.config(each)["settings"]["http"]["allowed_hosts"] == [each]


# --- pods ------------------------------------------------------------------------------------------------------


def test_pods_run_as_an_ordinary_user_without_privileges_and_write_to_their_volume_alone(objects: Objects) -> None:
    assert objects.one("ServiceAccount")["automountServiceAccountToken"] is False
    for pod in objects.pods().values():
        (container,) = pod["containers"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 1000
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"]
        assert [each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")] == ["/state"]


def test_config_and_secrets_are_one_directory_which_is_exchanged_live(objects: Objects) -> None:
    for name, pod in objects.pods().items():
        (container,) = pod["containers"]
        (mount,) = (each for each in container["volumeMounts"] if each["name"] == "config")
        assert mount == {"name": "config", "mountPath": "/config", "readOnly": True}  # a `subPath` would never change
        (volume,) = (each for each in pod["volumes"] if each["name"] == "config")
        assert volume["projected"]["sources"] == [
            {"configMap": {"name": name}},
            {"secret": {"name": name, "items": [{"key": "variables.env", "path": "variables.env"}]}},
        ]
        assert objects.config(name)["settings"]["variables_file"] == "variables.env"


def test_nothing_of_a_config_or_a_secret_is_in_a_pod_so_that_no_change_restarts_it(team: Objects) -> None:
    pods = [json.dumps(each) for each in team.pods().values()]
    assert not any(word in pod for pod in pods for word in ("only-for-tests", "postgres-mcp", "checksum"))


def test_probes_ask_whether_it_lives_and_whether_it_is_ready(objects: Objects) -> None:
    for pod in objects.pods().values():
        (container,) = pod["containers"]
        assert container["startupProbe"]["httpGet"]["path"] == "/health"
        assert container["livenessProbe"]["httpGet"]["path"] == "/health"
        assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
        assert container["ports"][0] == {"name": "http", "containerPort": 8808}


@pytest.mark.parametrize(
    ("config", "kind", "shutdown_s"), [("team", "Deployment", 10), ("company", "Deployment", 90)]
)
def test_a_pod_that_ends_has_time_for_calls_in_flight(config: str, kind: str, shutdown_s: int) -> None:
    pod = objects_of(config).pod(kind)
    (container,) = pod["containers"]
    (_, wait) = container["lifecycle"]["preStop"]["exec"]["command"]
    assert pod["terminationGracePeriodSeconds"] > int(wait) + shutdown_s


def test_the_volume_of_a_server_is_kept_unless_it_needs_none(team: Objects) -> None:
    kept, unkept = team.one("StatefulSet", "mcp-server-memory"), team.one("StatefulSet", "mcp-server-sales-db")
    (claim,) = kept["spec"]["volumeClaimTemplates"]
    assert (claim["metadata"]["name"], claim["spec"]["resources"]) == ("state", {"requests": {"storage": "1Gi"}})
    assert "volumeClaimTemplates" not in unkept["spec"]
    assert {"name": "state", "emptyDir": {}} in unkept["spec"]["template"]["spec"]["volumes"]


def test_replicas_keep_their_audit_logs_on_volumes_if_they_have_some() -> None:
    objects = Objects(
        parse_documents(rendering_of("team", "gateway.storage=5Gi", "autoscaling.enabled=true").manifests)
    )
    gateway = objects.one("StatefulSet")["spec"]
    assert gateway["serviceName"] == "mcp-peers"
    assert gateway["volumeClaimTemplates"][0]["spec"]["resources"] == {"requests": {"storage": "5Gi"}}
    assert [each["name"] for each in gateway["template"]["spec"]["volumes"]] == ["config"]
    assert objects.one("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["kind"] == "StatefulSet"


def test_replicas_are_spread_and_never_all_away_at_once(company: Objects) -> None:
    pod = company.pod("Deployment")
    keys = [each["topologyKey"] for each in pod["topologySpreadConstraints"]]
    assert keys == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    assert company.one("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    rolling = company.one("Deployment")["spec"]["strategy"]["rollingUpdate"]
    assert rolling == {"maxUnavailable": 0, "maxSurge": 1}


def test_replicas_follow_the_cpu_and_the_calls_in_flight(company: Objects) -> None:
    spec = company.one("HorizontalPodAutoscaler")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (3, 8)
    cpu, calls = spec["metrics"]
    assert cpu["resource"]["name"] == "cpu"
    assert calls["pods"]["metric"]["name"] == "dynamic_mcp_upstream_requests_in_flight"
    assert calls["pods"]["target"] == {"type": "AverageValue", "averageValue": "40"}
    assert "replicas" not in company.one("Deployment")["spec"]  # which would undo it with each `kubectl apply`


def test_selectors_find_the_pods_that_they_mean(objects: Objects) -> None:
    labels = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for kind in ("Deployment", "StatefulSet")
        for each in objects.of(kind)
    }
    for kind in ("Deployment", "StatefulSet", "PodDisruptionBudget"):
        for each in objects.of(kind):
            name = each["metadata"]["name"]
            assert _selected(each["spec"]["selector"]["matchLabels"], labels) == [name]
    for name in labels:
        assert _selected(objects.one("Service", name)["spec"]["selector"], labels) == [name]


# --- secrets ---------------------------------------------------------------------------------------------------


def test_each_secret_has_what_its_pod_names_and_nothing_else(team: Objects) -> None:
    assert team.variables("mcp-server-memory") == ["GATEWAY_TOKEN_0"]
    assert team.variables("mcp-server-sales-db") == ["DATABASE_URL", "GATEWAY_TOKEN_0"]
    tokens = ["SERVER_TOKEN_MEMORY", "SERVER_TOKEN_SALES_DB"]
    assert team.variables() == ["CI_TOKEN", "CLUSTER_KEY", "GITHUB_TOKEN", *tokens]


def test_no_config_has_a_secret(company: Objects) -> None:
    values = re.findall(r"[\w-]*only-for-tests[\w-]*", json.dumps(company.of("Secret")))
    configs = json.dumps([each for each in company if each["kind"] != "Secret"])
    assert values
    assert not any(value in configs for value in values)


def test_a_server_is_open_to_the_token_of_the_gateway_alone(team: Objects) -> None:
    (provider,) = team.config("mcp-server-memory")["settings"]["http"]["auth"]
    assert provider == {"kind": "bearer", "tokens": [{"token": "${GATEWAY_TOKEN_0}", "subject": "gateway"}]}
    assert team.config()["mcpServers"]["memory"]["headers"] == {"Authorization": "Bearer ${SERVER_TOKEN_MEMORY}"}
    sent, accepted = _value(team, NAME, "SERVER_TOKEN_MEMORY"), _value(team, "mcp-server-memory", "GATEWAY_TOKEN_0")
    assert sent == accepted
    assert sent != _value(team, "mcp-server-sales-db", "GATEWAY_TOKEN_0")


def test_while_a_key_is_replaced_a_server_accepts_the_tokens_of_both(company: Objects) -> None:
    (provider,) = company.config("mcp-server-notes")["settings"]["http"]["auth"]
    assert [each["token"] for each in provider["tokens"]] == ["${GATEWAY_TOKEN_0}", "${GATEWAY_TOKEN_1}"]
    assert _value(company, NAME, "SERVER_TOKEN_NOTES") == _value(company, "mcp-server-notes", "GATEWAY_TOKEN_0")


def test_secrets_that_are_made_by_other_means_are_not_printed() -> None:
    objects = objects_of("pinned")
    assert objects.of("Secret") == []
    (volume,) = (each for each in objects.pod("StatefulSet")["volumes"] if each["name"] == "config")
    assert volume["projected"]["sources"][1]["secret"]["name"] == NAME


# --- the network -----------------------------------------------------------------------------------------------


def test_only_the_gateway_may_talk_to_a_server(team: Objects) -> None:
    (rule,) = team.one("NetworkPolicy", "mcp-server-memory")["spec"]["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": "http"}]
    ((peer),) = rule["from"]
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "gateway"


def test_a_server_talks_to_what_it_needs(team: Objects) -> None:
    dns, internet = team.one("NetworkPolicy", "mcp-server-memory")["spec"]["egress"]
    assert {each["port"] for each in dns["ports"]} == {53}
    assert [each["ipBlock"]["cidr"] for each in internet["to"]] == ["0.0.0.0/0", "::/0"]
    assert "10.0.0.0/8" in internet["to"][0]["ipBlock"]["except"]
    _, database = team.one("NetworkPolicy", "mcp-server-sales-db")["spec"]["egress"]
    assert database["ports"] == [{"protocol": "TCP", "port": 5432}]


def test_the_gateway_talks_to_names_its_servers_its_store_and_remote_servers(company: Objects) -> None:
    dns, tiers, store, internet = company.one("NetworkPolicy")["spec"]["egress"]
    assert {each["port"] for each in dns["ports"]} == {53}
    assert tiers["ports"] == [{"protocol": "TCP", "port": 8808}]
    assert store["ports"] == [{"protocol": "TCP", "port": 6380}]
    assert internet["to"][0]["ipBlock"]["cidr"] == "0.0.0.0/0"


def test_replicas_reach_each_other_where_the_clients_are_limited(company: Objects) -> None:
    clients, replicas, metrics = company.one("NetworkPolicy")["spec"]["ingress"]
    assert clients["from"][0]["namespaceSelector"]
    assert replicas["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "gateway"
    assert metrics["ports"] == [{"protocol": "TCP", "port": "metrics"}]


# --- where clients come in, and metrics ------------------------------------------------------------------------


def test_an_ingress_has_the_paths_of_clients_and_not_those_of_replicas(company: Objects) -> None:
    spec = company.one("Ingress")["spec"]
    (rule,) = spec["rules"]
    paths = [each["path"] for each in rule["http"]["paths"]]
    assert rule["host"] == "mcp.example.com"
    assert {"/tools/mcp", "/tools/sse", "/tools/messages", "/tools/authorize", "/.well-known"} <= {*paths}
    assert not any("/tools/cluster/x".startswith(each) or "/cluster/x".startswith(each) for each in paths)
    assert spec["tls"] == [{"hosts": ["mcp.example.com"], "secretName": "mcp-certificate"}]


def test_ingress_nginx_keeps_a_client_at_its_replica(company: Objects) -> None:
    annotations = company.one("Ingress")["metadata"]["annotations"]
    assert annotations["nginx.ingress.kubernetes.io/upstream-hash-by"] == "$http_authorization"
    assert annotations["nginx.ingress.kubernetes.io/proxy-body-size"] == "128m"


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Mcp-Session-Id", "d1.mcp-1.6VYkYuTg2iG8x0JrX9aZuQ.x0JrcEvUq1Y3A"),
        ("Mcp-Name", "d1.mcp-1.x0JrcEvUq1Y3A.task"),
        ("Mcp-Name", "dynamic-mcp://results/d1.mcp-1.x0Jr.abc"),
    ],
)
def test_a_route_sends_what_names_a_replica_to_it(header: str, value: str) -> None:
    objects = objects_of("pinned")
    *pinned, rest = objects.one("HTTPRoute")["spec"]["rules"]
    found = [
        rule["backendRefs"][0]["name"]
        for rule in pinned
        for match in rule["matches"]
        for each in match["headers"]
        if each["name"] == header and re.fullmatch(each["value"], value)
    ]
    assert found == ["mcp-1"]
    assert objects.one("Service", "mcp-1")["spec"]["selector"] == {"statefulset.kubernetes.io/pod-name": "mcp-1"}
    assert rest["backendRefs"] == [{"name": NAME, "port": 8808}]


def test_metrics_are_read_from_all_pods_with_a_token_of_the_secret(company: Objects) -> None:
    (endpoint,) = company.one("ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": NAME, "key": "metrics-token"}
    token = company.one("Secret")["stringData"]["metrics-token"]
    for name in (NAME, "mcp-server-notes"):
        assert company.config(name)["settings"]["metrics"] == {
            "listen": "0.0.0.0:9464",
            "token": "${METRICS_TOKEN}",
        }
        assert _value(company, name, "METRICS_TOKEN") == token
    assert company.one("ServiceMonitor")["metadata"]["labels"]["release"] == "prometheus"


def _selected(selector: Json, labels: dict[str, Json]) -> list[str]:
    return [name for name, each in labels.items() if selector.items() <= each.items()]


def _value(objects: Objects, name: str, variable: str) -> str:
    lines: str = objects.one("Secret", name)["stringData"]["variables.env"]
    (found,) = (line for line in lines.splitlines() if line.startswith(f"{variable}="))
    return found.partition("=")[2].strip("'")
