from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("inotify is part of Linux", allow_module_level=True)

from dynamic_mcp.system.inotify import InotifyWatcher


@contextlib.asynccontextmanager
async def watching() -> AsyncIterator[tuple[InotifyWatcher, asyncio.Event]]:
    changed = asyncio.Event()
    watcher = InotifyWatcher(asyncio.get_running_loop(), changed.set)
    try:
        yield watcher, changed
    finally:
        watcher.stop()
        await asyncio.sleep(0)


def count_descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


async def turn_loop() -> None:
    """Have the loop handle what can be read now."""
    reader, writer = os.pipe()
    is_read = asyncio.Event()
    asyncio.get_running_loop().add_reader(reader, is_read.set)
    os.write(writer, b"x")
    await is_read.wait()
    asyncio.get_running_loop().remove_reader(reader)
    await asyncio.sleep(0)
    os.close(reader)
    os.close(writer)


async def wait_for(changed: asyncio.Event) -> None:
    async with asyncio.timeout(5):
        await changed.wait()
    changed.clear()


async def test_a_directory_with_two_names_is_watched_until_both_are_given_up(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    async with watching() as (watcher, changed):
        assert watcher.watch([real, link])
        assert not watcher.watch([link])
        (real / "file").touch()
        await wait_for(changed)


async def test_a_directory_that_was_removed_and_made_again_is_watched_again(tmp_path: Path) -> None:
    directory = tmp_path / "etc"
    directory.mkdir()
    async with watching() as (watcher, changed):
        watcher.watch([directory])
        directory.rmdir()
        await wait_for(changed)
        directory.mkdir()
        assert watcher.watch([directory])
        (directory / "file").touch()
        await wait_for(changed)


async def test_a_directory_that_is_given_up_is_not_heard_of_again(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    async with watching() as (watcher, changed):
        watcher.watch([old])
        assert watcher.watch([new])
        await wait_for(changed)  # of the end of the first watch
        (old / "file").touch()
        await turn_loop()
        assert not changed.is_set()
        (new / "file").touch()
        await wait_for(changed)


async def test_a_directory_that_does_not_exist_is_an_error_that_names_it(tmp_path: Path) -> None:
    async with watching() as (watcher, _):
        with pytest.raises(FileNotFoundError, match="nowhere"):
            watcher.watch([tmp_path / "nowhere"])


async def test_a_watcher_that_has_stopped_keeps_no_descriptor() -> None:
    before = count_descriptors()
    async with watching() as (watcher, _):
        assert count_descriptors() == before + 1
        watcher.stop()
    assert count_descriptors() == before
