"""A running program takes what its config file becomes, and what did not change there never notices."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from dynamic_mcp.system import file_reader
from tests import signals
from tests.program import BOUND_S, Json, Program, odd, serving, text_of


def save(folder: Path, servers: Json) -> None:
    """Save the config as an editor does, by a rename."""
    write(folder, json.dumps({"mcpServers": servers}))


def write(folder: Path, text: str) -> None:
    new = folder / "new.json"
    new.write_text(text)
    file_reader.replace(new, folder / "dynamic-mcp.json")


async def lists(program: Program, text: str) -> None:
    """Wait until the client was told of a tool list in which this stands."""
    known = 0
    while text not in json.dumps(await program.request("tools/list")):
        known = await next_told(program, "notifications/tools/list_changed", known)


async def next_told(program: Program, method: str, known: int) -> int:
    """Wait until the client was told this more often than `known`, and return how often."""

    def told() -> int:
        return sum(json.loads(line).get("method") == method for line in program.lines)

    await program.line(lambda line: told() > known)
    return told()


async def pid_of(program: Program, group: str) -> int:
    told: dict[str, int] = json.loads(text_of(await program.call(group, "process")))
    return told["pid"]


# Row 50 of the fault matrix.


async def test_an_unchanged_group_keeps_its_process_and_its_call_while_a_changed_one_restarts(tmp_path: Path) -> None:
    async with serving(tmp_path, {"stays": odd(), "changes": odd()}) as program:
        stays, changes = await pid_of(program, "stays"), await pid_of(program, "changes")
        call = asyncio.create_task(program.call("stays", "hold", {"key": "k"}))

        save(tmp_path, {"stays": odd(), "changes": odd(env={"NEW": "1"}), "added": odd(description="Fresh")})
        await lists(program, "Fresh")

        assert await pid_of(program, "changes") != changes
        assert await pid_of(program, "stays") == stays
        assert await pid_of(program, "added")
        assert not call.done()
        await program.call("stays", "release", {"key": "k"})
        assert not (await call).get("isError")


async def test_a_group_that_inherits_everything_keeps_its_process(tmp_path: Path) -> None:
    async with serving(tmp_path, {"stays": odd(inherit_env="all")}) as program:
        stays = await pid_of(program, "stays")

        save(tmp_path, {"stays": odd(inherit_env="all"), "added": odd(description="Fresh")})
        await lists(program, "Fresh")

        assert await pid_of(program, "stays") == stays


async def test_a_removed_group_leaves_no_process(tmp_path: Path) -> None:
    async with serving(tmp_path, {"stays": odd(), "goes": odd()}) as program:
        pid = await pid_of(program, "goes")
        ended = asyncio.create_task(asyncio.to_thread(signals.has_ended, pid, BOUND_S))
        save(tmp_path, {"stays": odd()})
        assert await ended
        assert "no group is named" in text_of(await program.call("goes", "process"))


# Row 48 of the fault matrix.


@pytest.mark.both_hosts
async def test_a_wrong_config_is_told_once_and_the_old_one_serves_until_a_good_one_comes(tmp_path: Path) -> None:
    async with serving(tmp_path, {"up": odd()}) as program:
        pid = await pid_of(program, "up")
        write(tmp_path, '{"mcpServers": {"up": 7}}')
        told = json.loads(await program.line(lambda line: b"notifications/message" in line))
        assert (told["params"]["level"], told["params"]["logger"]) == ("error", "dynamic-mcp")
        assert "mcpServers.up" in told["params"]["data"]
        assert await pid_of(program, "up") == pid

        save(tmp_path, {"up": odd(description="Well again")})
        await lists(program, "Well again")
        assert await pid_of(program, "up") == pid
        program.end_input()
        assert await program.ends() == 0
        assert (await program.stderr()).count("the config was not reloaded") == 1


# Row 52 of the fault matrix.


@pytest.mark.posix_only("Windows has no SIGHUP")
@pytest.mark.both_hosts
async def test_sighup_reads_the_config_again_and_ends_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, {"up": odd()}) as program:
        pid = await pid_of(program, "up")
        save(tmp_path, {"up": odd(description="By signal")})
        os.kill(program.host, signal.SIGHUP)
        await lists(program, "By signal")
        assert await pid_of(program, "up") == pid


async def test_a_new_command_is_on_stderr_without_the_values_of_its_environment(tmp_path: Path) -> None:
    async with serving(tmp_path, {}) as program:
        save(tmp_path, {"new": odd("title", "Brand new", env={"TOKEN": "hunter2"})})
        await lists(program, "Brand new")
        program.end_input()
        assert await program.ends() == 0
        stderr = await program.stderr()
        assert json.dumps(sys.executable) in stderr
        assert '"Brand new"' in stderr
        assert "hunter2" not in stderr


async def test_a_second_signal_ends_everything_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path, {"odd": odd("ignore_term")}) as program:
        ended = asyncio.create_task(asyncio.to_thread(signals.has_ended, await pid_of(program, "odd"), BOUND_S))
        host = program.host
        for ask in (signals.ask_to_end, signals.interrupt):
            ask(host)
        program.end_input()
        assert await program.ends() == 0
        assert await ended
