"""The files of the chart, without Helm: its values, their schema, its alert rules, and what its templates say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from dynamic_mcp.features.cluster.chart import ChartError, check_values, default_values, fill, merge, parse_yaml
from tests.deployment.rendered import CHART, Json
from tests.documents import ROOT

SCHEMA: Json = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))


def test_each_value_is_in_the_schema_with_its_description_and_each_of_the_schema_has_a_default() -> None:
    values = {*_paths(default_values())}
    assert {*_described(SCHEMA)} - {("config",), ("global",)} == values - {("config",)}


def test_the_defaults_are_valid_by_the_schema() -> None:
    check_values(default_values(), "values.yaml")


def test_a_single_server_has_the_fields_of_all_servers() -> None:
    assert SCHEMA["definitions"]["server"]["properties"] == SCHEMA["properties"]["serverDefaults"]["properties"]


def test_the_schema_has_that_of_the_config() -> None:
    published = json.loads((ROOT / "schemas" / "dynamic-mcp.schema.json").read_text("utf-8"))
    definitions = {f"config.{name}": each for name, each in published["$defs"].items()}
    text = json.dumps(definitions).replace("#/$defs/", "#/definitions/config.")
    found = SCHEMA["definitions"]
    assert {name: each for name, each in found.items() if name.startswith("config.")} == json.loads(text)


def test_the_chart_is_of_the_version_of_the_program() -> None:
    from dynamic_mcp import __version__

    chart = parse_yaml((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == __version__


def test_each_metric_of_an_alert_is_one_that_the_program_has() -> None:
    known = set(re.findall(r"^\| `(\w+)`", (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8"), re.MULTILINE))
    rules = parse_yaml((CHART / "files" / "alerts.yaml").read_text(encoding="utf-8"))
    for rule in rules:
        names = re.findall(r"\b((?:mcp|dynamic_mcp|process)_\w+)\{", rule["expr"])
        assert names
        assert {re.sub("_(count|sum|bucket)$", "", name) for name in names} <= known
        assert rule["annotations"]["summary"]


def test_values_are_merged_as_helm_merges_them() -> None:
    values = {"a": {"b": 1, "c": [1]}, "d": 2}
    assert merge(values, {"a": {"c": [2], "e": {}}, "d": None}) == {"a": {"b": 1, "c": [2], "e": {}}}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("a: {{ $d.text }}", 'a: x "y"'),
        ("a: {{ $d.text | toJson }}", 'a: "x \\"y\\""'),
        ("a: |\n{{ $d.lines | indent 2 }}", "a: |\n  one\n  two"),
        ("a\n{{- if $d.none }}\nb\n{{- else }}\nc\n{{- end }}\nd", "a\nc\nd"),
        ("a\n{{- if $d.some.inner }}\nb\n{{- end }}", "a\nb"),
        ("{{- range $each := $d.list }}\n- {{ $each }}\n{{- if $d.none }}x{{- end }}\n{{- end }}", "\n- 1\n- 2"),
    ],
)
def test_templates_are_filled_as_helm_fills_them(template: str, text: str) -> None:
    data = {"text": 'x "y"', "lines": "one\ntwo", "none": [], "some": {"inner": True}, "list": [1, 2]}
    assert fill(template, data) == text


@pytest.mark.parametrize("template", ["{{ $d.absent }}", "{{ include $d.x . }}", "{{ $e }}", "{{- end }}"])
def test_what_only_helm_knows_is_an_error(template: str) -> None:
    with pytest.raises(ChartError):
        fill(template, {"x": 1})


def _paths(values: Json, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the places of values; those of Kubernetes itself are single ones."""
    for name, value in values.items():
        yield (*at, name)
        if isinstance(value, dict) and not at:
            yield from ((name, each) for each in value)


def _described(schema: Json) -> Iterator[tuple[str, ...]]:
    for name, each in schema["properties"].items():
        assert each["description"]
        yield (name,)
        for below, one in each.get("properties", {}).items():
            assert one["description"]
            yield (name, below)
