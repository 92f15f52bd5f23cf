"""What is left when the program is killed, and what a child can do to it while both live: nothing."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynamic_mcp.config.resolved import Program as Command
from dynamic_mcp.errors import LinkLost
from dynamic_mcp.upstream.process.child import terminate_all
from dynamic_mcp.upstream.stdio import StdioTransport
from tests.process.test_end import is_running, pids_of
from tests.program import BOUND_S, UPSTREAMS, Json, Program, odd, running, serving, text_of

if sys.platform != "win32":
    import resource

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux, to watch processes end")
# Descriptors for some of ten servers: each takes about ten while it is started.
ROOM_FOR_A_FEW = 36


@contextlib.contextmanager
def watching(*pids: int) -> Iterator[list[int]]:
    """Open a handle on each process, which becomes readable at its end."""
    handles = [os.pidfd_open(pid) for pid in pids]
    try:
        yield handles
    finally:
        for handle in handles:
            os.close(handle)


async def all_end(handles: list[int]) -> None:
    """Wait for the end of every process behind these handles."""
    for handle in handles:
        ended, _, _ = await asyncio.to_thread(select.select, [handle], [], [], BOUND_S)
        assert ended


def children_of(program: Program) -> list[int]:
    """Return the process ids of the program's children, the dead ones that were not reaped among them."""
    tasks = Path(f"/proc/{program.host}/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def guardian_of(program: Program) -> int:
    """Return the process id of the guardian, which is the only child that runs a shell."""
    shells = [pid for pid in children_of(program) if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"/bin/sh")]
    (guardian,) = shells
    return guardian


def held_by(pid: int) -> set[str]:
    """Return what a process's descriptors stand for."""
    return {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()}  # noqa: PTH115 - a pipe is no path


# Row 53 of the fault matrix.


@pytest.mark.both_hosts
async def test_neither_child_nor_grandchild_survives_a_kill_of_the_program(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    modes = ("ok", "ignore_eof", "ignore_term", "grandchild", "family", "daemon", "hidden")
    async with serving(tmp_path, {mode: odd(mode) for mode in modes}) as program:
        pids = {mode: await pids_of(program, mode) for mode in modes}
        with watching(guardian_of(program), *itertools.chain(*pids.values())) as (guardian, *handles):
            program.kill()
            await all_end([guardian])
            handle = iter(handles)
            for mode, members in pids.items():
                with subtests.test(mode=mode):
                    await all_end([next(handle) for _ in members])


@pytest.mark.parametrize(
    "started", [pytest.param(1, marks=pytest.mark.full), 2, pytest.param(4, marks=pytest.mark.full)]
)
async def test_servers_that_are_just_being_started_do_not_survive_a_kill(tmp_path: Path, started: int) -> None:
    tag = str(tmp_path)
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {f"odd{n}": odd("ignore_term", tag) for n in range(8)}}))
    async with running(str(file)) as program:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test"}}
        program.send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
        async with asyncio.timeout(BOUND_S):
            while len(running_with(tag)) < started:  # noqa: ASYNC110 - a start raises no event here
                await asyncio.sleep(0)
        program.kill()
        await program.ends()
        async with asyncio.timeout(BOUND_S):
            while running_with(tag):  # noqa: ASYNC110 - whoever was started since has no handle yet
                await asyncio.sleep(0.01)


def running_with(tag: str) -> list[int]:
    """Return the servers whose last argument is `tag`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cmdline").read_bytes().endswith(f"odd.py\0ignore_term\0{tag}\0".encode()):
                found.append(int(process.name))
    return found


async def test_a_grandchild_whose_parent_has_ended_does_not_survive_a_kill_either(tmp_path: Path) -> None:
    async with serving(tmp_path, {"odd": odd("family")}) as program:
        server, grandchild = await pids_of(program, "odd")
        with watching(grandchild) as handles:
            os.kill(server, signal.SIGKILL)
            program.kill()
            await all_end(handles)


@pytest.mark.alone_only("of two daemons it is not known which serves whom")
async def test_a_kill_of_one_program_ends_no_server_of_another(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    async with serving(tmp_path / "one", {"odd": odd("family")}) as one:
        before = await pids_of(one, "odd")
        async with serving(tmp_path / "other", {"odd": odd()}) as other:
            await pids_of(other, "odd")
            with watching(guardian_of(other)) as handles:
                other.kill()
                await all_end(handles)
        assert all(map(is_running, before))
        assert await pids_of(one, "odd") == before


async def test_a_killed_guardian_disturbs_nobody_and_is_replaced(tmp_path: Path) -> None:
    async with serving(tmp_path, {"odd": odd(), "good": odd("ignore_term")}) as program:
        (first,) = await pids_of(program, "odd")
        os.kill(guardian_of(program), signal.SIGKILL)
        await program.call("odd", "fault", {"kind": "exit"})
        pids = await pids_of(program, "odd") + await pids_of(program, "good")
        assert first not in pids
        with watching(*pids, guardian_of(program)) as handles:
            program.kill()
            await all_end(handles)


async def test_the_guardian_holds_nothing_of_the_program_and_hears_none_of_its_signals(tmp_path: Path) -> None:
    async with serving(tmp_path, {"odd": odd()}) as program:
        await pids_of(program, "odd")
        guardian = guardian_of(program)
        assert len(held_by(guardian) - {"/dev/null"}) == 1
        assert os.getsid(guardian) == guardian


@pytest.mark.parametrize("end", ["eof", "SIGTERM"])
async def test_the_guardian_is_gone_when_the_program_is(tmp_path: Path, end: str) -> None:
    async with serving(tmp_path, {"odd": odd(), "good": odd()}) as program:
        await pids_of(program, "odd")
        await pids_of(program, "good")
        guardian = guardian_of(program)
        if end == "eof":
            program.end_input()
        else:
            program.process.send_signal(signal.Signals[end])
        assert await program.ends() == 0
        assert not is_running(guardian)


async def test_a_program_without_running_servers_has_no_child_at_all(tmp_path: Path) -> None:
    async with serving(tmp_path, {"odd": odd(idle_timeout="1s")}) as program:
        (server,) = await pids_of(program, "odd")
        with watching(server, guardian_of(program)) as handles:
            await all_end(handles)
        async with asyncio.timeout(BOUND_S):
            while children_of(program):  # noqa: ASYNC110 - an ended process is reaped a moment later
                await asyncio.sleep(0.01)


# Row 59.


async def test_a_server_that_was_killed_leaves_no_zombie(tmp_path: Path) -> None:
    async with serving(tmp_path, {"odd": odd("grandchild")}) as program:
        pids = await pids_of(program, "odd")
        os.kill(pids[0], signal.SIGKILL)
        await answer_in_the_end(program, "odd")
        assert not set(pids) & set(children_of(program))
        assert not [pid for pid in pids if is_running(pid)]


# Rows 58 and 60.


async def test_servers_for_which_there_are_no_descriptors_are_down_and_come_back(tmp_path: Path) -> None:
    names = [f"odd{number}" for number in range(10)]
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {name: odd() for name in names}}))
    async with running(str(file)) as program:
        await program.request("ping")  # what it opens for itself is open now
        usual, most = resource.prlimit(program.host, resource.RLIMIT_NOFILE)
        opened = Path(f"/proc/{program.host}/fd").iterdir()  # noqa: ASYNC240 - not a disk
        highest = max(int(each.name) for each in opened)
        resource.prlimit(program.host, resource.RLIMIT_NOFILE, (highest + ROOM_FOR_A_FEW, most))
        await program.initialize()
        results = await asyncio.gather(*(program.call(name, "echo", {"text": name}) for name in names))
        refused = [text_of(result) for result in results if result.get("isError")]
        assert 0 < len(refused) < len(names)
        assert [text for text in refused if "too many open files" not in text] == []
        resource.prlimit(program.host, resource.RLIMIT_NOFILE, (usual, most))
        for name in names:
            assert await answer_in_the_end(program, name) == name
        program.end_input()
        assert await program.ends() == 0
        assert (await program.stderr()).count("too many open files") < 5 * len(names)


async def answer_in_the_end(program: Program, group: str) -> str:
    """Call a group, again while it is down."""
    async with asyncio.timeout(BOUND_S):
        while (result := await program.call(group, "echo", {"text": group})).get("isError"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return text_of(result)


async def test_a_server_that_the_system_does_not_start_is_down_with_the_reason(tmp_path: Path) -> None:
    servers: Json = {
        "long": odd(env={"ODD_LONG": "x" * 200_000}),
        "directory": {"command": str(tmp_path)},
        "nowhere": odd(cwd="/no/such/folder"),
        "good": odd(),
    }
    expected = {"long": "`ODD_LONG`", "directory": "is a directory", "nowhere": "`/no/such/folder` does not exist"}
    async with serving(tmp_path, servers) as program:
        for group, words in expected.items():
            assert words in text_of(await program.call(group, "echo"))
        assert text_of(await program.call("good", "echo", {"text": "here"})) == "here"


# Row 31, and what a server says of its secrets.


async def test_the_secrets_of_a_server_are_masked_in_its_last_words(tmp_path: Path) -> None:
    said = "token $ODD_TOKEN at $ODD_URL with $ODD_MODE and s3cret-option"
    env = {"ODD_TOKEN": "tok-123456", "ODD_URL": "https://me:pa55word@odd.test/", "ODD_MODE": "careful"}
    server = odd("tells", said, "--api-key=s3cret-option", env=env)
    async with serving(tmp_path, {"odd": server}) as program:
        reason = text_of(await program.call("odd", "echo"))
        assert "token *** at https://me:***@odd.test/ with careful and ***" in reason
        program.end_input()
        await program.ends()
        log = await program.stderr()
        assert "token ***" in log
        assert not [secret for secret in ("tok-123456", "pa55word", "s3cret-option") if secret in log + reason]


async def test_the_secrets_of_a_server_are_masked_wherever_else_it_is_quoted(tmp_path: Path) -> None:
    env = {"ODD_TOKEN": "tok-123456"}
    servers = {
        "refuses": odd("init_error", "no to $ODD_TOKEN", env=env),
        "prints": odd("banner", "$ODD_TOKEN", env=env),
    }
    async with serving(tmp_path, servers) as program:
        assert "no to ***" in text_of(await program.call("refuses", "echo"))
        assert text_of(await program.call("prints", "echo", {"text": "here"})) == "here"
        program.end_input()
        await program.ends()
        assert "tok-123456" not in await program.stderr()


async def test_a_line_on_stderr_that_does_not_end_costs_its_ends_only(tmp_path: Path) -> None:
    async with serving(tmp_path, {"odd": odd("tells", "\x1b[31m" + "x" * 100_000)}) as program:
        reason = text_of(await program.call("odd", "echo"))
        assert r"\x1b[31mxxx" in reason
        assert len(reason) < 2000


# The end of every child at once.


@pytest.mark.alone_only("there is no program, but a transport")
async def test_whoever_waits_for_an_end_does_not_wait_longer_once_it_is_hastened() -> None:
    transport = StdioTransport("odd", 1 << 20)
    greeted = asyncio.Event()
    lost: asyncio.Queue[LinkLost] = asyncio.Queue()
    transport.receive = lambda line: greeted.set()
    transport.lost = lost.put_nowait
    args = (str(UPSTREAMS / "odd.py"), "family")
    await transport.start(Command(command=sys.executable, args=args, env=dict(os.environ), cwd=None))
    transport.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    await greeted.wait()

    terminate_all(0.2)
    async with asyncio.timeout(3):  # which is less than its usual patience
        await transport.close()

    assert "SIGKILL" in (await lost.get()).reason
