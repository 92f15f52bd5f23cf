"""The whole program finds tools: from its catalogs, without starting a server, and by meaning where that is set."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.embeddings.endpoint import endpoint
from tests.program import BOUND_S, Json, Program, full, serving, text_of


async def get(program: Program, **arguments: Json) -> list[Json]:
    answer = await program.request("tools/call", {"name": "get_dynamic_tools", "arguments": arguments})
    found: list[Json] = json.loads(text_of(answer["result"]))["tools"]
    return found


async def test_a_search_is_answered_from_the_kept_catalogs_without_starting_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    marks = tmp_path / "started"
    start = f'echo started >> {marks}; exec "$0" "$@"'
    up = full()
    counted = {"command": "/bin/sh", "args": ["-c", start, up["command"], *up["args"]]}
    async with serving(tmp_path, {"full": counted}) as program:
        listed = await get(program, group="full", detail="names")
        await program.call("full", listed[0]["name"])
        await kept(tmp_path / "cache")
        program.end_input()
        await program.ends()

    async with serving(tmp_path, {"full": counted}) as program:
        found = await get(program, query=listed[-1]["name"])

        assert found[0] == {**found[0], "group": "full", "name": listed[-1]["name"]}
        assert lines(marks) == 1


def lines(file: Path) -> int:
    return file.read_text().count("\n")


def has_catalog(cache: Path) -> bool:
    return any(cache.rglob("*.json"))


async def kept(cache: Path) -> None:
    """Wait until a catalog is on disk."""
    async with asyncio.timeout(BOUND_S):
        while not has_catalog(cache):  # noqa: ASYNC110 - nobody tells when a file is written
            await asyncio.sleep(0.01)


async def test_meanings_are_learnt_in_batches_and_a_tool_is_found_when_the_endpoint_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    async with endpoint() as fake:
        embeddings = {"url": fake.url, "model": "tiny"}
        async with serving(tmp_path, {"full": full()}, settings={"search": {"embeddings": embeddings}}) as program:
            listed = await get(program, group="full", detail="names")
            async with asyncio.timeout(BOUND_S):
                while not fake.requests:  # noqa: ASYNC110 - the other side is a server, which tells nobody
                    await asyncio.sleep(0.01)

            fake.status = 500
            found = await get(program, query=listed[0]["name"])

            assert found[0]["name"] == listed[0]["name"]
            assert all(len(asked["input"]) <= 32 for asked in fake.requests)
