"""`dynamic-mcp stats [CONFIG]`: what the tools cost a model's context, listed directly and through this proxy.

Every figure is measured on what a client would get: the command asks a proxy of its own, as a client does.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from msgspec import Raw

from dynamic_mcp import paths, wire
from dynamic_mcp.catalog import Kind
from dynamic_mcp.cli.tokens import Counter, counter
from dynamic_mcp.config.read import find, read
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import DynamicMcpError, UpstreamError
from dynamic_mcp.group import Group
from dynamic_mcp.meta_tools import GET
from dynamic_mcp.proxy import Proxy
from dynamic_mcp.session import Session
from dynamic_mcp.shelf import Shelf
from dynamic_mcp.wire import Frame

# What every client hands to its model of a tool.
_GIVEN = ("name", "description", "inputSchema")
_HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "dynamic-mcp stats", "version": "1"},
}


@dataclass(frozen=True)
class Cost:
    """What a text takes up."""

    bytes: int = 0
    tokens: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.bytes + other.bytes, self.tokens + other.tokens)


@dataclass(frozen=True)
class GroupStats:
    """One group: its tools as a client lists them directly, one search in it, and all of it at once."""

    group: str
    tools: int
    direct: Cost
    search: Cost
    full: Cost
    error: str = ""


@dataclass(frozen=True)
class Stats:
    """All groups, and what a model sees at the start."""

    counted: str
    groups: tuple[GroupStats, ...]
    start: Cost

    @property
    def tools(self) -> int:
        """How many tools there are."""
        return sum(each.tools for each in self.groups)

    @property
    def direct(self) -> Cost:
        """All tools as a client would list them directly."""
        return sum((each.direct for each in self.groups), Cost())

    @property
    def after_search(self) -> Cost:
        """The start and one search; of the searches, the longest."""
        return self.start + max((each.search for each in self.groups), key=lambda cost: cost.tokens, default=Cost())

    @property
    def after_group(self) -> Cost:
        """The start and one whole group; of the groups, the longest."""
        return self.start + max((each.full for each in self.groups), key=lambda cost: cost.tokens, default=Cost())

    def as_json(self) -> dict[str, object]:
        """Return the figures as JSON."""
        total = {name: asdict(getattr(self, name)) for name in ("direct", "start", "after_search", "after_group")}
        groups = [{key: value for key, value in asdict(each).items() if value != ""} for each in self.groups]
        return {"tokens": self.counted, "groups": groups, "all": {"tools": self.tools, **total}}


def run(argument: str | None, *, as_json: bool) -> int:
    """Print the figures of a config, and return the exit code. Raises ConfigError."""
    config = read(find(argument, os.environ, cwd=Path.cwd(), user_dir=paths.config_dir()), os.environ)
    count = counter()
    stats = asyncio.run(measured(config, count, Shelf(paths.cache_dir() / "catalogs")))
    if as_json or not sys.stdout.isatty():
        sys.stdout.write(wire.encode(stats.as_json()).decode() + "\n")
    else:
        from dynamic_mcp.cli.stats_view import show

        show(stats)
    failed = [each for each in stats.groups if each.error]
    for each in failed:
        sys.stderr.write(f"error: {each.error}\n")
    return UpstreamError.exit_code if failed else 0


async def measured(config: Config, count: Counter, shelf: Shelf | None = None) -> Stats:
    """Run a proxy on the config, connect to what is not known yet, and measure what a client gets."""
    proxy = Proxy(config, shelf=shelf)
    client = _Client(proxy, count)
    try:
        hello = await client.ask("initialize", _HELLO)
        errors = await asyncio.gather(*map(_learned, proxy.groups))
        listed = await client.ask("tools/list", {})
        groups = [await client.group(group, error) for group, error in zip(proxy.groups, errors, strict=True)]
        instructions = wire.text(wire.member(hello, "instructions")) or ""
        return Stats(count.name, tuple(groups), client.cost([_given(listed), instructions]))
    finally:
        await proxy.close()


async def _learned(group: Group) -> str:
    """Have a group tell what it has; return why it does not."""
    if not group.config.features.tools:
        return ""
    try:
        await group.catalog([Kind.TOOLS])
    except DynamicMcpError as exc:
        return str(exc)
    return ""


class _Client:
    """A client of the proxy that counts what it gets."""

    def __init__(self, proxy: Proxy, count: Counter) -> None:
        self._proxy = proxy
        self._count = count
        self._session: Session = proxy.connect(lambda line: None)

    async def ask(self, method: str, params: object) -> Raw:
        answer = await self._proxy.answer(self._session, Frame(method=method, params=Raw(wire.encode(params))))
        return answer.result

    def cost(self, texts: Iterable[str]) -> Cost:
        text = "\n".join(filter(None, texts))
        return Cost(len(text.encode()), self._count.tokens(text))

    async def group(self, group: Group, error: str) -> GroupStats:
        """Measure one group; one that is not known costs nothing, and says why."""
        if error or group.known is None or not group.known.tools:
            return GroupStats(group.name, 0, Cost(), Cost(), Cost(), error)
        catalog = group.known
        direct = self.cost(["[" + ",".join(map(_tool, catalog.tools.values())) + "]", catalog.instructions])
        query = _words(next(iter(catalog.tools)))
        search = await self._answer(query=query)
        full = await self._answer(group=group.name, detail="full")
        return GroupStats(group.name, len(catalog.tools), direct, search, full)

    async def _answer(self, **arguments: str) -> Cost:
        result = await self.ask("tools/call", {"name": GET, "arguments": arguments})
        return self.cost(
            wire.text(wire.member(block, "text")) or "" for block in wire.elements(wire.member(result, "content"))
        )


def _given(listed: Raw) -> str:
    return "[" + ",".join(map(_tool, wire.elements(wire.member(listed, "tools")))) + "]"


def _tool(tool: Raw) -> str:
    members = wire.members(tool)
    parts = (b'"%s":%s' % (key.encode(), wire.compact(members[key])) for key in _GIVEN if key in members)
    return (b"{" + b",".join(parts) + b"}").decode()


def _words(name: str) -> str:
    """Return the words of a tool's name: what somebody who looks for it would ask for."""
    return " ".join(re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name).replace("_", " ").replace("-", " ").split()).lower()
