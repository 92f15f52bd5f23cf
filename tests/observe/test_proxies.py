"""The registry of proxies: which ones run, are silent or are gone."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from pathlib import Path

import pytest
from msgspec import structs

from dynamic_mcp.observe import proxies
from dynamic_mcp.observe.proxies import (
    SILENT_S,
    GroupStatus,
    InstanceStatus,
    ProxyRegistry,
    ProxyStatus,
    RunningProxy,
    SessionStatus,
    join,
)
from dynamic_mcp.system import acl
from tests.program import BOUND_S

ENTRY = ProxyStatus(
    config="/c.json",
    clients=["test"],
    groups=[GroupStatus(name="a", state="connected", reason="", tools=1, in_flight=0, calls=2, failures=1)],
)


async def start_publishing(registry: ProxyRegistry, folder: Path, entry: ProxyStatus = ENTRY) -> asyncio.Task[None]:
    """Start to publish the status of this process."""
    task = asyncio.create_task(registry.publish(lambda: entry))
    async with asyncio.timeout(BOUND_S):
        while not task.done() and not await asyncio.to_thread(lambda: list(folder.glob("*.json"))):
            pass
    return task


async def test_a_proxy_is_in_the_registry_as_long_as_it_runs(tmp_path: Path) -> None:
    folder = tmp_path / "running"
    registry = ProxyRegistry(folder)
    task = await start_publishing(registry, folder)
    (running,) = registry.list_proxies()
    assert (running.pid, running.status, running.silent_s) == (os.getpid(), ENTRY, 0.0)
    (file,) = folder.iterdir()
    if sys.platform == "win32":
        assert not acl.find_others(file)
        assert not acl.find_others(folder)
    else:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    task.cancel()
    await asyncio.wait([task])
    assert registry.list_proxies() == []


async def test_a_proxy_whose_config_path_is_not_utf8_is_in_the_registry_too(tmp_path: Path) -> None:
    task = await start_publishing(ProxyRegistry(tmp_path), tmp_path, structs.replace(ENTRY, config="/a\udcff.json"))
    assert [running.status.config for running in ProxyRegistry(tmp_path).list_proxies()] == ["/a\\udcff.json"]
    task.cancel()
    await asyncio.wait([task])


async def test_directories_and_sockets_that_are_not_utf8_are_in_the_registry_too(tmp_path: Path) -> None:
    entry = structs.replace(ENTRY, socket="/s\udcff", sessions=[SessionStatus(directory="/d\udcff", calls=3)])
    task = await start_publishing(ProxyRegistry(tmp_path), tmp_path, entry)
    [running] = ProxyRegistry(tmp_path).list_proxies()
    assert (running.status.socket, running.status.groups) == ("/s\\udcff", ENTRY.groups)
    assert running.status.sessions == [SessionStatus(directory="/d\\udcff", calls=3)]
    task.cancel()
    await asyncio.wait([task])


def test_the_file_of_an_older_version_is_read(tmp_path: Path) -> None:
    group = {"name": "a", "state": "connected", "reason": "", "tools": 1, "in_flight": 0, "calls": 2, "failures": 1}
    entry = {"config": "/c.json", "clients": ["test"], "groups": [group]}
    file = {"pid": os.getpid(), "version": "0.1.0", "started_at": 5.0, "entry": entry}
    (tmp_path / "1.json").write_text(json.dumps(file))

    [running] = ProxyRegistry(tmp_path).list_proxies()

    assert (running.version, running.status) == ("0.1.0", ENTRY)
    assert (running.status.kind, running.status.sessions, running.status.groups[0].instances) == ("stdio", [], [])


def test_the_file_of_a_newer_version_is_read_for_what_this_one_knows(tmp_path: Path) -> None:
    group = {"name": "a", "instances": [{"pid": 7, "new": {}}], "new": 1}
    entry = {"kind": "new", "sessions": [{"client": "ide", "new": []}], "groups": [group], "new": True}
    (tmp_path / "1.json").write_text(json.dumps({"pid": os.getpid(), "new": None, "entry": entry}))

    [running] = ProxyRegistry(tmp_path).list_proxies()

    assert running.status == ProxyStatus(
        kind="new",
        sessions=[SessionStatus(client="ide")],
        groups=[GroupStatus(name="a", instances=[InstanceStatus(pid=7)])],
    )


@pytest.mark.posix_only("on Windows a silent proxy is taken to have ended")
async def test_a_proxy_that_is_stopped_is_said_to_be_silent(tmp_path: Path) -> None:
    task = await start_publishing(ProxyRegistry(tmp_path), tmp_path)
    later = ProxyRegistry(tmp_path, now=lambda: max(f.stat().st_mtime for f in tmp_path.iterdir()) + 2 * SILENT_S)
    (running,) = later.list_proxies()
    assert running.silent_s == 2 * SILENT_S
    task.cancel()
    await asyncio.wait([task])


def test_what_cannot_be_read_or_is_of_a_process_that_is_gone_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text("{half")
    assert ProxyRegistry(tmp_path).list_proxies() == []
    assert ProxyRegistry(tmp_path / "nowhere").list_proxies() == []


async def test_a_proxy_is_shown_once_its_file_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(proxies, "CHECK_EVERY_S", 0.01)
    (tmp_path / "file").write_text("")
    registry = ProxyRegistry(tmp_path / "file" / "running")
    task = asyncio.create_task(registry.publish(lambda: ENTRY))
    async with asyncio.timeout(BOUND_S):
        while not caplog.records and not task.done():  # noqa: ASYNC110 - a log record raises no event
            await asyncio.sleep(0)
        (tmp_path / "file").unlink()
        while not await asyncio.to_thread(registry.list_proxies) and not task.done():
            pass
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])

    assert [each.levelname for each in caplog.records] == ["WARNING"]


async def test_what_changes_is_shown_long_before_the_next_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxies, "CHECK_EVERY_S", 3600.0)
    registry, changed, statuses = ProxyRegistry(tmp_path), asyncio.Event(), [ENTRY]
    task = asyncio.create_task(registry.publish(lambda: statuses[-1], changed))

    async def shows(config: str) -> None:
        async with asyncio.timeout(BOUND_S):
            while [each.status.config for each in await asyncio.to_thread(registry.list_proxies)] != [config]:
                pass

    await shows("/c.json")
    statuses.append(structs.replace(ENTRY, config="/d.json"))
    changed.set()
    await shows("/d.json")
    task.cancel()
    await asyncio.wait([task])


def test_the_workers_of_a_service_are_one_proxy_with_each_server_at_its_home() -> None:
    far = GroupStatus(name="a", state="connected", tools=1, calls=2, instances=[InstanceStatus(clients=["x"])])
    home = GroupStatus(name="a", state="connected", tools=None, calls=9, instances=[InstanceStatus(pid=77)])
    workers = [
        RunningProxy(
            pid=10 + number,
            started_at=5.0 - number,
            status=ProxyStatus(
                supervisor=9,
                worker=f"w{number}",
                clients=[f"c{number}"],
                sessions=[SessionStatus(client=f"c{number}")],
                groups=[far],
                homes=[home] if number else [],
            ),
        )
        for number in (1, 0)
    ]
    joined = join(9, workers)
    assert (joined.pid, joined.started_at, joined.status.clients) == (9, 4.0, ["c0", "c1"])
    assert [(each.name, each.pid, each.sessions) for each in joined.status.workers] == [("w0", 10, 1), ("w1", 11, 1)]
    (group,) = joined.status.groups
    assert (group.calls, group.tools, [each.pid for each in group.instances]) == (4, 1, [77])
