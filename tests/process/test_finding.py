"""The whole program searches tools: in cached catalogs without starting a server, and by meaning if configured."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests import windows
from tests.embeddings.endpoint import endpoint
from tests.program import BOUND_S, Json, Program, full, serving, text_of, with_noted_starts


async def get_tools(program: Program, **arguments: Json) -> list[Json]:
    answer = await program.request("tools/call", {"name": "get_dynamic_tools", "arguments": arguments})
    tools: list[Json] = json.loads(text_of(answer["result"]))["tools"]
    return tools


async def test_a_search_is_answered_from_cached_catalogs_without_starting_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    starts_log = tmp_path / "started"
    logged_server = with_noted_starts(full(), starts_log)
    async with serving(tmp_path, {"full": logged_server}) as program:
        listed = await get_tools(program, group="full", detail="names")
        await program.call("full", listed[0]["name"])
        await wait_for_catalog(windows.cache_dir(tmp_path / "cache"))
        program.end_input()
        await program.ends()

    async with serving(tmp_path, {"full": logged_server}) as program:
        found = await get_tools(program, query=listed[-1]["name"])

        assert found[0] == {**found[0], "group": "full", "name": listed[-1]["name"]}
        assert count_lines(starts_log) == 1


def count_lines(file: Path) -> int:
    return file.read_text().count("\n")


def has_catalog(cache: Path) -> bool:
    return any(cache.rglob("*.json"))


async def wait_for_catalog(cache: Path) -> None:
    """Wait until a catalog is on disk."""
    async with asyncio.timeout(BOUND_S):
        while not has_catalog(cache):  # noqa: ASYNC110 - a file being written raises no event
            await asyncio.sleep(0.01)


async def test_embeddings_are_fetched_in_batches_and_search_works_when_the_endpoint_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    async with endpoint() as fake:
        embeddings = {"url": fake.url, "model": "tiny"}
        async with serving(tmp_path, {"full": full()}, settings={"search": {"embeddings": embeddings}}) as program:
            listed = await get_tools(program, group="full", detail="names")
            async with asyncio.timeout(BOUND_S):
                while not fake.requests:  # noqa: ASYNC110 - the endpoint raises no event here
                    await asyncio.sleep(0.01)

            fake.status = 500
            found = await get_tools(program, query=listed[0]["name"])

            assert found[0]["name"] == listed[0]["name"]
            assert all(len(request["input"]) <= 32 for request in fake.requests)
