"""What is put into the folder of approvals by somebody else, or by mistake, decides nothing and breaks nothing."""

from __future__ import annotations

import asyncio
import contextlib
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
from dynamic_mcp.features.approvals.store import ApprovalDecision, ApprovalStore, StoredApproval
from dynamic_mcp.system import file_reader
from dynamic_mcp.system.file_store import JsonCodec
from tests.features.approvals.queue_server import Proxy, running, waiting
from tests.program import BOUND_S

NAME = "7F3K2M.json"


encode = JsonCodec(StoredApproval, 1).encode


def content(*, of: str = "7F3K2M", **decision: object) -> bytes:
    """Return a file as a proxy has written it, in which a call is allowed."""
    value = StoredApproval(
        pending=waiting(of), decision=ApprovalDecision(id=of, verdict="allow"), nonce="0123456789abcdef"
    )
    written = json.loads(encode(value))
    written["decision"].update(decision)
    return json.dumps(written).encode()


ALLOW = content()
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
    staged = path.parent.parent / "staged"
    staged.symlink_to(outside)
    staged.replace(path)


def make_pipe(path: Path) -> None:
    staged = path.parent.parent / "staged"
    os.mkfifo(staged, 0o600)
    staged.replace(path)


def give(path: Path, *, uid: int) -> None:
    staged = path.parent.parent / "staged"
    write(staged, ALLOW)
    os.chown(staged, uid, -1)
    staged.replace(path)


def make_directory(path: Path) -> None:
    while not path.is_dir():
        with contextlib.suppress(PermissionError):  # on Windows, while the proxy reads it
            path.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):  # the proxy has written its own in between
            path.mkdir()
    (path / "full").mkdir()


def write(path: Path, data: bytes, mode: int = 0o600) -> None:
    staged = path.parent.parent / "new"
    staged.write_bytes(data)
    staged.chmod(mode)
    file_reader.replace(staged, path)  # which waits on Windows while the proxy reads what is there


HOSTILE: dict[str, Callable[[Path], object]] = {
    "of another call": lambda path: write(path, content(of="AAAAAA")),
    "a decision about another call": lambda path: write(path, content(id="AAAAAA")),
    "no JSON": lambda path: write(path, b"\xff{"),
    "no object": lambda path: write(path, b"[]"),
    "no call": lambda path: write(path, b'{"form": 1}'),
    "another format": lambda path: write(path, ALLOW.replace(b'"form": 1', b'"form": 2')),
    "a verdict that does not exist": lambda path: write(path, content(verdict="yes")),
    "wrong types": lambda path: write(path, content(verdict=True, scope=1)),
    "a duration that was not offered": lambda path: write(path, content(scope="session")),
    "arguments that are none": lambda path: write(path, content(arguments="WzFd")),
    "nested without end": lambda path: write(path, b"[" * 500_000),
    "too large": lambda path: write(path, ALLOW[:-1] + b', "x": "' + b"x" * (17 << 20) + b'"}'),
    "a directory": make_directory,
    "empty": lambda path: write(path, b""),
}
HOSTILE_ON_POSIX: dict[str, Callable[[Path], object]] = {
    "a link": link,
    "a pipe": make_pipe,
    "writable by others": lambda path: write(path, ALLOW, 0o666),
}


async def assert_ignored(proxy: Proxy, folder: Path, put: Callable[[Path], object]) -> None:
    await asyncio.to_thread(put, folder / NAME)
    store = ApprovalStore(folder)
    async with asyncio.timeout(BOUND_S):
        while (stored := await asyncio.to_thread(store.read, "7F3K2M")) is None or not stored.is_open:
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


async def test_a_command_shows_only_what_proxies_of_this_user_have_written(proxy: Proxy, tmp_path: Path) -> None:
    folder = tmp_path / "approvals"
    wrong: dict[str, bytes] = {
        "AAAAAA.json": content(of="BBBBBB"),
        "CCCCCC.json": b"{",
        "DDDDDD.json": encode(StoredApproval(pending=waiting("DDDDDD", expires=time.time() - 1))),
        "lower1.json": encode(StoredApproval(pending=waiting("lower1"))),
        "..json": ALLOW,
    }
    for name, data in wrong.items():
        write(folder / name, data)
    (folder / "EEEEEE.json").mkdir()
    assert [each.id for each in ApprovalClient(folder).list_pending()] == ["7F3K2M"]


@pytest.mark.posix_only("a process is known to be gone by its id; on Windows, by its silence")
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
    assert sorted(file.name for file in tmp_path.iterdir()) == ["7F3K2M.json", "lock"]
    assert ApprovalClient(tmp_path).list_pending() == []
    assert [file.name for file in tmp_path.iterdir()] == ["lock"]


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
    command = [sys.executable, "-X", "utf8", "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as other:
        assert other.stdout
        assert other.stdout.readline() == "waits\n"
        client = ApprovalClient(tmp_path)
        (pending,) = client.find("7f")
        assert pending.pid == other.pid
        decision = ApprovalDecision(id=pending.id, verdict="deny", reason="nö\u2028")
        assert client.decide(structs.replace(decision, id="ZZZZZZ")).outcome == "gone"
        assert client.decide(decision).outcome == "taken"
        assert other.stdout.read() == "nö\u2028\n"
    assert [file.name for file in tmp_path.iterdir()] == ["lock"]
