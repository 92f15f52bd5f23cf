"""Renders metrics: Prometheus text format 0.0.4, or OpenMetrics 1.0 for readers that prefer it.

https://prometheus.io/docs/instrumenting/exposition_formats, https://prometheus.io/docs/specs/om/open_metrics_spec
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from itertools import accumulate

from dynamic_mcp.features.metrics.families import Definition, Family, Histogram, Labels, MetricKind, Values

_TOTAL = "_total"


class Form(Enum):
    """A format, by its content type."""

    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def negotiate(accept: str) -> Form:
    """Return the format for an `Accept` header: OpenMetrics only if preferred over the Prometheus text."""
    weights = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for each in accept.lower().split(","):
        kind, *parameters = (part.strip() for part in each.split(";"))
        values = {name.strip(): value.strip() for name, _, value in (part.partition("=") for part in parameters)}
        if kind in weights and values.get("version", "1.0.0") in ("1.0.0", "0.0.4"):
            weights[kind] = max(weights[kind], _weight(values.get("q", "1")))
    open_metrics, prometheus = weights.values()
    return Form.OPEN_METRICS if open_metrics > prometheus else Form.PROMETHEUS


def render(families: Iterable[Family], form: Form = Form.PROMETHEUS) -> bytes:
    """Return the text of these metrics; metrics without values are left out."""
    parts = [part for family in families if family.series for part in _parts(family, form)]
    if form is Form.OPEN_METRICS:
        parts.append("# EOF\n")
    return "".join(parts).encode()


def join(texts: Mapping[str, str], label: str, form: Form) -> bytes:
    """Return the metrics of several texts, by the values of a label that tells them apart."""
    families: dict[str, list[str]] = {}  # the lines of each, which must stay together, by their first line
    for value, text in texts.items():
        lines: list[str] = []
        for line in text.splitlines():
            if line.startswith("# HELP "):
                lines = families.setdefault(line, [])
            elif line.startswith("# TYPE "):
                if not lines:
                    lines.append(line)
            elif line != "# EOF":
                lines.append(_with_label(line, f'{label}="{escape(value)}"'))
    parts = [line for first, lines in families.items() for line in (first, *lines)]
    if form is Form.OPEN_METRICS:
        parts.append("# EOF")
    return "".join(f"{part}\n" for part in parts).encode()


def _with_label(line: str, pair: str) -> str:
    """Return a sample with one more label; its name has neither a brace nor a space."""
    name, space, value = line.partition(" ")
    before, brace, labels = line.partition("{")
    return f"{before}{{{pair},{labels}" if brace and len(before) < len(name) else f"{name}{{{pair}}}{space}{value}"


def escape(value: str) -> str:
    r"""Return a label's value as written between quotes: with `\\`, `\"` and `\n`."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def _parts(family: Family, form: Form) -> Iterator[str]:
    definition = family.definition
    name, description = definition.name, definition.description
    if form is Form.OPEN_METRICS and definition.kind is MetricKind.COUNTER:
        name = name.removesuffix(_TOTAL)
    if form is Form.OPEN_METRICS:
        description = escape(description)
    else:
        description = description.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {name} {description}\n# TYPE {name} {definition.kind.value}\n"
    match family:
        case Values():
            for labels, value in family.series.items():
                yield f"{definition.name}{_braced(_pairs(definition, labels))} {_number(value)}\n"
        case Histogram():
            yield from _distributions(family)


def _distributions(family: Histogram) -> Iterator[str]:
    """Yield the lines of each distribution together; there may be thousands of them."""
    definition = family.definition
    name, bounds = definition.name, (*map(float, definition.buckets), math.inf)
    buckets = "".join(f'{name}_bucket{{%sle="{_number(bound)}"}} %d\n' for bound in bounds)
    for labels, distribution in family.series.items():
        pairs = _pairs(definition, labels)
        before = f"{pairs}," if pairs else ""
        counts = [*accumulate(distribution.counts)]
        yield buckets % tuple([part for count in counts for part in (before, count)])
        inner = _braced(pairs)
        yield f"{name}_sum{inner} {_number(distribution.total)}\n{name}_count{inner} {counts[-1]}\n"


def _pairs(definition: Definition, labels: Labels) -> str:
    """Return the labels as written between braces; empty labels are left out."""
    pairs = zip(definition.labels, labels, strict=True)
    return ",".join([f'{name}="{escape(value)}"' for name, value in pairs if value])


def _braced(pairs: str) -> str:
    return f"{{{pairs}}}" if pairs else ""


def _number(value: float) -> str:
    """Return a number in Go's syntax."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _weight(text: str) -> float:
    try:
        return min(1.0, float(text))
    except ValueError:
        return 0.0
