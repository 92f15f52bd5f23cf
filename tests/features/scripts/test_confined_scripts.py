"""The interpreter of scripts, confined by the operating system too."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dynamic_mcp.config.confinement import CannotConfine
from dynamic_mcp.features.sandbox import wrapping
from dynamic_mcp.features.scripts.config import Scripts
from dynamic_mcp.features.scripts.workers import WorkerKind, WorkerPool
from dynamic_mcp.system.clock import LoopClock
from tests.features.scripts.scene import SLOW_S, echo, scripting

WHY_NOT = wrapping.explain_missing()
CONFINED = WorkerKind({}, is_confined=True)
STRICT = Scripts(sandbox="strict")

can_confine = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "-")


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in text.split()]


def interpreter_below(pid: int) -> int:
    """Return the process in which the interpreter runs, below that of bubblewrap."""
    while below := children_of(pid):
        (pid,) = below
    return pid


def variables_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def clean(temporary: Path, *, whole: bool) -> None:
    """Remove what lies in a temporary directory, or only a file of it."""
    for folder in temporary.iterdir():
        if whole:
            shutil.rmtree(folder)
        else:
            (folder / "start").unlink()


def modes_below(temporary: Path) -> list[int]:
    return [each.stat().st_mode & 0o777 for each in temporary.iterdir()]


def check_walls_of(pid: int) -> None:
    assert Path(f"/proc/{pid}/exe").readlink().name == "monty"
    root = Path(f"/proc/{pid}/root")
    assert (root / "usr/lib").exists()
    assert not (root / "etc/passwd").exists()
    assert not (root / __file__[1:]).exists()
    own, theirs = Path("/proc/self/ns"), Path(f"/proc/{pid}/ns")
    for space in ("mnt", "net", "pid", "ipc"):
        assert (own / space).readlink() != (theirs / space).readlink()
    status = Path(f"/proc/{pid}/status").read_text()
    assert "Seccomp:\t2" in status
    assert "NoNewPrivs:\t1" in status


@can_confine
async def test_a_confined_script_computes_and_calls_tools() -> None:
    async with scripting(echo, scripts=STRICT) as (_, client):
        assert await client.value('return await call("up", "echo", {"n": input}), 1 + 1', 3) == [{"n": 3}, 2]


@can_confine
async def test_a_confined_interpreter_sees_no_files_no_network_no_variables_and_no_other_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("A_KEY_OF_A_SERVER", "s3cret")
    pool = WorkerPool(LoopClock(), most=1)
    try:
        async with pool.worker(CONFINED, "client") as worker:
            assert await worker.session.feed_run("1 + 1") == 2
            outer = worker.session.worker_pid
            assert outer is not None
            pid = interpreter_below(outer)
            check_walls_of(pid)
            assert not any(b"s3cret" in variables_of(each) for each in (pid, *children_of(outer)))
    finally:
        await pool.close()
    async with asyncio.timeout(SLOW_S):
        while os.path.exists(f"/proc/{pid}"):  # noqa: ASYNC110, ASYNC240, PTH110 - it ends after the other one
            await asyncio.sleep(0.01)


@can_confine
@pytest.mark.parametrize("whole", [True, False])
async def test_scripts_run_on_after_the_system_has_cleaned_its_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, whole: bool
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pool = WorkerPool(LoopClock(), most=1)
    try:
        async with pool.worker(CONFINED, "client") as worker:
            await worker.session.feed_run("1")
        clean(tmp_path, whole=whole)
        for _ in range(3):  # one may have been started ahead
            async with pool.worker(CONFINED, "client") as worker:
                assert await worker.session.feed_run("1 + 1") == 2
        assert modes_below(tmp_path) == [0o700]
    finally:
        await pool.close()
    assert modes_below(tmp_path) == []


@can_confine
async def test_confined_and_other_scripts_do_not_share_workers() -> None:
    pool = WorkerPool(LoopClock(), most=1)
    try:
        for kind in (CONFINED, WorkerKind({}, is_confined=False), CONFINED):
            async with pool.worker(kind, "client") as worker:
                await worker.session.feed_run("1")
                pid = worker.session.worker_pid
                assert pid is not None
                assert bool(children_of(pid)) == kind.is_confined
    finally:
        await pool.close()


def test_a_program_is_not_wrapped_where_nothing_can_confine_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(CannotConfine, match="no sandbox"):
        wrapping.wrap("/bin/true", tmp_path)
    assert not list(tmp_path.iterdir())


@can_confine
def test_the_file_that_starts_a_program_is_its_users_alone(tmp_path: Path) -> None:
    folder = tmp_path / "it's here"
    folder.mkdir()
    starter = Path(wrapping.wrap("/bin/echo", folder))
    assert starter.stat().st_mode & 0o777 == 0o700
    done = subprocess.run([starter, "a b", "$HOME"], capture_output=True, text=True, check=True, env={})
    assert done.stdout == "a b $HOME\n"
