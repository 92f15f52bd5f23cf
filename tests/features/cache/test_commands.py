"""`cache clear` reaches the proxies that run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dynamic_mcp.features.cache.config import Cache
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.system import paths
from tests.cli.commands import CliRunner
from tests.fakes import Client, FakeUpstream, Opener, config_of, group_config

KEPT = {"cache": (Cache("cache[0]", tools=("*",), ttl_s=600),)}


@pytest.mark.parametrize("words", [(), ("up",)], ids=["everything", "of one server"])
async def test_what_a_proxy_has_kept_is_gone_when_the_command_has_ended(
    cli: CliRunner, state: Path, words: tuple[str, ...]
) -> None:
    upstream = FakeUpstream({"tools/call": {"content": []}}, tools=("get_x",))
    opener = Opener(up=[upstream])
    proxy = Proxy(config_of(group_config("up", rules=KEPT)), opener=opener, state_folder=paths.state_dir())
    client = Client(proxy)
    try:
        await client.initialize()
        for _ in range(2):
            await client.call("up", "get_x", {})
        assert len(upstream.heard("tools/call")) == 1

        done = await asyncio.to_thread(cli.run, "cache", "clear", *words)

        assert (done.code, done.out) == (0, "")
        assert "cleared the cached results" in done.err
        assert paths.state_dir().is_relative_to(state)
        await client.call("up", "get_x", {})
        assert len(upstream.heard("tools/call")) == 2
    finally:
        await proxy.close()
