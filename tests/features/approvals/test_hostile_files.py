"""What is put into the folder of approvals by somebody else, or by mistake, decides nothing and breaks nothing."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from msgspec import structs

from dynamic_mcp.features.approvals.client import ApprovalClient
from dynamic_mcp.features.approvals.queued import ApprovalDecision
from tests.features.approvals.queue_server import Proxy, running, waiting
from tests.program import BOUND_S

ALLOW = b'{"id": "7F3K2M", "verdict": "allow"}'
NAME = "7F3K2M.0123456789abcdef.decision"
posix_only = pytest.mark.skipif(os.name != "posix", reason="Windows has no such files")


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[Proxy]:
    async with running(tmp_path / "approvals", waiting()) as proxy:
        yield proxy


async def allow(folder: Path) -> str:
    """Decide as a person does; returns what became of it."""
    answer = await asyncio.to_thread(ApprovalClient(folder).decide, ApprovalDecision(id="7F3K2M", verdict="allow"))
    return answer.outcome


def link(path: Path) -> None:
    outside = path.parent.parent / "outside"
    outside.write_bytes(ALLOW)
    path.symlink_to(outside)


def give(path: Path, *, uid: int) -> None:
    staged = path.parent.parent / "staged"
    write(staged, ALLOW)
    os.chown(staged, uid, -1)
    staged.rename(path)


def write(path: Path, data: bytes, mode: int = 0o600) -> None:
    staged = path.parent.parent / "new"
    staged.write_bytes(data)
    staged.chmod(mode)
    staged.rename(path)


HOSTILE: dict[str, Callable[[Path], object]] = {
    "of another call": lambda path: write(path, ALLOW.replace(b"7F3K2M", b"AAAAAA")),
    "no JSON": lambda path: write(path, b"\xff{"),
    "no object": lambda path: write(path, b"[]"),
    "no verdict": lambda path: write(path, b'{"id": "7F3K2M"}'),
    "a verdict that does not exist": lambda path: write(path, ALLOW.replace(b'"allow"', b'"yes"')),
    "wrong types": lambda path: write(path, b'{"id": ["7F3K2M"], "verdict": true, "scope": 1}'),
    "arguments that are none": lambda path: write(path, ALLOW[:-1] + b', "arguments": "x"}'),
    "nested without end": lambda path: write(path, ALLOW[:-1] + b', "arguments": ' + b"[" * 500_000 + b"}"),
    "too large": lambda path: write(path, ALLOW[:-1] + b', "x": "' + b"x" * (10 << 20) + b'"}'),
    "a directory": lambda path: (path / "full").mkdir(parents=True),
    "empty": lambda path: write(path, b""),
}
HOSTILE_ON_POSIX: dict[str, Callable[[Path], object]] = {
    "a link": link,
    "a pipe": lambda path: os.mkfifo(path, 0o600),
    "writable by others": lambda path: write(path, ALLOW, 0o666),
}


async def assert_ignored(proxy: Proxy, folder: Path, put: Callable[[Path], object]) -> None:
    await asyncio.to_thread(put, folder / NAME)
    async with asyncio.timeout(BOUND_S):
        while await asyncio.to_thread(os.path.lexists, folder / NAME):
            pass
    assert [each.id for each in await asyncio.to_thread(ApprovalClient(folder).list_pending)] == ["7F3K2M"]
    assert proxy.received == []
    assert await allow(folder) == "taken"
    assert len(proxy.received) == 1


@pytest.mark.parametrize("put", HOSTILE.values(), ids=HOSTILE)
async def test_a_file_that_is_no_decision_decides_nothing(
    proxy: Proxy, tmp_path: Path, put: Callable[[Path], object]
) -> None:
    await assert_ignored(proxy, tmp_path / "approvals", put)


@posix_only
@pytest.mark.parametrize("put", HOSTILE_ON_POSIX.values(), ids=HOSTILE_ON_POSIX)
async def test_a_file_that_somebody_else_may_have_written_decides_nothing(
    proxy: Proxy, tmp_path: Path, put: Callable[[Path], object]
) -> None:
    await assert_ignored(proxy, tmp_path / "approvals", put)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give files away")
async def test_a_file_of_another_user_decides_nothing(proxy: Proxy, tmp_path: Path) -> None:
    await assert_ignored(proxy, tmp_path / "approvals", lambda path: give(path, uid=65534))


async def test_a_flood_of_decisions_is_answered_and_the_proxy_goes_on(proxy: Proxy, tmp_path: Path) -> None:
    folder = tmp_path / "approvals"

    def flood() -> None:
        for number in range(500):
            write(folder / f"7F3K2M.{number:016x}.decision", b"{}")

    await asyncio.to_thread(flood)
    assert await allow(folder) == "taken"


async def test_a_command_shows_only_what_proxies_of_this_user_have_written(proxy: Proxy, tmp_path: Path) -> None:
    folder = tmp_path / "approvals"
    good = json.loads((folder / "7F3K2M.json").read_bytes())
    wrong: dict[str, bytes] = {
        "AAAAAA.json": json.dumps({**good, "id": "BBBBBB"}).encode(),
        "CCCCCC.json": b"{",
        "DDDDDD.json": json.dumps({**good, "id": "DDDDDD", "expires": time.time() - 1}).encode(),
        "lower1.json": json.dumps({**good, "id": "lower1"}).encode(),
        "..json": ALLOW,
    }
    for name, data in wrong.items():
        write(folder / name, data)
    (folder / "EEEEEE.json").mkdir()
    assert [each.id for each in ApprovalClient(folder).list_pending()] == ["7F3K2M"]


def test_what_a_dead_proxy_has_left_is_removed(tmp_path: Path) -> None:
    script = (
        "import asyncio, os, pathlib, sys; from tests.features.approvals.queue_server import *\n"
        "async def main():\n"
        "    server = Proxy(pathlib.Path(sys.argv[1])).server\n"
        "    await server.put(waiting())\n"
        "    os._exit(0)\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=BOUND_S)
    assert [file.name for file in tmp_path.iterdir()] == ["7F3K2M.json"]
    assert ApprovalClient(tmp_path).list_pending() == []
    assert list(tmp_path.iterdir()) == []


def test_two_processes_decide_and_are_told_what_became_of_it(tmp_path: Path) -> None:
    """A proxy in another process takes one decision, and ends once it has it."""
    script = (
        "import asyncio, pathlib, sys; from tests.features.approvals.queue_server import *\n"
        "async def main():\n"
        "    async with running(pathlib.Path(sys.argv[1]), waiting()) as proxy:\n"
        "        print('waits', flush=True)\n"
        "        await proxy.has_received.wait()\n"
        "        print(proxy.received[0].reason, flush=True)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "waits\n"
        client = ApprovalClient(tmp_path)
        (pending,) = client.find("7f")
        assert pending.pid == other.pid
        decision = ApprovalDecision(id=pending.id, verdict="deny", reason="nö\u2028")
        assert client.decide(structs.replace(decision, id="ZZZZZZ")).outcome == "gone"
        assert client.decide(decision).outcome == "taken"
        assert other.stdout.read() == "nö\u2028\n"
    assert list(tmp_path.iterdir()) == []
