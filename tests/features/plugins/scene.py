"""A proxy with plug-ins, which a test writes down as classes and finds again in `seen`.

A plug-in is named by its module and class, as a config names it: `use(Class)`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.features.plugins.config import Plugin
from dynamic_mcp.identity import LOCAL_USER, Authentication
from dynamic_mcp.middleware import Middleware
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, FakeUpstream, Json, Opener, PresentedGroup, config_of, group_config

ANSWERS: Mapping[str, Json] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": True}, "prompts": {}, "resources": {}},
        "serverInfo": {"name": "fake", "version": "1"},
    },
    "prompts/list": {"prompts": [{"name": "greet"}, {"name": "scold"}]},
    "resources/list": {"resources": [{"uri": "x://one", "name": "r"}, {"uri": "x://two", "name": "r"}]},
    "resources/templates/list": {"resourceTemplates": []},
    "tools/call": lambda params: {"content": [{"type": "text", "text": params["arguments"].get("text", "none")}]},
    "prompts/get": {"messages": []},
    "resources/read": {"contents": []},
}


def use(plugin: type[Middleware], **changes: Any) -> Plugin:  # Any: fields of Plugin
    """Return the entry of a config for a plug-in of a test."""
    return Plugin(f"{plugin.__module__}:{plugin.__qualname__}", **changes)


def upstream(**answers: Json) -> FakeUpstream:
    """Return a server that offers a few things of each kind; `answers` are for methods, with `_` for `/`."""
    own = {method.replace("_", "/"): answer for method, answer in answers.items()}
    return FakeUpstream({**ANSWERS, **own}, tools=("echo", "delete"))


@contextlib.asynccontextmanager
async def proxy_of(config: Config, opener: Opener) -> AsyncIterator[Proxy]:
    """Run a proxy whose plug-ins are open."""
    proxy = Proxy(config, opener=opener)
    try:
        await proxy.open(config)
        yield proxy
    finally:
        await proxy.close()


@contextlib.asynccontextmanager
async def client_with(
    server: FakeUpstream,
    *plugins: Plugin,
    group: PresentedGroup | None = None,
    authentication: Authentication = LOCAL_USER,
    only: str | None = None,
    **config: Any,
) -> AsyncIterator[Client]:
    """Run a proxy with these plug-ins in front of one server, `a`, for one client."""
    served = config_of(group or group_config("a"), middleware=plugins, **config)
    async with proxy_of(served, Opener(a=[server])) as proxy:
        client = Client(proxy, authentication=authentication, only=only)
        await client.initialize()
        yield client
