"""The figures of `dynamic-mcp stats` on a terminal: a table with a bar for each group."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dynamic_mcp.cli.stats import Cost, Stats

_BAR = 30


def show(stats: Stats) -> None:
    """Print a table to stdout."""
    console = Console()
    longest = max((each.direct.tokens for each in stats.groups), default=0)
    table = Table(title=f"tokens of tools ({stats.counted})", title_justify="left")
    for column in ("group", "tools", "listed directly", "one search", "whole group"):
        table.add_column(column, justify="left" if column == "group" else "right")
    table.add_column("listed directly ▇, one search ▪")
    for each in stats.groups:
        costs = [f"{cost.tokens:,}" for cost in (each.direct, each.search, each.full)]
        bars = "not reached" if each.error else _bars(each.direct, each.search, longest)
        table.add_row(escape(each.group), str(each.tools), *costs, bars)
    console.print(table)
    console.print(f"{stats.tools} tools, listed directly: {_told(stats.direct)}")
    console.print(f"here, at the start:            {_told(stats.start)}{_share(stats.start, stats.direct)}")
    console.print(
        f"      and after one search:    {_told(stats.after_search)}{_share(stats.after_search, stats.direct)}"
    )
    console.print(
        f"      or one whole group:      {_told(stats.after_group)}{_share(stats.after_group, stats.direct)}"
    )


def _bars(direct: Cost, search: Cost, longest: int) -> str:
    return f"{'▇' * _length(direct, longest)}\n{'▪' * _length(search, longest)}"


def _length(cost: Cost, longest: int) -> int:
    return max(1, round(_BAR * cost.tokens / longest)) if longest else 0


def _told(cost: Cost) -> str:
    return f"{cost.tokens:>8,} tokens {cost.bytes:>10,} bytes"


def _share(cost: Cost, direct: Cost) -> str:
    return f"  {cost.tokens / direct.tokens:.0%}" if direct.tokens else ""
