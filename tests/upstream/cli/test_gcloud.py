"""The pack of gcloud, against the real program and a service on loopback: what it asks, and what no tool does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dynamic_mcp.packs import library
from dynamic_mcp.packs.model import Flag, Positional, tool_name
from tests.fakes import Client, Json, text_of
from tests.program import BOUND_S
from tests.upstream.cli.programs import require, serve
from tests.upstream.cli.site import Site

COMMANDS = library.read_shipped("gcloud").commands


def answer(request: str) -> str | None:
    """What the services answer: one network."""
    return '{"name": "the-network", "id": "1", "kind": "compute#network"}'


def environment(folder: Path, site: Site) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "CLOUDSDK_CONFIG": str(folder / "gcloud"),
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{site.url}/compute/v1/",
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "1",
        "CLOUDSDK_CORE_CHECK_GCE_METADATA": "0",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
    }


@contextlib.asynccontextmanager
async def tools(folder: Path, site: Site, **cli: Json) -> AsyncIterator[Client]:
    """A client of all commands of gcloud, whose services are at the site."""
    require("gcloud")
    entry: Json = {"use": "gcloud", "commands": ["*"], "env": ["CLOUDSDK_*"], **cli}
    async with serve(folder, entry, environment=environment(folder, site), validate="off") as client:
        yield client


async def gcloud(folder: Path, site: Site, *words: str) -> str:
    """What the program itself writes, started in the folder as a person would."""
    program = require("gcloud")

    def run() -> str:
        done = subprocess.run(
            [program, *words],
            cwd=folder,
            env=environment(folder, site),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
        )
        return done.stdout + done.stderr

    return await asyncio.to_thread(run)


@pytest.mark.full
async def test_gcloud_asks_the_services(tmp_path: Path) -> None:
    async with Site(answer) as site, tools(tmp_path, site) as client:
        given: Json = {"name": "the-network", "project": "a-project", "format": "value(name)"}
        shown = await client.call("it", "gcloud_compute_networks_describe", given)

    assert not shown.get("isError"), text_of(shown)
    assert text_of(shown).strip() == "the-network"
    assert site.requests[-1].startswith("GET /compute/v1/projects/a-project/global/networks/the-network")


@pytest.mark.full
async def test_no_file_is_read_for_flags(tmp_path: Path) -> None:
    (tmp_path / "flags.yaml").write_text("--the-secret: 1\n")
    async with Site(answer) as site:
        assert "the-secret" in await gcloud(tmp_path, site, "projects", "list", "--flags-file=flags.yaml")
        async with tools(tmp_path, site, at_files=True) as client:
            refused = await client.call("it", "gcloud_projects_list", {"flags_file": "flags.yaml"})

    assert "no argument" in text_of(refused)


@pytest.mark.full
@pytest.mark.parametrize(
    "flag",
    [
        *("configuration", "account", "impersonate_service_account", "access_token_file", "log_http", "verbosity"),
        *("trace_token", "user_output_enabled", "billing_project", "flags_file", "quiet"),
    ],
)
async def test_no_call_chooses_whose_credentials_are_used_or_shows_them(tmp_path: Path, flag: str) -> None:
    async with Site(answer) as site, tools(tmp_path, site) as client:
        for command in COMMANDS:
            every: list[Flag | Positional] = [*command.positionals, *command.flags]
            needed: Json = {each.argument: ["a"] if each.repeatable else "a" for each in every if each.required}
            refused = await client.call("it", tool_name("gcloud", command.name), {**needed, flag: "x"})
            assert "no argument" in text_of(refused)

    assert site.requests == []


@pytest.mark.full
@pytest.mark.parametrize(
    "value", ["--flags-file=x", "-", "@x", "https://127.0.0.1/x", "http://x", "--access-token-file=x", "--", "a b"]
)
async def test_no_name_is_a_flag_or_an_address(tmp_path: Path, value: str) -> None:
    async with Site(answer) as site, tools(tmp_path, site, at_files=True) as client:
        for command in COMMANDS:
            for word in command.positionals:
                if word.argument != "log_filter":
                    given: Json = {word.argument: [value] if word.repeatable else value}
                    refused = await client.call("it", tool_name("gcloud", command.name), given)
                    assert refused["isError"]
                    assert "exitCode" not in refused.get("structuredContent", {})

    assert site.requests == []


@pytest.mark.full
@pytest.mark.parametrize("text", ["format('{0.__class__}', name)", "value(__init__)", "-x", "@x", ""])
async def test_a_format_reaches_nothing_inside_of_the_program(tmp_path: Path, text: str) -> None:
    async with Site(answer) as site, tools(tmp_path, site, at_files=True) as client:
        refused = await client.call("it", "gcloud_projects_list", {"format": text})

    assert "match" in text_of(refused)
