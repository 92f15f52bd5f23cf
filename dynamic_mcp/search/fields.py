"""What of a tool is searched: texts by field. A schema is walked within bounds, however deep or wide it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec import Raw

from dynamic_mcp.mcp import wire
from dynamic_mcp.search.words import split_name

MAX_TEXT = 2000
MAX_NODES = 500
MAX_SUMMARY = 1000
_INNER = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties")


@dataclass
class ToolTexts:
    """The texts of one tool, by field."""

    name: str
    title: str = ""
    description: str = ""
    parameters: list[str] = field(default_factory=list)
    parameter_descriptions: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)


def extract_texts(name: str, tool: Raw) -> ToolTexts:
    """Return the texts of a tool."""
    decoded = wire.value(tool)
    found = decoded if isinstance(decoded, dict) else {}
    made = ToolTexts(name, _cut(found.get("title")), _cut(found.get("description")))
    annotations = found.get("annotations")
    if not made.title and isinstance(annotations, dict):
        made.title = _cut(annotations.get("title"))
    for schema in _walk_schemas(found.get("inputSchema")):
        _add_schema(made, schema)
    return made


def summarize(name: str, tool: Raw) -> str:
    """Return what a tool is for in one short text, for those who compare meanings."""
    found = extract_texts(name, tool)
    said = ". ".join(filter(None, [" ".join(split_name(name)), found.title, found.description]))
    return f"{said} ({', '.join(found.parameters)})"[:MAX_SUMMARY] if found.parameters else said[:MAX_SUMMARY]


def _walk_schemas(root: object) -> Iterator[Mapping[str, object]]:
    """Walk a schema and all inside it, the outermost first, as far as MAX_NODES."""
    waiting = [root]
    for at in range(MAX_NODES):
        if at >= len(waiting):
            return
        schema = waiting[at]
        if isinstance(schema, dict) and len(waiting) <= MAX_NODES:
            waiting += _subschemas(schema)
        if isinstance(schema, dict):
            yield schema


def _subschemas(schema: Mapping[str, object]) -> Iterator[object]:
    for key in _INNER:
        inner = schema.get(key)
        if isinstance(inner, dict):
            yield from inner.values()
    for key in _LISTS:
        choices = schema.get(key)
        if isinstance(choices, list):
            yield from choices
    for key in _SINGLE:
        if isinstance(schema.get(key), dict):
            yield schema[key]


def _add_schema(made: ToolTexts, schema: Mapping[str, object]) -> None:
    properties = schema.get("properties")
    if isinstance(properties, dict):
        made.parameters += list(properties)[:MAX_NODES]
        described = (each.get("description") for each in properties.values() if isinstance(each, dict))
        made.parameter_descriptions += [_cut(text) for text in described if isinstance(text, str)]
    allowed = schema.get("enum")
    if isinstance(allowed, list):
        made.values += [value[:MAX_TEXT] for value in allowed[:MAX_NODES] if isinstance(value, str)]


def _cut(text: object) -> str:
    return text[:MAX_TEXT] if isinstance(text, str) else ""
