"""The dashboard and the examples of the documents ask for metrics and labels that there are, and leave little out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.features.metrics import definitions
from dynamic_mcp.features.metrics.families import Definition, MetricKind

ROOT = Path(__file__).parents[3]
DASHBOARD: Mapping[str, Any] = json.loads(
    (ROOT / "examples" / "grafana-dashboard.json").read_text(encoding="utf-8")
)  # Any: JSON
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
# What no panel is about.
NOT_SHOWN = {definitions.VIRTUAL_MEMORY.name}
# What Prometheus and Grafana have besides.
GIVEN = {"le", "job", "instance"}

NAMES = {
    f"{each.name}{suffix}": each
    for each in definitions.ALL
    for suffix in (("_bucket", "_sum", "_count") if each.kind is MetricKind.HISTOGRAM else ("",))
}


def expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield re.sub(r"^label_values\((.*), \w+\)$", r"\1", variable["query"]["query"])


def page_expressions() -> Iterator[str]:
    yield from re.findall(r"^\| [^|]+ \| `([^`]+\))` \|$", PAGE, re.MULTILINE)
    yield from re.findall(r"expr: (?:\|\n)?(.*?)\n +(?:for|annotations):", PAGE, re.DOTALL)


def asked(expression: str) -> list[tuple[Definition, set[str]]]:
    """Return each metric of an expression, with the labels that it is selected by."""
    found = re.findall(r"\b((?:mcp|dynamic_mcp|process)_\w+)(?:\{([^}]*)\})?", expression)
    labels = {name for each in definitions.ALL for name in each.labels}
    return [
        (NAMES[name], set(re.findall(r"(\w+)(?==~|!=|=)", selectors)))
        for name, selectors in found
        if name not in labels
    ]


@pytest.mark.parametrize("expression", [*expressions(), *page_expressions()])
def test_every_query_is_about_metrics_and_labels_that_there_are(expression: str) -> None:
    metrics = asked(expression)

    assert metrics
    for definition, labels in metrics:
        assert labels <= {*definition.labels, *GIVEN}
    known = {name for definition, _ in metrics for name in definition.labels} | GIVEN
    for grouped in re.findall(r"\b(?:by|on|without) \(([^)]*)\)", expression):
        assert {name.strip() for name in grouped.split(",")} <= known


def test_every_metric_has_a_panel() -> None:
    shown = {definition.name for expression in expressions() for definition, _ in asked(expression)}

    assert {each.name for each in definitions.ALL} - shown == NOT_SHOWN


def test_every_legend_names_a_label_of_its_query() -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            known = {name for definition, _ in asked(target["expr"]) for name in definition.labels} | GIVEN
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known, panel["title"]


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= 24
        assert taken.isdisjoint(cells), panel["title"]
        taken |= cells


def test_the_page_has_queries_and_alerts() -> None:
    assert len([*page_expressions()]) >= 10
