"""`dynamic-mcp audit stats`: how much was called, by whom or of what, and how long it took."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from msgspec import Struct

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.features.audit.commands.options import LineOptions, find_directory, open_index
from dynamic_mcp.features.audit.commands.view import format_ms
from dynamic_mcp.features.audit.query import CallCount, Subject, ms_of
from dynamic_mcp.system.text import escape

# As `stats` estimates where no tokenizer is installed; only sizes are recorded, so nothing can be counted.
_BYTES_A_TOKEN = 4


class CallStats(Struct, frozen=True):
    """The calls of one key. `p50_ms` and `p95_ms` are right to 2 %, and `tokens` is an estimate from the bytes."""

    key: tuple[str, ...]
    calls: int
    errors: int
    denied: int
    p50_ms: float
    p95_ms: float
    bytes: int
    tokens: int


def show_call_stats(this: Invocation, options: LineOptions, *, directory: str | None, by: Subject) -> int:
    """Print the figures, the most called first; return the exit code."""
    with open_index(this, find_directory(this, directory)) as index:
        counts = index.count_calls(options.parse(this), by)
    width = 2 if by == "tool" else 1
    found = sorted(summarize(counts, width), key=lambda each: (-each.calls, each.key))
    this.out.print_rows(
        [_to_json(each, by) for each in found],
        ["CALLS", "ERRORS", "DENIED", "P50", "P95", "BYTES", "~TOKENS", by.upper()],
        [_cells(each) for each in found],
        if_none="the audit log has no such calls",
    )
    return 0


def summarize(counts: Iterable[CallCount], width: int) -> list[CallStats]:
    """Return the figures for each key, of which only the first parts count."""
    by_key: dict[tuple[str, ...], list[CallCount]] = {}
    for each in counts:
        by_key.setdefault(each.key[:width], []).append(each)
    return [_summarize(key, of_key) for key, of_key in by_key.items()]


def _summarize(key: tuple[str, ...], counts: list[CallCount]) -> CallStats:
    counts = sorted(counts, key=lambda each: each.pace)
    size = sum(each.bytes for each in counts)
    return CallStats(
        key,
        calls=sum(each.calls for each in counts),
        errors=sum(each.errors for each in counts),
        denied=sum(each.denied for each in counts),
        p50_ms=_percentile(counts, 0.5),
        p95_ms=_percentile(counts, 0.95),
        bytes=size,
        tokens=-(-size // _BYTES_A_TOKEN),
    )


def _percentile(counts: list[CallCount], share: float) -> float:
    """Return the duration that this share of the calls did not exceed."""
    reached = itertools.accumulate(each.calls for each in counts)
    least = share * sum(each.calls for each in counts)
    pace = next((each.pace for each, calls in zip(counts, reached, strict=True) if calls >= least), 0)
    return round(ms_of(pace), 3)


def _to_json(stats: CallStats, by: Subject) -> dict[str, object]:
    names = ("group", "tool") if by == "tool" else (by,)
    figures = {name: getattr(stats, name) for name in stats.__struct_fields__ if name != "key"}
    return {**dict(zip(names, stats.key, strict=True)), **figures}


def _cells(stats: CallStats) -> list[str]:
    return [
        f"{stats.calls:,}",
        f"{stats.errors:,}",
        f"{stats.denied:,}",
        format_ms(stats.p50_ms),
        format_ms(stats.p95_ms),
        f"{stats.bytes:,}",
        f"~{stats.tokens:,}",
        escape(" ".join(filter(None, stats.key))) or "-",
    ]
