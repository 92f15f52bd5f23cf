"""The Helm chart, whose templates `cluster render` fills without Helm.

They use a small part of Helm's language, in which `$d` is what the manifests say: paths of it, which may end with
`| toJson` or `| indent N`, `if … else … end` and `range $each := …`.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Raw, Struct

import dynamic_mcp
from dynamic_mcp.config.keys import format_path
from dynamic_mcp.errors import ConfigError, DynamicMcpError
from dynamic_mcp.system.text import os_reason

Json = Any  # what a template is filled with

_PACKAGE = Path(dynamic_mcp.__file__).parent
# In the wheel, and in a checkout.
_FOLDERS = (_PACKAGE / "chart", _PACKAGE.parent / "deploy" / "chart")
# The first line of a template, with which Helm finds `$d`.
_HEAD = '{{- $d := include "dynamic-mcp.data" . | fromJson -}}\n'
# What JSON may have as it is, and YAML may not, or reads as the end of a line.
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")
_ACTION = re.compile(r"\s*\{\{- (.*?) \}\}|\{\{ (.*?) \}\}", re.DOTALL)
_RANGE = re.compile(r"range (\$\w+) := (\S+)")
_VALUE = re.compile(r"(\S+)(?: \| (toJson|indent (\d+)))?")
_QUOTES = "write a text with special characters in quotes"
# The order in which the templates are printed.
_TEMPLATES = ("gateway", "servers", "network", "ingress", "monitoring")


class ChartError(DynamicMcpError):
    """The chart is not there, or its templates use what is not known here."""


def read_chart_file(name: str) -> str:
    """Return the text of a file of the chart. Raises ChartError."""
    for folder in _FOLDERS:
        if (folder / "Chart.yaml").is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise ChartError("the chart is not installed", hint="install the wheel, or run it from a checkout")


def default_values() -> dict[str, Json]:
    """Return the values of the chart that nobody has changed."""
    values = parse_yaml(read_chart_file("values.yaml"))
    assert isinstance(values, dict)
    return values


class Described(Struct, frozen=True):
    """One value of the chart: its path, its default, and what it means. A group of values has no default."""

    path: str
    default: Json
    description: str
    is_group: bool = False


def list_values() -> Iterator[Described]:
    """Yield the values of the chart, in the order of `values.yaml`."""
    schema = json.loads(read_chart_file("values.schema.json"))
    for name, default in default_values().items():
        section = schema["properties"][name]
        members = section.get("properties", {})
        yield Described(name, default, section["description"], is_group=bool(members))
        for key, each in members.items():
            yield Described(f"{name}.{key}", default[key], each["description"])


def parse_yaml(text: str) -> Json:
    """Return what a YAML text says. Raises YAMLError."""
    documents = parse_documents(text)
    return documents[0] if documents else None


def parse_documents(text: str) -> list[Json]:
    """Return the documents of a YAML text, as Helm and kubectl read it: by YAML 1.1. Raises YAMLError."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that other versions of YAML read `1e3` as another type
        return list(yaml.load_all(text))


def read_values(file: Path) -> dict[str, Json]:
    """Return the values in a file. Raises ConfigError."""
    try:
        values = parse_value(file.read_text(encoding="utf-8"), str(file))
    except OSError as exc:
        raise ConfigError(str(file), "", f"cannot be read: {os_reason(exc)}") from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(str(file), "", "is not UTF-8") from exc
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(str(file), "", "must be a mapping", hint="docs/kubernetes.md has a table of the values")
    return values


def parse_value(text: str, source: str, where: str = "") -> Json:
    """Return what a YAML text of a user says, if JSON can say it too. Raises ConfigError."""
    from ruamel.yaml.error import YAMLError

    try:
        return json.loads(json.dumps(parse_yaml(text), allow_nan=False))
    except (YAMLError, RecursionError):  # whose texts have lines of the file, which may be secrets
        raise ConfigError(
            source, where, "is not YAML", hint="write a text with special characters in quotes"
        ) from None
    except (TypeError, ValueError):
        what = "has a date, binary data or a link to itself, which JSON does not have"
        raise ConfigError(source, where, what, hint="write a date as a text, in quotes") from None


def merge(values: Json, changes: Mapping[str, Json]) -> dict[str, Json]:
    """Return values with changes, as Helm merges them: mappings by their members, and null removes one."""
    merged = dict(values) if isinstance(values, dict) else {}
    for name, change in changes.items():
        if change is None:
            merged.pop(name, None)
        elif isinstance(change, dict):
            merged[name] = merge(merged.get(name), change)
        else:
            merged[name] = change
    return merged


def check_values(values: Mapping[str, Json], file: str) -> None:
    """Raise ConfigError if the values of the chart are not what its schema says."""
    from dynamic_mcp.tools.schema import InputSchema

    secrets = values.get("secrets")
    for name, value in secrets.items() if isinstance(secrets, dict) else ():
        if not isinstance(value, str):  # an error of the schema would show it
            raise ConfigError(file, format_path(("secrets", name)), "is not a text", hint="write it in quotes")
    for path in _find_missing(values):
        raise ConfigError(file, path, "is null", hint="leave it out for its default")
    schema = json.loads(read_chart_file("values.schema.json"))
    schema["definitions"]["config"] = {}  # which has errors of its own
    flaws = InputSchema(Raw(json.dumps(schema).encode())).describe_flaws(Raw(json.dumps(values).encode()))
    if flaws:
        raise ConfigError(file, "", flaws, hint="docs/kubernetes.md has a table of the values")


def _find_missing(values: Mapping[str, Json]) -> Iterator[str]:
    """Yield the paths of values that a null has removed."""
    for section, default in default_values().items():
        if section not in values:
            yield section
        members = values.get(section)
        if isinstance(default, dict) and isinstance(members, dict):
            yield from (f"{section}.{name}" for name in default if name not in members)


def render_chart(data: Mapping[str, Json]) -> str:
    """Return the manifests of all templates, filled with data, as YAML documents."""
    alerts = read_chart_file("files/alerts.yaml").rstrip("\n").replace("NAME", data["name"])
    data = {**data, "alerts": alerts}
    texts = [fill(read_chart_file(f"templates/{name}.yaml").removeprefix(_HEAD), data) for name in _TEMPLATES]
    documents = (each.strip("\n") for text in texts for each in re.split(r"^---$", text, flags=re.MULTILINE))
    return "".join(f"---\n{each}\n" for each in documents if each.strip())


def to_json(value: Json, *, indent: int | None = None) -> str:
    """Return a value as JSON that can be a part of YAML."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


# --- the language of templates ---------------------------------------------------------------------------------


class _Value(Struct, frozen=True):
    """A path from a variable to a value, and how that is written."""

    path: str
    form: str = ""
    indent: int = 0


class _Condition(Struct, frozen=True):
    path: str
    then: Sequence[_Node]
    otherwise: Sequence[_Node]


class _Loop(Struct, frozen=True):
    variable: str
    path: str
    body: Sequence[_Node]


_Node = str | _Value | _Condition | _Loop


def fill(template: str, data: Mapping[str, Json]) -> str:
    """Return a template, filled with data. Raises ChartError."""
    tokens = _tokens(template)
    nodes, end = _parse(tokens)
    if end:
        raise ChartError(f"a template has `{end}` where nothing began")
    return "".join(_write(nodes, {"$d": data}))


def _tokens(template: str) -> Iterator[tuple[str, str]]:
    """Yield each action of a template, with the text before it; the last one is empty."""
    end = 0
    for match in _ACTION.finditer(template):
        yield template[end : match.start()], match[1] or match[2]
        end = match.end()
    yield template[end:], ""


def _parse(tokens: Iterator[tuple[str, str]]) -> tuple[list[_Node], str]:
    """Return the nodes until a block ends, and the word that ends it."""
    nodes: list[_Node] = []
    for text, action in tokens:
        nodes.append(text)
        if action in ("end", "else", ""):
            return nodes, action
        if action.startswith("if "):
            nodes.append(_parse_condition(action.removeprefix("if "), tokens))
        elif (loop := _RANGE.fullmatch(action)) is not None:
            nodes.append(_Loop(loop[1], loop[2], _parse(tokens)[0]))
        elif (value := _VALUE.fullmatch(action)) is not None:
            nodes.append(_Value(value[1], value[2] or "", int(value[3] or 0)))
        else:
            raise ChartError(f"a template has `{action}`, which only Helm knows")
    return nodes, ""


def _parse_condition(path: str, tokens: Iterator[tuple[str, str]]) -> _Condition:
    then, end = _parse(tokens)
    return _Condition(path, then, _parse(tokens)[0] if end == "else" else ())


def _write(nodes: Sequence[_Node], variables: Mapping[str, Json]) -> Iterator[str]:
    for node in nodes:
        match node:
            case str():
                yield node
            case _Value():
                yield _format(_find(node.path, variables), node)
            case _Condition():
                yield from _write(node.then if _find(node.path, variables) else node.otherwise, variables)
            case _Loop():
                for each in _find(node.path, variables):
                    yield from _write(node.body, {**variables, node.variable: each})


def _find(path: str, variables: Mapping[str, Json]) -> Json:
    variable, *members = path.split(".")
    try:
        value = variables[variable]
        for member in members:
            value = value[member]
    except (KeyError, TypeError) as exc:
        raise ChartError(f"a template has `{path}`, which nothing says") from exc
    return value


def _format(value: Json, how: _Value) -> str:
    if how.form == "toJson":
        return to_json(value)
    if how.indent:
        return "\n".join(" " * how.indent + line for line in value.split("\n"))
    return str(value)
