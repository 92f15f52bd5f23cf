"""The pack of terraform, with a real terraform: what works, and what a directory can make it run."""

from __future__ import annotations

import asyncio
import json
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynamic_mcp.packs import library
from dynamic_mcp.packs.model import tool_name
from tests.fakes import Json
from tests.upstream.cli.packs import Place, error_of, output_of

if sys.platform == "win32":
    pytest.skip("the dangers are scripts of a Unix shell", allow_module_level=True)

CONFIGURATION = """
variable "text" {
  default = "one"
}

resource "terraform_data" "it" {
  input = var.text
}

output "text" {
  value = terraform_data.it.output
}
"""
ARGUMENTS: dict[str, Json] = {
    "fmt_text": {"stdin": "a=1\n"},
    "state_show": {"address": "evil_thing.it"},
    "apply": {"plan": "plan"},
}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path, "terraform")
    made.environment["CHECKPOINT_DISABLE"] = "1"
    return made


def read_only() -> Iterator[tuple[str, Json]]:
    """Each tool that only reads, with arguments for it."""
    for each in library.read_shipped("terraform").commands:
        if each.worst_effect == "read":
            tool = tool_name("terraform", each.name)
            yield tool, ARGUMENTS.get(tool.removeprefix("terraform_"), {})


@pytest.mark.full
async def test_a_plan_is_made_shown_and_applied(place: Place) -> None:
    (place.work / "main.tf").write_text(CONFIGURATION)
    async with place.serve() as client:
        await output_of(client, "terraform_init", {})
        assert "valid" in await output_of(client, "terraform_validate", {})
        planned = await output_of(
            client, "terraform_plan", {"var": ["text=-two"], "out": "new", "detailed_exitcode": True}
        )
        assert "1 to add" in planned
        assert "-two" in await output_of(client, "terraform_show", {"path": "new"})
        await output_of(client, "terraform_apply", {"plan": "new"})
        assert await output_of(client, "terraform_output", {"raw": True, "name": "text"}) == "-two"
        assert await output_of(client, "terraform_state_list", {}) == "terraform_data.it\n"
        renamed = {"source": "terraform_data.it", "destination": "terraform_data.other"}
        await output_of(client, "terraform_state_mv", {**renamed, "lock": False})
        await output_of(client, "terraform_plan_destroy", {"out": "away"})
        await output_of(client, "terraform_apply", {"plan": "away"})
        assert await output_of(client, "terraform_state_list", {}) == ""
        await output_of(client, "terraform_workspace_new", {"name": "other"})
        assert await output_of(client, "terraform_workspace_show", {}) == "other\n"


@pytest.mark.full
async def test_files_and_texts_are_formatted(place: Place) -> None:
    (place.work / "-x.tf").write_text("a=1\n")
    async with place.serve() as client:
        assert "-x.tf" in await output_of(client, "terraform_fmt_check", {"paths": ["-x.tf"]})
        assert await output_of(client, "terraform_fmt_text", {"stdin": "a   =   1\n"}) == "a = 1\n"
        await output_of(client, "terraform_fmt", {"paths": ["-x.tf"]})

    assert (place.work / "-x.tf").read_text() == "a = 1\n"


@pytest.mark.full
async def test_nothing_is_applied_but_a_plan_in_a_file(place: Place) -> None:
    (place.work / "main.tf").write_text(CONFIGURATION)
    place.run("init")
    async with place.serve() as client:
        await error_of(client, "terraform_apply", {})
        await error_of(client, "terraform_apply", {"auto_approve": True})
        await error_of(client, "terraform_apply", {"plan": "-auto-approve"})

    assert not (place.work / "terraform.tfstate").exists()


# --- dangers -----------------------------------------------------------------------------------------------------


@pytest.mark.full
async def test_no_tool_that_only_reads_runs_a_provider(place: Place) -> None:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    folder = f"work/plugins/example.com/a/evil/1.0.0/{sys.platform}_{machine}"
    place.make_script(f"{folder}/terraform-provider-evil_v1.0.0")
    (place.work / "main.tf").write_text(
        'terraform {\n  required_providers {\n    evil = { source = "example.com/a/evil" }\n  }\n}\n'
    )
    place.run("init", "-plugin-dir=plugins")
    place.run("validate")
    assert place.takes_mark()

    async with place.serve() as client:
        for tool, arguments in read_only():
            await output_of(client, tool, arguments)
            assert not place.takes_mark(), tool
        await error_of(client, "terraform_validate", {})
        assert place.takes_mark()  # what may run one is no tool that only reads


@pytest.mark.full
async def test_no_tool_that_only_reads_runs_a_program_for_the_login_to_the_state(place: Place) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b'{"kind": "SecretList", "apiVersion": "v1", "metadata": {}, "items": []}'
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        settings = 'secret_suffix = "x"\n    config_path = "login.json"'
        (place.work / "main.tf").write_text(f'terraform {{\n  backend "kubernetes" {{\n    {settings}\n  }}\n}}\n')
        (place.work / "login.json").write_text(json.dumps(kubeconfig(place, f"http://127.0.0.1:{port}")))
        await asyncio.to_thread(place.run, "init", "-input=false")
    (place.work / "login.json").write_text(json.dumps(kubeconfig(place, "https://127.0.0.1:1")))
    place.run("state", "list")
    assert place.takes_mark()

    async with place.serve() as client:
        for tool, arguments in read_only():
            await client.call("it", tool, arguments)
            assert not place.takes_mark(), tool


def kubeconfig(place: Place, server: str) -> Json:
    """A login by a program to a cluster at this address."""
    login = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(place.evil), "interactiveMode": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": server}}],
        "users": [{"name": "it", "user": {"exec": login}}],
    }


@pytest.mark.full
async def test_no_flags_come_from_the_environment(place: Place) -> None:
    variables = {"TF_CLI_ARGS": "-json", "TF_CLI_ARGS_version": "-json"}
    assert place.run("version", **variables).startswith("{")

    async with place.serve(variables, env=["TF_*"]) as client:
        assert (await output_of(client, "terraform_version", {})).startswith("Terraform v")


@pytest.mark.full
async def test_no_tool_works_in_another_directory(place: Place) -> None:
    other = place.folder / "other"
    other.mkdir()
    (other / "main.tf").write_text("a=1\n")
    assert "main.tf" in place.run(f"-chdir={other}", "fmt", "-check")
    assert "main.tf" in place.run("fmt", "-check", str(other))

    async with place.serve() as client:
        for path in (f"-chdir={other}", str(other), "../other"):
            assert "main.tf" not in await error_of(client, "terraform_fmt_check", {"paths": [path]})
            assert "main.tf" not in await error_of(client, "terraform_fmt", {"paths": [path]})

    assert (other / "main.tf").read_text() == "a=1\n"
