"""One rule says which config a command uses: `-c`, the environment, this directory, the user's directory."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.cli.commands import CliRunner
from tests.program import full, running
from tests.windows import user_dir

READERS = [["check"], ["stats"], ["tools"], ["doctor"]]


def _find_used_config(cli: CliRunner, *args: str, **env: str) -> str:
    """Return the only group of the config that a command used."""
    done = cli.run(*args, **env)
    assert done.code == 0, done.err
    if args[0] == "check":
        return Path(done.json[0]["where"]).parent.name
    if args[0] == "tools":
        return str(done.json[0]["group"])
    return str(done.json["groups"][0]["group"])


@pytest.fixture
def places(cli: CliRunner) -> CliRunner:
    """A config in each place, whose only group is named as the place is."""
    for name, file in (
        ("named", cli.folder / "named" / "dynamic-mcp.json"),
        ("variable", cli.folder / "variable" / "dynamic-mcp.json"),
        ("here", cli.folder / "here" / "dynamic-mcp.json"),
        ("dynamic-mcp", user_dir(cli.folder / "home") / "dynamic-mcp.json"),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"mcpServers": {name: full()}}), encoding="utf-8")
    cli.config.unlink()
    return cli


@pytest.mark.parametrize("command", READERS, ids=lambda command: command[0])
def test_every_command_finds_its_config_by_the_same_rule(places: CliRunner, command: list[str]) -> None:
    variable = {"DYNAMIC_MCP_CONFIG": str(places.folder / "variable" / "dynamic-mcp.json")}
    here = CliRunner(places.folder / "here")
    home = {"XDG_CONFIG_HOME": str(places.folder / "home")}
    assert _find_used_config(here, *command, "-c", "../named/dynamic-mcp.json", **variable, **home) == "named"
    assert _find_used_config(here, *command, **variable, **home) == "variable"
    assert _find_used_config(here, *command, **home) == "here"
    assert _find_used_config(places, *command) == "dynamic-mcp"


async def test_status_and_logs_show_every_proxy_or_those_of_the_config_that_is_named(cli: CliRunner) -> None:
    other = cli.folder / "other.json"
    other.write_text(json.dumps({"mcpServers": {"else": full()}}), encoding="utf-8")
    async with running(str(cli.config)) as first, running(str(other)) as second:
        await first.initialize()
        await second.initialize()

        async def shown(*args: str) -> set[str]:
            return {proxy["config"] for proxy in (await asyncio.to_thread(cli.run, "status", *args)).json}

        async with asyncio.timeout(60):
            while await shown() != {str(cli.config), str(other)}:
                pass
        assert await shown("-c", "other.json") == {str(other)}
        assert await shown("-c", str(cli.config)) == {str(cli.config)}

    def writers(*args: str) -> set[int]:
        return {json.loads(line)["pid"] for line in cli.run("logs", *args).out.splitlines()}

    assert writers() == {first.process.pid, second.process.pid}
    assert writers("-c", "other.json") == {second.process.pid}
    assert writers("-c", str(cli.config)) == {first.process.pid}


def test_status_and_logs_say_that_nothing_is_known_of_a_config(cli: CliRunner) -> None:
    assert "dynamic-mcp is not serving" in cli.run_on_terminal("status", "-c", "dynamic-mcp.json").out
    assert "dynamic-mcp.json" in cli.run("logs", "-c", "dynamic-mcp.json").err


def test_a_config_that_did_not_start_is_in_its_own_log(cli: CliRunner) -> None:
    cli.config.write_text("{", encoding="utf-8")
    assert cli.run(str(cli.config)).code == 2
    assert "did not start" in cli.run("logs", "-c", "dynamic-mcp.json").out
    assert "did not start" in cli.run("logs", "-c", f"../{cli.folder.name}/dynamic-mcp.json").out
    assert cli.run("logs", "-c", "other.json").out == ""


def test_help_says_where_a_first_config_is_created(cli: CliRunner) -> None:
    assert "created in your config directory" in " ".join(cli.run("add", "--help").out.split())
