"""A proxy that pins the definitions of fake upstreams, which say whatever a test has them say."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from dynamic_mcp.config.resolved import Pinning
from dynamic_mcp.config.rules import Policy
from dynamic_mcp.features.pins.lock_file import PinSet, find_lock_file, read_lock
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import (
    BOUND_S,
    Client,
    FakeUpstream,
    Json,
    Opener,
    PresentedGroup,
    config_of,
    group_config,
    settled,
    text_of,
    tool,
)


class Server(FakeUpstream):
    """A server whose definitions a test changes."""

    def __init__(self, *tools: Json, **offers: Json) -> None:
        """`offers` are the lists of prompts and templates, and the instructions."""
        capabilities = {"tools": {"listChanged": True}}
        if "prompts" in offers:
            capabilities["prompts"] = {"listChanged": True}
        if "templates" in offers:
            capabilities["resources"] = {"listChanged": True}
        self.hello: dict[str, Json] = {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "serverInfo": {"name": "fake", "version": str(offers.get("version", "1"))},
        }
        if "instructions" in offers:
            self.hello["instructions"] = offers["instructions"]
        super().__init__(
            {
                "initialize": self.hello,
                "tools/list": {"tools": list(tools)},
                "tools/call": lambda params: {"content": [{"type": "text", "text": f"ran {params['name']}"}]},
                "prompts/list": {"prompts": offers.get("prompts", [])},
                "prompts/get": {"messages": []},
                "resources/list": {"resources": []},
                "resources/templates/list": {"resourceTemplates": offers.get("templates", [])},
                "resources/read": {"contents": []},
                "completion/complete": {"completion": {"values": []}},
            }
        )

    def change(self, *tools: Json) -> None:
        """Have other tools from now on, and say so."""
        self.answers["tools/list"] = {"tools": list(tools)}
        self.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

    def calls(self) -> list[str]:
        """Return the names of the tools that were called."""
        return [message["params"]["name"] for message in self.heard("tools/call")]


def lock_path() -> Path:
    """Return the lock file of the config that these tests have, in a folder that is there."""
    file = find_lock_file(config_of())
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def pinned_group(name: str = "up", policy: Policy = "hold", source: str = "this", **changes: Json) -> PresentedGroup:
    return group_config(name, pinning=Pinning(policy, source), **changes)


@contextlib.asynccontextmanager
async def proxy_of(folder: Path, *groups: PresentedGroup, **servers: Server | list[Server]) -> AsyncIterator[Proxy]:
    """Run a proxy in front of these servers, which keeps what they offer in this folder."""
    plan = {name: each if isinstance(each, list) else [each] for name, each in servers.items()}
    config = config_of(*(groups or [pinned_group(name) for name in plan]))
    proxy = Proxy(config, opener=Opener(**plan), catalog_store=CatalogStore(folder / "catalogs"))
    try:
        yield proxy
    finally:
        await proxy.close()


@contextlib.asynccontextmanager
async def client_of(
    folder: Path, *groups: PresentedGroup, only: str | None = None, **servers: Server | list[Server]
) -> AsyncIterator[Client]:
    """Run such a proxy for one client that knows what there is."""
    async with proxy_of(folder, *groups, **servers) as proxy:
        yield await join(proxy, only=only)


async def join(proxy: Proxy, *, only: str | None = None) -> Client:
    """Return a client that knows what there is."""
    client = Client(proxy, only=only)
    await client.initialize()
    await tools_of(client)
    return client


async def tools_of(client: Client, group: str = "up") -> list[str]:
    """Return the names of the tools that a client is told of."""
    if client.session.only is not None:
        return [each["name"] for each in (await client.request("tools/list"))["result"]["tools"]]
    arguments = {"group": group, "detail": "names"}
    answer = await client.request("tools/call", {"name": "get_dynamic_tools", "arguments": arguments})
    return [each["name"] for each in json.loads(text_of(answer["result"]))["tools"]]


async def until_tools(client: Client, *names: str) -> None:
    """Wait until a client that sees one server alone has been told that these are its tools."""
    async with asyncio.timeout(BOUND_S):
        for times in itertools.count(1):
            if await tools_of(client) == list(names):
                return
            await client.hears("notifications/tools/list_changed", times)


async def until_written(file: Path, wanted: Callable[[PinSet], bool]) -> PinSet:
    """Wait until the lock file has what is wanted."""
    async with asyncio.timeout(BOUND_S):
        while True:
            lock = read_lock(file)
            with contextlib.suppress(KeyError):
                if wanted(lock):
                    return lock
            await settled()


def described(name: str, description: str, **members: Json) -> Json:
    return tool(name, description=description, **members)
