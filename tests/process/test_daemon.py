"""A daemon's life: who starts it, who shares it, and when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

import dynamic_mcp
from tests import own_process
from tests.hosting import daemon_log, daemons, find_daemon, wait_for_daemons
from tests.process.test_end import is_running
from tests.process.test_reload import lists
from tests.process.windows import has_received, pid_of, run_command, save, windows_of
from tests.program import BOUND_S, odd, running, text_of

pytestmark = [
    pytest.mark.daemon_only,
    pytest.mark.posix_only(
        "they look for daemons in /proc and signal them; face/test_shared_daemon.py is for Windows too"
    ),
]


async def test_twenty_windows_that_open_at_once_start_one_daemon(tmp_path: Path) -> None:
    async with windows_of(save(tmp_path, {"odd": odd()}), 20) as windows:
        assert len(set(await asyncio.gather(*(pid_of(each, "odd") for each in windows)))) == 1
        assert len(daemons()) == 1
    assert daemon_log().count("daemon of ") == 2  # it has begun and ended once


@pytest.mark.full
async def test_ten_windows_of_five_servers_run_five_servers(tmp_path: Path) -> None:
    names = [f"odd{number}" for number in range(5)]
    async with windows_of(save(tmp_path, {name: odd() for name in names}), 10) as windows:
        calls = [pid_of(window, name) for window in windows for name in names]
        assert len(set(await asyncio.gather(*calls))) == 5


async def test_windows_that_come_and_go_leave_no_connection_in_the_daemon(tmp_path: Path) -> None:
    file = save(tmp_path, {"odd": odd()})
    async with windows_of(file, 1) as (stays,):
        await pid_of(stays, "odd")
        before = _sockets(stays.host)
        for _ in range(3):
            async with windows_of(file, 5) as windows:
                await asyncio.gather(*(pid_of(each, "odd") for each in windows))
        async with asyncio.timeout(BOUND_S):
            while _sockets(stays.host) > before:
                await stays.request("ping")


def _sockets(pid: int) -> int:
    found = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            found += str(each.readlink()).startswith("socket:")
    return found


async def test_a_daemon_ends_by_itself_some_time_after_its_last_window(tmp_path: Path) -> None:
    async with windows_of(save(tmp_path, {"odd": odd()}, linger="3s"), 1) as (program,):
        server, daemon = await pid_of(program, "odd"), program.host
    assert is_running(daemon)
    await wait_for_daemons()
    assert not is_running(server)


@pytest.mark.parametrize("linger", ["1h", pytest.param("never", marks=pytest.mark.full)])
async def test_a_daemon_lingers_for_the_next_window(tmp_path: Path, linger: str) -> None:
    file = save(tmp_path, {"odd": odd()}, linger=linger)
    async with windows_of(file, 1) as (program,):
        server = await pid_of(program, "odd")
    async with windows_of(file, 1) as (program,):
        assert await pid_of(program, "odd") == server
    assert is_running(server)
    assert await run_command("daemon", "stop", "-c", str(file)) == 0
    assert not daemons()
    assert not is_running(server)


async def test_a_stopped_daemon_lets_calls_in_flight_finish_and_windows_go_on_with_another_when_they_need_one(
    tmp_path: Path,
) -> None:
    file = save(tmp_path, {"odd": odd(), "good": odd()})
    async with windows_of(file, 2) as (busy, idle):
        first = await pid_of(idle, "good")
        slept = asyncio.create_task(busy.call("odd", "sleep", {"seconds": 0.5}))
        held = asyncio.create_task(busy.call("odd", "hold", {"key": "k"}))
        await has_received(idle, "odd", '"hold"')
        daemon = busy.host

        assert await run_command("daemon", "stop", "-c", str(file)) == 0

        assert not is_running(daemon)
        assert not is_running(first)
        assert text_of(await slept) == "slept 0.5 s"
        assert "may have run" in text_of(await held)
        assert await pid_of(idle, "good") != first


async def test_a_stopped_daemon_is_not_started_again_by_windows_that_need_nothing(tmp_path: Path) -> None:
    file = save(tmp_path, {"odd": odd()})
    async with windows_of(file, 3) as windows:
        assert await run_command("daemon", "stop", "-c", str(file)) == 0
        assert await run_command("daemon", "status", "-c", str(file)) == 1
        for each in windows:
            each.end_input()
            assert await each.ends() == 0
        assert daemon_log().count("group\n") == 1
        assert not daemons()


async def test_a_restarted_daemon_serves_the_windows_of_the_one_before(tmp_path: Path) -> None:
    file = save(tmp_path, {"odd": odd()})
    async with windows_of(file, 2) as windows:
        before = await pid_of(windows[0], "odd")
        assert await run_command("daemon", "restart", "-c", str(file)) == 0
        after = set(await asyncio.gather(*(pid_of(each, "odd") for each in windows)))
        assert len(after) == 1
        assert before not in after


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
async def test_a_signal_stops_a_daemon_as_the_command_does(tmp_path: Path, number: int) -> None:
    file = save(tmp_path, {"odd": odd()})
    async with windows_of(file, 1) as (program,):
        first, daemon = await pid_of(program, "odd"), program.host
        os.kill(daemon, number)
        async with asyncio.timeout(BOUND_S):
            while is_running(daemon):  # noqa: ASYNC110 - it is nobody's child
                await asyncio.sleep(0.01)
        assert await pid_of(program, "odd") != first


async def test_another_version_of_the_program_has_a_daemon_of_its_own_and_the_old_one_ends_with_its_window(
    tmp_path: Path,
) -> None:
    newer = tmp_path / "newer"
    package = newer / "dynamic_mcp"
    unfinished = shutil.ignore_patterns("*.pyc.*")  # what another process compiles just now
    shutil.copytree(Path(dynamic_mcp.__file__).parent, package, ignore=unfinished)
    (package / "__init__.py").write_text('"""Another version."""\n\n__version__ = "99.0"\n')
    file = save(tmp_path, {"odd": odd()})
    async with running(str(file), env={"PYTHONPATH": str(newer)}, cwd=tmp_path) as new:
        hello = await new.initialize()
        assert hello["result"]["serverInfo"]["version"] == "99.0"
        theirs = find_daemon()
        async with windows_of(file, 1) as (old,):
            assert await pid_of(old, "odd") != await pid_of(new, "odd")
            assert len(daemons()) == 2
        await wait_for_daemons(theirs)
        await pid_of(new, "odd")


# --- its config ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", ['{"odd": {}}', '{"odd": {"command": 1}}', "oops"])
async def test_a_wrong_config_is_told_as_without_a_daemon(tmp_path: Path, servers: str) -> None:
    file = tmp_path / "dynamic-mcp.json"
    told = []
    for settings in ("{}", '{"daemon": true}'):
        file.write_text(f'{{"settings": {settings}, "mcpServers": {servers}}}')
        async with running(str(file)) as program:
            assert await program.ends() == 2
            told.append((await program.stderr()).splitlines()[0])
    assert told[0].split(":")[:2] == told[1].split(":")[:2]
    assert not daemons()


async def test_a_config_that_is_gone_costs_running_windows_nothing_and_a_new_one_uses_the_daemon(
    tmp_path: Path,
) -> None:
    file = save(tmp_path, {"odd": odd()})
    async with windows_of(file, 1) as (program,):
        server = await pid_of(program, "odd")
        file.unlink()
        async with windows_of(file, 1) as (other,):
            assert await pid_of(other, "odd") == server
        assert await pid_of(program, "odd") == server


async def test_a_change_of_the_config_reaches_every_window(tmp_path: Path) -> None:
    file = save(tmp_path, {"odd": odd()})
    async with windows_of(file, 3) as windows:
        await asyncio.gather(*(pid_of(each, "odd") for each in windows))
        save(tmp_path, {"odd": odd(), "fresh": odd(description="Fresh")})
        await asyncio.gather(*(lists(each, "Fresh") for each in windows))
        assert len(set(await asyncio.gather(*(pid_of(each, "fresh") for each in windows)))) == 1


async def test_without_the_setting_a_daemon_that_lingers_ends(tmp_path: Path) -> None:
    file = save(tmp_path, {"odd": odd()}, linger="1h")
    async with windows_of(file, 1) as (program,):
        await pid_of(program, "odd")
        save(tmp_path, {"odd": odd(description="Fresh")}, linger="1h")
        await lists(program, "Fresh")  # the file is watched from now on
    assert daemons()
    file.write_text(json.dumps({"mcpServers": {"odd": odd()}}))
    await wait_for_daemons()


async def test_without_the_setting_windows_keep_their_daemon_and_new_ones_serve_alone(tmp_path: Path) -> None:
    file = save(tmp_path, {"odd": odd()}, linger="1h")
    async with windows_of(file, 1) as (old,):
        server, daemon = await pid_of(old, "odd"), old.host
        file.write_text(json.dumps({"mcpServers": {"odd": odd(), "fresh": odd(description="Fresh")}}))
        await lists(old, "Fresh")

        async with running(str(file), is_alone=True) as new:
            await new.initialize()
            assert await pid_of(new, "odd") != server
            assert daemons() == [daemon]
        assert await pid_of(old, "odd") == server
    await wait_for_daemons()


async def test_without_the_setting_a_daemon_is_still_stopped_and_its_window_goes_on_alone(tmp_path: Path) -> None:
    file = save(tmp_path, {"odd": odd()}, linger="1h")
    async with windows_of(file, 1) as (program,):
        server = await pid_of(program, "odd")
        file.write_text(json.dumps({"mcpServers": {"odd": odd(), "fresh": odd(description="Fresh")}}))
        await lists(program, "Fresh")

        assert await run_command("daemon", "stop", "-c", str(file)) == 0
        await wait_for_daemons()
        assert await pid_of(program, "odd") != server


async def test_a_daemon_that_nothing_would_use_is_not_started(tmp_path: Path) -> None:
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {"odd": odd()}}))
    assert await run_command("daemon", "start", "-c", str(file)) == 1
    assert not daemons()


async def test_a_daemon_whose_config_is_named_with_dots_serves_the_windows_of_that_config(tmp_path: Path) -> None:
    file = save(tmp_path, {"odd": odd()}, linger="1h")
    (tmp_path / "below").mkdir()
    assert await run_command("daemon", "start", "-c", str(tmp_path / "below" / ".." / file.name)) == 0
    async with windows_of(file, 1) as (program,):
        await pid_of(program, "odd")
        assert len(daemons()) == 1
    assert await run_command("daemon", "stop", "-c", str(file)) == 0


async def test_a_shell_that_asks_for_words_is_no_window(tmp_path: Path) -> None:
    file = save(tmp_path, {"odd": odd()}, linger="1h")
    assert await run_command("daemon", "start", "-c", str(file)) == 0
    process = await own_process.start(
        env={
            **os.environ,
            "_DYNAMIC_MCP_COMPLETE": "bash_complete",
            "COMP_WORDS": "dynamic-mcp st",
            "COMP_CWORD": "1",
        },
        cwd=tmp_path,
        stdin=own_process.DEVNULL,
    )
    out, _ = await asyncio.wait_for(process.communicate(), BOUND_S)
    assert b"status" in out
    assert await run_command("daemon", "stop", "-c", str(file)) == 0
