"""The supervisor of several workers: what it starts, what it starts again, and what it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.program import BOUND_S

if sys.platform == "win32":
    pytest.skip("Windows has no ports that processes share", allow_module_level=True)

from dynamic_mcp.host.supervisor import Supervisor, _remove_those_of_dead
from dynamic_mcp.system.worker import WorkerIdentity

# Writes down what happens to it, as `NUMBER WHAT`, and ends as the first argument says.
_WORKER = """
import os, signal, sys, threading, time
from dynamic_mcp.system.worker import of_process
how, file = sys.argv[1:]
worker = of_process(os.environ)
def note(what):
    with open(file, "a") as lines:
        lines.write(f"{worker.number} {what}\\n")
def beat():
    while True:
        worker.say_alive()
        time.sleep(0.02)
def end(*_):
    note("ended")
    sys.exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if how == "stays" else end)
note("started")
if how == "waits" and worker.number:
    time.sleep(60)
if how == "hesitates":
    time.sleep(0.5)
signal.signal(signal.SIGHUP, lambda *_: note("reloaded"))
if how == "fails":
    sys.exit(3)
worker.say_alive()
if how == "hangs" and worker.number:
    time.sleep(60)
if how == "dies" and worker.number:
    sys.exit(1)
threading.Thread(target=beat, daemon=True).start()
while sys.stdin.read():
    pass
note("is alone")
"""


class Service:
    """A supervisor of two workers that write down what happens to them."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def lines(self) -> list[str]:
        return sorted(self._file.read_text().splitlines()) if self._file.exists() else []

    async def until(self, condition: Callable[[list[str]], bool]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not condition(self.lines()):  # noqa: ASYNC110 - a file raises no event
                await asyncio.sleep(0.02)

    def run(self, how: str, **options: float) -> asyncio.Task[int]:
        worker = WorkerIdentity(0, 2, str(self._file.parent), "key")
        command = [sys.executable, "-c", _WORKER, how, str(self._file)]
        supervisor = Supervisor(worker, command, os.environ, finish_within_s=-9.5, first_pause_s=0.01, **options)
        return asyncio.create_task(supervisor.run())


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path / "lines")


async def test_all_workers_start_hear_of_a_reload_and_end(service: Service) -> None:
    running = service.run("serves")
    await service.until(lambda lines: lines == ["0 started", "1 started"])
    os.kill(os.getpid(), signal.SIGHUP)
    await service.until(lambda lines: {"0 reloaded", "1 reloaded"} <= {*lines})
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0
    assert {"0 ended", "1 ended"} <= {*service.lines()}


async def test_a_worker_that_ends_is_started_again_and_no_other(service: Service) -> None:
    running = service.run("dies")
    await service.until(lambda lines: lines.count("1 started") >= 3)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0
    assert service.lines().count("0 started") == 1


@pytest.mark.parametrize(("how", "words"), [("hangs", "worker 1 hangs"), ("waits", "worker 1 does not serve after")])
async def test_a_worker_that_hangs_is_killed_and_started_again(
    service: Service, caplog: pytest.LogCaptureFixture, how: str, words: str
) -> None:
    running = service.run(how, look_every_s=0.1)
    await service.until(lambda lines: lines.count("1 started") >= 2)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0
    assert words in caplog.text
    assert service.lines().count("0 started") == 1


async def test_a_reload_does_not_end_a_worker_that_still_starts(service: Service) -> None:
    running = service.run("hesitates")
    await service.until(lambda lines: lines == ["0 started"])
    os.kill(os.getpid(), signal.SIGHUP)
    await service.until(lambda lines: "1 started" in lines)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0
    assert service.lines().count("0 started") == 1


async def test_a_worker_that_cannot_be_started_again_is_tried_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, failures = asyncio.create_subprocess_exec, [OSError("no memory")]

    async def start_unless_full(*command: str, **options: Any) -> asyncio.subprocess.Process:  # Any: as the original
        if failures and "1 started" in service.lines():
            raise failures.pop()
        return await start(*command, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_unless_full)
    running = service.run("dies")
    await service.until(lambda lines: lines.count("1 started") >= 3)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0
    assert not failures


def test_folders_of_dead_supervisors_are_removed_also_one_that_had_our_process_id(tmp_path: Path) -> None:
    ours, of_living = tmp_path / f"workers-{os.getpid()}", tmp_path / f"workers-{os.getppid()}"
    for each in (ours, of_living, tmp_path / "workers-999999999"):
        each.mkdir()
    _remove_those_of_dead(ours)
    assert [*tmp_path.iterdir()] == [of_living]


async def test_if_the_first_worker_cannot_serve_no_other_is_started(service: Service) -> None:
    assert await service.run("fails") == 3
    assert service.lines() == ["0 started"]


async def test_a_worker_that_does_not_end_is_killed(service: Service) -> None:
    running = service.run("stays")
    await service.until(lambda lines: lines == ["0 started", "1 started"])
    os.kill(os.getpid(), signal.SIGINT)
    assert await running == 0
    assert "0 ended" not in service.lines()
