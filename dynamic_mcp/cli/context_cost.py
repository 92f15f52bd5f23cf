"""Measures the context cost of the tools of a config, listed directly and through this proxy.

All figures are measured on real results: the command sends the requests of a client to an in-process proxy.
"""

from __future__ import annotations

import asyncio
import importlib
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

from msgspec import Raw

from dynamic_mcp.cli.client import CommandClient, for_each_group
from dynamic_mcp.cli.client_opener import open_client
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.output import Output
from dynamic_mcp.cli.runner import run
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import DynamicMcpError, UpstreamError
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.client_group import ClientGroup
from dynamic_mcp.system.text import pluralize
from dynamic_mcp.tools.meta_tools import GET

# The members of a tool that every client passes to its model.
_MEMBERS = ("name", "description", "inputSchema")
_COLUMNS = ("GROUP", "TOOLS", "DIRECT", "SEARCH", "DIRECT (ABOVE), SEARCH (BELOW)")
_LEGEND = (
    "DIRECT: the tools without dynamic-mcp. An AI tool puts all of them into every conversation.",
    "SEARCH: the answer to one search in all groups, for the words of the group's first tool. Only if one is needed.",
)
_FEW_TOOLS = (
    "With so few tools, a conversation that searches reads as much as one that lists them all. dynamic-mcp saves more"
    ' with each server; `"direct": true` lists the tools of a server without a search.'
)
_BAR = 30
_ESTIMATE = "estimated: 4 characters a token"
_ENCODING = "o200k_base"
# tiktoken downloads its vocabulary on first use; if that hangs, the estimate is used.
_LOADED_WITHIN_S = 10.0


@dataclass(frozen=True)
class Cost:
    """The size of a text."""

    bytes: int = 0
    tokens: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.bytes + other.bytes, self.tokens + other.tokens)


@dataclass(frozen=True)
class GroupStats:
    """One group: its tools listed directly, the answer to one search, and the answer with the whole group."""

    group: str
    tools: int
    direct: Cost
    search: Cost
    full: Cost
    error: str = ""


@dataclass(frozen=True)
class AutoStats:
    """What `direct: "auto"` lists the clients that search listed tools themselves; their models read only a part."""

    clients: tuple[str, ...]
    tools: int
    listed: Cost


@dataclass(frozen=True)
class Stats:
    """All groups, and the start of every conversation. `counted` names the method of counting tokens.

    `auto` is None where the config does not choose by client.
    """

    counted: str
    groups: tuple[GroupStats, ...]
    start: Cost
    auto: AutoStats | None = None

    @property
    def tools(self) -> int:
        return sum(each.tools for each in self.groups)

    @property
    def direct(self) -> Cost:
        return sum((each.direct for each in self.groups), Cost())

    @property
    def after_search(self) -> Cost:
        """The cost of the start and of the longest search."""
        return self.start + max((each.search for each in self.groups), key=lambda cost: cost.tokens, default=Cost())

    @property
    def after_group(self) -> Cost:
        """The cost of the start and of the longest whole group."""
        return self.start + max((each.full for each in self.groups), key=lambda cost: cost.tokens, default=Cost())

    def to_json(self) -> dict[str, object]:
        total = {name: asdict(getattr(self, name)) for name in ("direct", "start", "after_search", "after_group")}
        groups = [{key: value for key, value in asdict(each).items() if value != ""} for each in self.groups]
        auto = {} if self.auto is None else {"auto": asdict(self.auto)}
        return {"tokens": self.counted, "groups": groups, "all": {"tools": self.tools, **total}, **auto}


def show_stats(context: Invocation, *, is_partial: bool) -> int:
    """Print the figures of a config; return the exit code. Raises ConfigError."""
    figures = run(_measure(context, context.read_groups(None)))
    if context.out.is_json:
        context.out.print_json(figures.to_json())
    elif figures.groups:
        _show(figures, context.out)
    failed = [each.error for each in figures.groups if each.error]
    for error in failed:
        context.out.print_error(error)
    is_enough = not failed or (is_partial and len(failed) < len(figures.groups))
    return 0 if is_enough else UpstreamError.exit_code


async def _measure(context: Invocation, config: Config) -> Stats:
    """Connect to groups without a cached catalog, then measure the results that a client receives."""
    async with open_client(context, config) as client:
        with context.out.progress("asking", [group.name for group in config.groups]) as progress:
            errors = await for_each_group(client, progress, _load_catalog)
        with context.out.progress("counting tokens"):
            counter = await asyncio.to_thread(_load_counter)
        meter = _Meter(client, counter)
        groups = [await meter.measure_group(group, error) for group, error in zip(client.groups, errors, strict=True)]
        return Stats(counter.name, tuple(groups), await meter.measure_start(), _find_auto(config, groups))


def _find_auto(config: Config, groups: Sequence[GroupStats]) -> AutoStats | None:
    found = [each for each in groups if config.presentations[each.group].direct.is_auto]
    if not found:
        return None
    from dynamic_mcp.proxy.known_clients import KNOWN_CLIENTS

    titles = dict.fromkeys(each.title for each in KNOWN_CLIENTS if each.searches_tools)
    return AutoStats(tuple(titles), sum(each.tools for each in found), sum((each.direct for each in found), Cost()))


async def _load_catalog(group: ClientGroup) -> str:
    """Load a group's catalog; return an error message, empty if there is none."""
    if not group.offers("tools"):
        return ""
    try:
        await group.read_catalog(ListKind)  # the whole catalog, so that it can be cached
    except DynamicMcpError as exc:
        return str(exc)
    return ""


class _Meter:
    """Measures the results that a client of the proxy receives."""

    def __init__(self, client: CommandClient, counter: _Counter) -> None:
        self._client = client
        self._counter = counter

    async def measure_start(self) -> Cost:
        """Measure the listing that every conversation starts with."""
        tools = await self._client.ask("tools/list", {})
        hello = await self._client.initialize()
        return self._count([_tools_for_model(tools), wire.text(wire.member(hello, "instructions")) or ""])

    async def measure_group(self, group: ClientGroup, error: str) -> GroupStats:
        """Measure one group; a failed one has its error and no cost."""
        if error or group.catalog is None or not group.catalog.tools:
            return GroupStats(group.name, 0, Cost(), Cost(), Cost(), error)
        catalog = group.catalog
        direct = self._count([_array(catalog.tools.values()), catalog.instructions])
        search = await self._measure_answer(query=_query_for(next(iter(catalog.tools))))
        full = await self._measure_answer(group=group.name, detail="full")
        return GroupStats(group.name, len(catalog.tools), direct, search, full)

    async def _measure_answer(self, **arguments: str) -> Cost:
        result = await self._client.ask("tools/call", {"name": GET, "arguments": arguments})
        blocks = wire.elements(wire.member(result, "content"))
        return self._count(wire.text(wire.member(block, "text")) or "" for block in blocks)

    def _count(self, texts: Iterable[str]) -> Cost:
        text = "\n".join(filter(None, texts))
        return Cost(len(text.encode()), self._counter.tokens(text))


def _tools_for_model(result: Raw) -> str:
    return _array(wire.elements(wire.member(result, "tools")))


def _array(tools: Iterable[Raw]) -> str:
    return "[" + ",".join(map(_tool, tools)) + "]"


def _tool(tool: Raw) -> str:
    members = wire.members(tool)
    parts = (b'"%s":%s' % (key.encode(), wire.compact(members[key])) for key in _MEMBERS if key in members)
    return (b"{" + b",".join(parts) + b"}").decode()


def _query_for(name: str) -> str:
    """Return the words of a tool's name, as a model would search for it."""
    return " ".join(re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name).replace("_", " ").replace("-", " ").split()).lower()


# --- text output -----------------------------------------------------------------------------------------


def _show(stats: Stats, out: Output) -> None:
    longest = max((cost.tokens for each in stats.groups for cost in (each.direct, each.search)), default=0)
    bar = out.sign("█", "#")
    out.print_table(_COLUMNS, [_row(each, longest, bar) for each in stats.groups], title=f"tokens, {stats.counted}")
    out.print_line("")
    for words in _LEGEND:
        out.print_line(words, "dim")
    out.print_line("")
    lines = [
        (f"without dynamic-mcp: {pluralize(stats.tools, 'tool')} listed directly", stats.direct),
        ("with dynamic-mcp, until a tool is needed", stats.start),
        ("with dynamic-mcp, after one search (the longest)", stats.after_search),
    ]
    if stats.auto is not None:
        lines.append(("listed by `auto` to clients that search, outside the context", stats.auto.listed))
    rows = [[words, f"{cost.tokens:,}", _share(cost, stats.direct)] for words, cost in lines]
    out.print_table(("A CONVERSATION", "TOKENS", "SHARE"), rows)
    if stats.auto is not None:
        out.print_line("")
        out.print_line(
            f"`auto` lists {', '.join(stats.auto.clients)} the tools, as many as `max_direct` allows; they keep them"
            " out of the context until their own search finds them. Other clients get the two tools."
        )
    if 0 < stats.direct.tokens < stats.after_search.tokens:
        out.print_line("")
        out.print_line(_FEW_TOOLS)


def _share(cost: Cost, whole: Cost) -> str:
    return f"{cost.tokens / whole.tokens:.0%}" if whole.tokens else ""


def _row(each: GroupStats, longest: int, bar: str) -> list[str]:
    costs = [f"{cost.tokens:,}" for cost in (each.direct, each.search)]
    bars = "\n".join(bar * _length(cost, longest) for cost in (each.direct, each.search))
    return [each.group, str(each.tools), *costs, "not reached" if each.error else bars]


def _length(cost: Cost, longest: int) -> int:
    return max(1, round(_BAR * cost.tokens / longest)) if longest else 0


@dataclass(frozen=True)
class _Counter:
    """Counts the tokens of a text; `name` is the method."""

    name: str
    tokens: Callable[[str], int]


def _load_counter() -> _Counter:
    """Return the best counter that is installed."""
    loaded: list[Callable[[str], Sequence[int]]] = []
    thread = threading.Thread(target=_load, args=(loaded,), daemon=True)
    thread.start()
    thread.join(_LOADED_WITHIN_S)
    if not loaded:
        return _Counter(_ESTIMATE, lambda text: -(-len(text) // 4))
    encode = loaded[0]
    return _Counter(f"counted by tiktoken, {_ENCODING}", lambda text: len(encode(text)))


def _load(loaded: list[Callable[[str], Sequence[int]]]) -> None:
    try:
        encoding = importlib.import_module("tiktoken").get_encoding(_ENCODING)
    except Exception:  # noqa: BLE001 - any failure falls back to the estimate
        return
    loaded.append(encoding.encode_ordinary)
