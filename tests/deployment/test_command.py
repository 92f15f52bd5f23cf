"""`dynamic-mcp cluster render` as a person runs it."""

from __future__ import annotations

import json

from dynamic_mcp.features.cluster.chart import parse_documents
from tests.cli.commands import CliRunner
from tests.deployment.rendered import HERE

CONFIG, VALUES, SECRETS = (str(HERE / "configs" / f"team.{each}") for each in ("json", "yaml", "env"))


def test_it_prints_manifests_and_nothing_else(cli: CliRunner) -> None:
    done = cli.run("cluster", "render", CONFIG, "--values", VALUES, "--secrets", SECRETS, "--name", "mcp")
    golden = (HERE / "golden" / "team.yaml").read_text(encoding="utf-8")
    assert (done.code, done.out.splitlines()) == (0, golden.splitlines())
    assert (
        done.err.strip() == "warning: `Sales DB` loses its files with its pod: `servers.Sales DB.storage` has no size"
    )


def test_as_json_they_are_a_list_that_kubectl_takes(cli: CliRunner) -> None:
    done = cli.run("cluster", "render", CONFIG, "--secrets", SECRETS, "--json", "-q")
    assert done.json["kind"] == "List"
    pod = next(each for each in done.json["items"] if each["kind"] == "Deployment")["spec"]["template"]["spec"]
    assert pod["volumes"][0]["projected"]["defaultMode"] == 0o440
    printed = cli.run("cluster", "render", CONFIG, "--secrets", SECRETS).out
    assert done.json["items"] == parse_documents(printed)


def test_the_values_for_helm_have_the_config_and_all_that_was_given(cli: CliRunner) -> None:
    done = cli.run("cluster", "render", CONFIG, "--secrets", SECRETS, "--set", "gateway.replicas=3", "--as-values")
    values = json.loads(done.out)
    assert values["gateway"] == {"replicas": 3}
    assert [*values["config"]["mcpServers"]] == ["memory", "Sales DB", "github"]
    assert "CLUSTER_KEY" in values["secrets"]


def test_what_it_refuses_ends_it_without_output(cli: CliRunner) -> None:
    done = cli.run("cluster", "render", "--set", "createSecrets=false")
    assert (done.code, done.out) == (2, "")
    assert "settings.http.auth" in done.err
    assert "hint:" in done.err


def test_the_paths_of_values_are_offered(cli: CliRunner) -> None:
    words = "dynamic-mcp cluster render --set autoscaling.c"
    asked = {"_DYNAMIC_MCP_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "4"}
    offered = [each.partition(",")[2] for each in cli.run(**asked).out.splitlines()]
    assert offered == ["autoscaling.cpuUtilization=", "autoscaling.callsInFlight="]
