"""What happens on the disk is never more than a warning: a cache that is full, closed, shared, broken or hostile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.process.neighbours import assert_alive
from tests.program import Json, Program, odd, running, text_of

if sys.platform != "win32":
    import resource

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, to limit another process")


@contextlib.asynccontextmanager
async def serving_from(cache: Path, folder: Path, servers: Json) -> AsyncIterator[Program]:
    """Run the program on these servers, with the caches of all programs in this folder; not shaken hands with."""
    file = folder / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    async with running(str(file), env={"XDG_CACHE_HOME": str(cache)}) as program:
        yield program


def kept(cache: Path) -> list[Path]:
    """Return the catalogs that are kept."""
    return sorted(cache.glob("dynamic-mcp/catalogs/*.json"))


async def said(program: Program) -> str:
    """End the program and return what it wrote to stderr."""
    program.end_input()
    assert await program.ends() == 0
    return await program.stderr()


# Row 54 of the fault matrix.


async def test_a_full_disk_costs_the_cache_and_nothing_else(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    async with serving_from_full_disk(cache, tmp_path) as program:
        await assert_alive(program, "odd", "good")
        await said(program)
    assert not kept(cache)


@pytest.mark.alone_only("a daemon has nothing but the log file, for which there is no room either")
async def test_a_full_disk_is_warned_of_once(tmp_path: Path) -> None:
    async with serving_from_full_disk(tmp_path / "cache", tmp_path) as program:
        await assert_alive(program, "odd", "good")
        await program.says("catalogs are not cached")
        assert (await said(program)).count("catalogs are not cached") == 1


@contextlib.asynccontextmanager
async def serving_from_full_disk(cache: Path, folder: Path) -> AsyncIterator[Program]:
    """Run the program on a disk that becomes full before it is shaken hands with."""
    async with serving_from(cache, folder, {"odd": odd(), "good": odd()}) as program:
        await program.request("ping")
        resource.prlimit(program.host, resource.RLIMIT_FSIZE, (0, 0))  # as if nothing more fitted on it
        await program.initialize()
        yield program


async def test_a_cache_that_cannot_be_written_costs_a_warning(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.write_text("a file is in the way")
    async with serving_from(cache, tmp_path, {"odd": odd(), "good": odd()}) as program:
        await program.initialize()
        await assert_alive(program, "odd", "good")
        await program.says("catalogs are not cached")
        assert (await said(program)).count("catalogs are not cached") == 1


# Row 55.


@pytest.mark.parametrize("data", [b"", b"{", b'{"form":99}', b"\x00" * 100, b"[]"])
async def test_a_broken_catalog_is_set_aside_and_learnt_anew(tmp_path: Path, data: bytes) -> None:
    cache = tmp_path / "cache"
    await learnt(cache, tmp_path)
    (file,) = kept(cache)
    whole = file.read_bytes()
    file.write_bytes(data)

    await learnt(cache, tmp_path)

    (file,) = kept(cache)
    assert json.loads(file.read_bytes())["lists"] == json.loads(whole)["lists"]
    assert file.with_suffix(".bad").read_bytes() == data


async def learnt(cache: Path, folder: Path, name: str = "odd") -> None:
    """Let a program learn what a server has, and end."""
    async with serving_from(cache, folder, {name: odd()}) as program:
        await program.initialize()
        await assert_alive(program, name)
        async with asyncio.timeout(10):
            while not kept(cache):  # noqa: ASYNC110 - a file raises no event
                await asyncio.sleep(0.01)


async def test_a_kept_catalog_serves_without_a_start(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    await learnt(cache, tmp_path)

    async with serving_from(cache, tmp_path, {"odd": odd()}) as program:
        await program.initialize()
        asked = {"name": "get_dynamic_tools", "arguments": {"group": "odd"}}
        assert '"echo"' in text_of((await program.request("tools/call", asked))["result"])
        assert "connected" not in await said(program)


# Two programs on one cache.


async def test_programs_that_share_a_cache_disturb_each_other_in_nothing(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    servers = {f"odd{number}": odd(env={"ODD_NUMBER": str(number)}) for number in range(5)}
    async with contextlib.AsyncExitStack() as stack:
        programs = []
        for number in range(3):
            folder = tmp_path / str(number)
            folder.mkdir()
            programs.append(await stack.enter_async_context(serving_from(cache, folder, servers)))
        await asyncio.gather(*(program.initialize() for program in programs))
        await asyncio.gather(*(assert_alive(program, *servers) for program in programs))
        async with asyncio.timeout(10):
            while len(kept(cache)) < len(servers):  # noqa: ASYNC110 - a file raises no event
                await asyncio.sleep(0.01)
        assert not [words for program in programs for words in [await said(program)] if "cached catalog" in words]
    assert files_in(cache) == {*kept(cache)}


# A hostile name.


@pytest.mark.parametrize("name", ["../../x", "a/b", "..", "CON", "~", "-rf", "${HOME}", "x" * 64])
async def test_a_hostile_name_is_a_name_and_no_path(tmp_path: Path, name: str) -> None:
    cache = tmp_path / "cache"
    await learnt(cache, tmp_path, name)
    (catalog,) = kept(cache)
    assert files_in(tmp_path) == {catalog, tmp_path / "dynamic-mcp.json"}


def files_in(folder: Path) -> set[Path]:
    """Return all files below a folder."""
    return {file for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "a\nb", "", " "])
async def test_a_name_that_cannot_be_shown_is_refused(tmp_path: Path, name: str) -> None:
    async with serving_from(tmp_path / "cache", tmp_path, {name: odd()}) as program:
        assert await program.ends() == 2
        assert "1 to 64 printable characters" in await program.stderr()


# A config that others may write.


async def test_a_config_that_anybody_may_write_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {"odd": odd()}}))
    file.chmod(0o646)
    async with running(str(file)) as program:
        await program.initialize()
        await assert_alive(program, "odd")
        assert "every user of this machine can write this file" in await said(program)
