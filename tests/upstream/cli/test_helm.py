"""The pack of helm: what works with a real helm and no cluster, and what helm must not do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dynamic_mcp.packs import library
from dynamic_mcp.packs.model import tool_name
from dynamic_mcp.upstream.cli.argv import BadArguments, build
from tests.upstream.cli.packs import Place, error_of, output_of, refusal_of

if sys.platform == "win32":
    pytest.skip("the dangers are scripts of a Unix shell", allow_module_level=True)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, "helm")


@pytest.mark.full
async def test_a_chart_is_made_checked_and_shown(place: Place) -> None:
    async with place.serve() as client:
        await output_of(client, "helm_create", {"name": "web"})
        await output_of(client, "helm_lint", {"chart": "web"})
        wanted = {"release": "it", "chart": "./web", "set": ["replicaCount=3"], "namespace": "here"}
        assert "replicas: 3" in await output_of(client, "helm_template", wanted)
        assert "name: web" in await output_of(client, "helm_show_chart", {"chart": "./web"})
        await output_of(client, "helm_package", {"chart": "web", "destination": "."})


@pytest.mark.parametrize(
    "flag",
    [
        *("--kubeconfig", "--kube-context", "--kube-token", "--kube-as-user", "--kube-as-group", "--kube-apiserver"),
        *("--kube-ca-file", "--kube-insecure-skip-tls-verify", "--kube-tls-server-name", "--registry-config"),
        *("--repository-config", "--repository-cache", "--post-renderer", "--post-renderer-args", "--set-file"),
        *("--keyring", "--key-file", "--cert-file", "--ca-file", "--username", "--password", "--pass-credentials"),
        *("--insecure-skip-tls-verify", "--plain-http", "--passphrase-file", "--output-dir", "--validate"),
    ],
)
def test_no_tool_has_flags_for_programs_logins_and_files(flag: str) -> None:
    for each in library.read_shipped("helm").commands:
        assert flag not in {name for one in each.flags for name in (one.name, *one.aliases)}
        assert not any(word.startswith(flag) for word in each.fixed)


def test_plug_ins_are_not_loaded_and_their_commands_not_reachable() -> None:
    pack = library.read_shipped("helm")
    assert pack.environment["HELM_PLUGINS"] == "/dev/null"
    assert not {"plugin", "registry", "completion"} & {word for each in pack.commands for word in each.path}


@pytest.mark.parametrize("values", ["a.yaml,/etc/passwd", '"/etc/passwd"', "https://127.0.0.1:1/x", "evil://x", "-"])
def test_a_file_with_values_is_one_file(values: str) -> None:
    [template] = [each for each in library.read_shipped("helm").commands if each.name == "template"]
    with pytest.raises(BadArguments):
        build(template, {"release": "it", "chart": "web", "values": [values]})


@pytest.mark.parametrize("chart", ["evil://x", "http://127.0.0.1:1/x", "file:///etc", "--post-renderer=x://y"])
def test_a_chart_comes_by_no_protocol_of_a_plug_in(chart: str) -> None:
    for each in library.read_shipped("helm").commands:
        for word in each.positionals:
            if word.name == "chart":
                needed = {one.name: "it" for one in each.positionals if one.required}
                with pytest.raises(BadArguments):
                    build(each, {**needed, "chart": chart})


@pytest.mark.full
async def test_no_post_renderer_plug_in_or_login_is_run(place: Place) -> None:
    place.run("create", "web")
    place.run("template", "it", "./web", f"--post-renderer={place.evil}")
    if not place.takes_mark():
        pytest.skip("this `helm` takes plug-ins only as post-renderers")

    async with place.serve() as client:
        for name in ("post_renderer", "kubeconfig", "set_file"):
            await refusal_of(client, "helm_template", {"release": "it", "chart": "./web", name: str(place.evil)})
        flag = f"--post-renderer={place.evil}"
        await error_of(client, tool_name("helm", "template"), {"release": flag, "chart": "./web"})
        assert not place.takes_mark()
