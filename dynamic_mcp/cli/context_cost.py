"""What the tools of a config cost a model's context, listed directly and through this proxy.

Every figure is measured on what a client would get: the command asks a proxy of its own, as a client does.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from msgspec import Raw

from dynamic_mcp.cli.client import HELLO, Client, client, each_group
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.output import Output
from dynamic_mcp.cli.runner import run
from dynamic_mcp.cli.token_counter import Counter, counter
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import DynamicMcpError, UpstreamError
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.instance import Group
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.text import counted
from dynamic_mcp.tools.meta_tools import GET

# What every client hands to its model of a tool.
_GIVEN = ("name", "description", "inputSchema")
_COLUMNS = ("GROUP", "TOOLS", "DIRECT", "SEARCH", "WHOLE GROUP", "DIRECT (ABOVE), SEARCH (BELOW)")
_LEGEND = (
    "DIRECT: the tools without dynamic-mcp. An AI tool puts all of them into every conversation.",
    "SEARCH: the answer to one search through dynamic-mcp, for the words of the group's first tool.",
    "WHOLE GROUP: all tools in one answer. Often more than DIRECT: it adds titles, output schemas, annotations.",
)
_BAR = 30


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


def stats(this: Invocation, *, is_partial: bool) -> int:
    """Print the figures of a config, and return the exit code. Raises ConfigError."""
    found = run(_measured(this.listed(None), this.out))
    if this.out.is_json:
        this.out.json(found.as_json())
    elif found.groups:
        _show(found, this.out)
    failed = [each.error for each in found.groups if each.error]
    for error in failed:
        this.out.error(error)
    is_enough = not failed or (is_partial and len(failed) < len(found.groups))
    return 0 if is_enough else UpstreamError.exit_code


async def _measured(config: Config, out: Output) -> Stats:
    """Connect to what is not known yet, and measure what a client gets."""
    async with client(config, out) as made:
        with out.waiting("asking", [group.name for group in config.groups]) as waiting:
            errors = await each_group(made, waiting, _learned)
        with out.waiting("counting tokens"):
            count = await asyncio.to_thread(counter)
        meter = _Meter(made, count)
        groups = [await meter.group(group, error) for group, error in zip(made.proxy.groups, errors, strict=True)]
        return Stats(count.name, tuple(groups), await meter.start())


async def _learned(group: Group) -> str:
    """Have a group tell what it has; return why it does not."""
    if not group.config.features.tools:
        return ""
    try:
        await group.catalog(ListKind)  # all of it, so that it can be kept
    except DynamicMcpError as exc:
        return str(exc)
    return ""


class _Meter:
    """Counts what a client of the proxy gets."""

    def __init__(self, client: Client, count: Counter) -> None:
        self._client = client
        self._count = count

    async def start(self) -> Cost:
        """Measure what every conversation begins with."""
        listed = await self._client.ask("tools/list", {})
        hello = await self._client.ask("initialize", HELLO)
        return self._cost([_given(listed), wire.text(wire.member(hello, "instructions")) or ""])

    async def group(self, group: Group, error: str) -> GroupStats:
        """Measure one group; one that is not known costs nothing, and says why."""
        if error or group.known is None or not group.known.tools:
            return GroupStats(group.name, 0, Cost(), Cost(), Cost(), error)
        catalog = group.known
        direct = self._cost([_array(catalog.tools.values()), catalog.instructions])
        search = await self._answer(query=_words(next(iter(catalog.tools))))
        full = await self._answer(group=group.name, detail="full")
        return GroupStats(group.name, len(catalog.tools), direct, search, full)

    async def _answer(self, **arguments: str) -> Cost:
        result = await self._client.ask("tools/call", {"name": GET, "arguments": arguments})
        blocks = wire.elements(wire.member(result, "content"))
        return self._cost(wire.text(wire.member(block, "text")) or "" for block in blocks)

    def _cost(self, texts: Iterable[str]) -> Cost:
        text = "\n".join(filter(None, texts))
        return Cost(len(text.encode()), self._count.tokens(text))


def _given(listed: Raw) -> str:
    return _array(wire.elements(wire.member(listed, "tools")))


def _array(tools: Iterable[Raw]) -> str:
    return "[" + ",".join(map(_tool, tools)) + "]"


def _tool(tool: Raw) -> str:
    members = wire.members(tool)
    parts = (b'"%s":%s' % (key.encode(), wire.compact(members[key])) for key in _GIVEN if key in members)
    return (b"{" + b",".join(parts) + b"}").decode()


def _words(name: str) -> str:
    """Return the words of a tool's name: what somebody who looks for it would ask for."""
    return " ".join(re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name).replace("_", " ").replace("-", " ").split()).lower()


# --- for a person ----------------------------------------------------------------------------------------


def _show(stats: Stats, out: Output) -> None:
    longest = max((cost.tokens for each in stats.groups for cost in (each.direct, each.search)), default=0)
    bar = out.drawn("█", "#")
    out.table(_COLUMNS, [_row(each, longest, bar) for each in stats.groups], title=f"tokens, {stats.counted}")
    out.line("")
    for words in _LEGEND:
        out.line(words, "dim")
    out.line("")
    lines = [
        (f"without dynamic-mcp: {counted(stats.tools, 'tool')} listed directly", stats.direct),
        ("with dynamic-mcp, at the start", stats.start),
        ("and after one search (the longest)", stats.after_search),
        ("or after one whole group (the longest)", stats.after_group),
    ]
    rows = [[words, f"{cost.tokens:,}", f"{cost.bytes:,}", _share(cost, stats.direct)] for words, cost in lines]
    out.table(("ALL GROUPS", "TOKENS", "BYTES", "SHARE"), rows)


def _share(cost: Cost, whole: Cost) -> str:
    return f"{cost.tokens / whole.tokens:.0%}" if whole.tokens else ""


def _row(each: GroupStats, longest: int, bar: str) -> list[str]:
    costs = [f"{cost.tokens:,}" for cost in (each.direct, each.search, each.full)]
    bars = "\n".join(bar * _length(cost, longest) for cost in (each.direct, each.search))
    return [each.group, str(each.tools), *costs, "not reached" if each.error else bars]


def _length(cost: Cost, longest: int) -> int:
    return max(1, round(_BAR * cost.tokens / longest)) if longest else 0
