"""The same by Helm, and what Kubernetes, kustomize and Prometheus say of it.

`helm` is that of $DYNAMIC_MCP_TEST_HELM, `kubernetes-validate` that of $DYNAMIC_MCP_TEST_KUBERNETES_VALIDATE, and
`promtool` that of $DYNAMIC_MCP_TEST_PROMTOOL.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from dynamic_mcp.features.cluster.chart import parse_documents, parse_yaml, to_json
from dynamic_mcp.features.cluster.render import render
from tests.deployment.rendered import CHART, CONFIGS, HERE, NAME, Json, Objects, objects_of, rendering_of

HELM = os.environ.get("DYNAMIC_MCP_TEST_HELM", "")
VALIDATE = os.environ.get("DYNAMIC_MCP_TEST_KUBERNETES_VALIDATE", "")
PROMTOOL = os.environ.get("DYNAMIC_MCP_TEST_PROMTOOL", "") or shutil.which("promtool") or ""
KUBECTL = shutil.which("kubectl")
# The oldest version that the chart is for, and one of now.
VERSIONS = ("1.27", "1.37")
# Kinds of operators and of the Gateway API, whose schemas are not among those of Kubernetes.
OTHERS = ("HTTPRoute", "ServiceMonitor", "PrometheusRule")

pytestmark = pytest.mark.full
with_helm = pytest.mark.skipif(not HELM, reason="DYNAMIC_MCP_TEST_HELM does not name a `helm`")
with_validator = pytest.mark.skipif(
    not VALIDATE, reason="DYNAMIC_MCP_TEST_KUBERNETES_VALIDATE does not name a `kubernetes-validate`"
)
with_promtool = pytest.mark.skipif(not PROMTOOL, reason="DYNAMIC_MCP_TEST_PROMTOOL does not name a `promtool`")
with_kubectl = pytest.mark.skipif(KUBECTL is None, reason="`kubectl` is not installed")


def run(*command: str | Path, succeeds: bool = True) -> str:
    """Run a program and return its output."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode == 0) is succeeds, done.stdout + done.stderr
    return done.stdout + done.stderr


def values_file(folder: Path, config: str, *changes: str) -> Path:
    """Write the values with which Helm gives the same."""
    file = folder / "values.json"
    file.write_text(json.dumps(rendering_of(config, *changes).values), encoding="utf-8")
    return file


def template(folder: Path, config: str, *changes: str) -> Objects:
    """Return the objects that Helm makes."""
    options = ("--kube-version", "v1.30.0", "-f", values_file(folder, config, *changes))
    return Objects(parse_documents(run(HELM, "template", NAME, CHART, *options)))


# Values that the configs of these tests do not have.
CHANGES: Sequence[tuple[str, Sequence[str]]] = (
    *((config, ()) for config in CONFIGS),
    ("team", ("monitoring.enabled=true", "networkPolicy.enabled=false", "gateway.replicas=1")),
    ("team", ("serverDefaults.internet=true", "serverDefaults.storage=", "gateway.image=dynamic-mcp:slim")),
    ("team", ("autoscaling.enabled=true", "gateway.egress=[{to: [{podSelector: {}}]}]", "createSecrets=false")),
    ("company", ("autoscaling.enabled=false", "ingress.enabled=false", "networkPolicy.clients=[]")),
    ("company", ("httpRoute={enabled: true, parentRefs: [{name: public}]}", "monitoring.enabled=false",
                 "autoscaling.callsInFlight=0")),
    ("team", ("gateway.env=[{name: A, value: b}]", "gateway.volumes=[{name: ca, configMap: {name: ca}}]",
              "gateway.volumeMounts=[{name: ca, mountPath: /ca}]", "serverDefaults.env=[{name: A, value: b}]",
              "serverDefaults.volumes=[{name: ca, configMap: {name: ca}}]",
              "serverDefaults.volumeMounts=[{name: ca, mountPath: /ca}]")),
    ("team", ("gateway.storage=5Gi", "gateway.storageClass=fast", "autoscaling.enabled=true")),
    ("pinned", ("httpRoute.affinity=false", "serverDefaults.storage=5Gi", "networkPolicy.enabled=true")),
)  # fmt: skip


@with_helm
@pytest.mark.parametrize(("config", "changes"), CHANGES)
def test_helm_makes_the_same_objects(tmp_path: Path, config: str, changes: Sequence[str]) -> None:
    rendered = Objects(parse_documents(rendering_of(config, *changes).manifests))
    assert template(tmp_path, config, *changes).named() == rendered.named()


@with_helm
def test_helm_reads_the_same_texts(tmp_path: Path) -> None:
    odd = "a\r\nb\u2028c  \n\td\u00e9\U0001f600 <&>"
    config = {
        "mcpServers": {
            "a": {"command": "x", "description": odd, "env": {"A": "${A}", "B": "${credential:b}", "C": "${C:-}"}}
        },
        "settings": {"http": {"insecure": True}},
    }
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    values = json.dumps({"secrets": {"A": odd, "CLUSTER_KEY": "k" * 32}})
    (tmp_path / "values.json").write_text(values, encoding="utf-8")
    rendered = render(file, NAME, values_file=tmp_path / "values.json", changes=(), secrets_file=None)
    (tmp_path / "helm.json").write_text(to_json(rendered.values), encoding="utf-8")
    options = ("--kube-version", "v1.30.0", "-f", tmp_path / "helm.json")
    by_helm = Objects(parse_documents(run(HELM, "template", NAME, CHART, *options)))
    assert by_helm.named() == Objects(parse_documents(rendered.manifests)).named()


@with_helm
@pytest.mark.parametrize("config", CONFIGS)
def test_helm_finds_nothing_wrong_with_the_chart(tmp_path: Path, config: str) -> None:
    found = run(HELM, "lint", "--strict", CHART, "-f", values_file(tmp_path, config))
    assert "0 chart(s) failed" in found


@with_helm
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("gateway.replica=3", "Additional property replica is not allowed"),
        ("servers.clock.internet=true", "servers.clock: is no server"),
        ("secrets.CLUSTER_KEY=short", "secrets.CLUSTER_KEY: needs 32 characters"),
        ("secrets.METRICS_TOKEN=mine", "secrets.METRICS_TOKEN: is a variable that the manifests have"),
        ("secrets.SERVER_TOKEN_MEMORY=mine", "secrets.SERVER_TOKEN_MEMORY: is a variable that the manifests have"),
        ("config.mcpServers.github.headers.X=${ABSENT}", "no value for `${ABSENT}`"),
        ("ingress.enabled=true", "config.settings.http.public_url"),
        ("autoscaling.callsInFlight=3", "no metrics without `monitoring`"),
        ("config.settings.http.auth=null", "config.settings.http.auth"),
        (
            "config.settings.http.public_url=https://a.example/b/mcp,ingress.enabled=true",
            "public_url: its path must be",
        ),
        ("config.settings.daemon=true", "config.settings.daemon"),
        ("config.settings.deamon=true", "Additional property deamon is not allowed"),
        (
            "config.mcpServers.memory.env.A_TOKEN=abcdef",
            "config.mcpServers.memory.env.A_TOKEN: a secret in plain text",
        ),
    ],
)
def test_helm_refuses_what_cannot_be_meant(tmp_path: Path, change: str, message: str) -> None:
    options = ("--kube-version", "v1.30.0", "-f", values_file(tmp_path, "team"), "--set", change)
    assert message in run(HELM, "template", NAME, CHART, *options, succeeds=False)


@with_helm
@pytest.mark.parametrize("name", ["a.b", "1a"])
def test_helm_refuses_names_that_services_cannot_have(tmp_path: Path, name: str) -> None:
    command = (HELM, "template", name, CHART, "--kube-version", "v1.30.0", "-f", values_file(tmp_path, "team"))
    assert "is no name for objects of Kubernetes" in run(*command, succeeds=False)


@with_validator
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("config", CONFIGS)
def test_kubernetes_accepts_all_of_its_objects(tmp_path: Path, config: str, version: str) -> None:
    with_volumes = Objects(parse_documents(rendering_of(config, "gateway.storage=1Gi").manifests))
    for number, each in enumerate((*objects_of(config), *with_volumes.of("StatefulSet"))):
        if each["kind"] not in OTHERS:
            (tmp_path / f"{number}.json").write_text(json.dumps(each))
    run(VALIDATE, "--strict", "-k", version, *sorted(tmp_path.glob("*.json")))


@with_validator
def test_the_validator_would_find_what_kubernetes_does_not_accept(tmp_path: Path) -> None:
    deployment = objects_of("team").one("Deployment")
    deployment["spec"]["replica"] = 3
    (tmp_path / "a.json").write_text(json.dumps(deployment))
    assert "replica" in run(VALIDATE, "--strict", "-k", VERSIONS[0], tmp_path / "a.json", succeeds=False)


@with_kubectl
def test_kustomize_takes_the_manifests_and_changes_them(tmp_path: Path) -> None:
    (tmp_path / "manifests.yaml").write_text(rendering_of("company").manifests, encoding="utf-8")
    (tmp_path / "kustomization.yaml").write_text("resources: [manifests.yaml]\nnamespace: tools\n")
    found = Objects(parse_documents(run("kubectl", "kustomize", tmp_path)))
    assert len(found.all) == len(objects_of("company").all)
    assert {each["metadata"]["namespace"] for each in found} == {"tools"}


@with_promtool
def test_each_alert_comes_when_it_should_and_not_before(tmp_path: Path) -> None:
    rule = objects_of("company").one("PrometheusRule")["spec"]
    (tmp_path / "rules.json").write_text(json.dumps(rule))
    assert f"{len(rule['groups'][0]['rules'])} rules found" in run(
        PROMTOOL, "check", "rules", tmp_path / "rules.json"
    )
    tests = parse_yaml((HERE / "alerts.yaml").read_text(encoding="utf-8"))
    covered = {each["alertname"] for test in tests["tests"] for each in test["alert_rule_test"] if each["exp_alerts"]}
    assert covered == {each["alert"] for each in rule["groups"][0]["rules"]}
    for test in tests["tests"]:
        for each in test["alert_rule_test"]:
            (found,) = (one for one in rule["groups"][0]["rules"] if one["alert"] == each["alertname"])
            for alert in each["exp_alerts"]:
                alert["exp_annotations"] = {"summary": _filled(found["annotations"]["summary"], alert)}
                alert["exp_labels"] = {**alert["exp_labels"], **found["labels"]}
                del alert["value"]
    (tmp_path / "tests.json").write_text(json.dumps(tests))
    run(PROMTOOL, "test", "rules", tmp_path / "tests.json")


def _filled(summary: str, alert: Json) -> str:
    for name, value in alert["exp_labels"].items():
        summary = summary.replace(f"{{{{ $labels.{name} }}}}", value)
    return summary.replace("{{ $value }}", str(alert["value"]))
