"""Where rules, pins and plug-ins meet: each keeps its promise beside the others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec import structs

from dynamic_mcp.config.resolved import ToolFilter
from dynamic_mcp.features.cache.config import Cache
from dynamic_mcp.features.pins.definition import PinKind
from dynamic_mcp.features.pins.lock_file import PinSet, update_lock
from tests.fakes import BOUND_S, Client, Json, settled, text_of
from tests.features.overrides.overridden import rules_of
from tests.features.pins.pinned import (
    Server,
    client_of,
    described,
    lock_path,
    pinned_group,
    tools_of,
    until_written,
)

KEPT = {"cache": (Cache("cache[0]", tools=("*",), resources=("*",), ttl_s=60),)}
SHOWN = rules_of(merge={"rename": "land"})
OTHER_HASH = f"h1:{'0' * 64}"


async def call(client: Client, name: str) -> str:
    """Call a tool of the server `up`, and return what the client is told."""
    params: Json = {"name": name, "arguments": {}}
    if client.session.only is None:
        params = {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": name}}
    answer = await client.request("tools/call", params)
    return text_of(answer["result"]) if "result" in answer else str(answer["error"]["message"])


async def until_shown(client: Client, *names: str) -> None:
    """Wait until these are the tools of the server `up`."""
    async with asyncio.timeout(BOUND_S):
        while await tools_of(client) != list(names):
            await settled()


def pin_otherwise(file: Path, kind: PinKind, name: str) -> None:
    """Write to the lock file that something was approved as something else."""

    def change(lock: PinSet) -> PinSet:
        pins = lock.servers["up"]
        pin = pins.find(kind, name)
        assert pin is not None
        return lock.with_server("up", pins.with_pins({(kind, name): structs.replace(pin, hash=OTHER_HASH)}))

    update_lock(file, change)


@pytest.mark.parametrize("only", [None, "up"])
async def test_a_held_tool_is_told_of_by_its_shown_name_and_a_hidden_one_by_none(
    tmp_path: Path, only: str | None
) -> None:
    server = Server(described("merge", "Merges."), described("secret", "Hides."), described("add", "Adds."))
    async with client_of(
        tmp_path, pinned_group(rules=SHOWN, tools=ToolFilter(exclude=("secret",))), only=only, up=server
    ) as client:
        server.change(described("merge", "Mails."), described("secret", "Mails."), described("add", "Adds."))
        await until_shown(client, "add")
        told = await call(client, "land")
        assert "`land` of group `up` is held back" in told
        assert "dynamic-mcp pins diff up" in told
        unknown = await call(client, "nothing")
        for name in ("merge", "secret"):
            assert await call(client, name) == unknown.replace("nothing", name)
    assert server.calls() == []


async def test_what_is_held_back_is_not_answered_from_what_was_kept(tmp_path: Path) -> None:
    reader, shifty = described("get", "Gets.", annotations={"readOnlyHint": True}), described("add", "Adds.")
    server = Server(reader, shifty, templates=[{"uriTemplate": "x://{a}", "name": "pages"}])
    async with client_of(tmp_path, pinned_group(rules=KEPT), only="up", up=server) as client:
        await client.request("resources/templates/list")
        await until_written(lock_path(), lambda lock: "x://{a}" in lock.servers["up"].templates)
        server.change(reader, described("add", "Mails."))
        await until_shown(client, "get")
        assert await call(client, "get") == "ran get"
        assert "result" in await client.request("resources/read", {"uri": "x://1"})
        pin_otherwise(lock_path(), PinKind.TOOL, "get")
        pin_otherwise(lock_path(), PinKind.TEMPLATE, "x://{a}")
        await until_shown(client)
        assert "held back" in await call(client, "get")
        read = await client.request("resources/read", {"uri": "x://1"})
        assert "held back" in read["error"]["message"]
