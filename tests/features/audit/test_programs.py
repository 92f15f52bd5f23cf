"""What is executed is recorded, whatever happens to the program."""

from __future__ import annotations

import asyncio
import json
import sys
from itertools import islice
from pathlib import Path

import pytest

from tests.features.audit.audited import uses_in
from tests.hosting_fixtures import _hosting, pytest_generate_tests
from tests.program import UPSTREAMS, Json, Program, serving

__all__ = ["_hosting", "pytest_generate_tests"]


def recording(executed: Path) -> Json:
    return {"command": sys.executable, "args": ["-I", "-S", str(UPSTREAMS / "recording.py"), str(executed)]}


def settings(**audit: Json) -> Json:
    return {"audit": {"path": "audit", "arguments": "full", "on_failure": "stop-writes", **audit}}


def numbers_in(executed: Path) -> list[int]:
    return [json.loads(line)["n"] for line in executed.read_text().splitlines()]


async def call(program: Program, n: int) -> None:
    await program.call_line("up", "change", {"n": n})


@pytest.mark.parametrize(
    ("count", "answered"),
    [(200, 80), *(pytest.param(1000, answered, marks=pytest.mark.full) for answered in (1, 400))],
)
async def test_a_kill_in_the_middle_of_calls_loses_none_that_was_executed(
    tmp_path: Path, count: int, answered: int
) -> None:
    executed = tmp_path / "executed"
    servers, root = {"up": recording(executed)}, {"settings": settings()}
    async with serving(tmp_path, servers, **root) as program:
        calls = [asyncio.create_task(call(program, n)) for n in range(count)]
        for each in islice(asyncio.as_completed(calls), answered):
            await each
        program.kill()
        for task in calls:
            task.cancel()
        await asyncio.wait(calls)
    async with serving(tmp_path, servers, **root) as program:
        await call(program, count)
    lines = uses_in(tmp_path / "audit", was_killed=True)
    recorded = [line["arguments"]["n"] for line in lines]
    assert answered <= len(numbers_in(executed)) <= count + 1
    assert set(numbers_in(executed)) <= set(recorded)
    assert len(recorded) == len(set(recorded)), "each call has one line"
    unknown = [line for line in lines if line.get("outcome") == "unknown"]
    assert all(line["error"] == "interrupted" for line in unknown)


async def test_what_ends_as_it_should_leaves_no_open_call(tmp_path: Path) -> None:
    executed = tmp_path / "executed"
    async with serving(tmp_path, {"up": recording(executed)}, settings=settings()) as program:
        for n in range(3):
            await call(program, n)
    lines = uses_in(tmp_path / "audit")
    assert [(line["arguments"]["n"], line.get("outcome")) for line in lines] == [(0, None), (1, None), (2, None)]
    assert list((tmp_path / "audit" / "open").iterdir()) == []
