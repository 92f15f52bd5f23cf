"""Extracts the searchable texts of a tool, by field. The walk through its schema is bounded in depth and width."""

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
    """Extract the texts of a tool."""
    decoded = wire.value(tool)
    members = decoded if isinstance(decoded, dict) else {}
    texts = ToolTexts(name, _cut(members.get("title")), _cut(members.get("description")))
    annotations = members.get("annotations")
    if not texts.title and isinstance(annotations, dict):
        texts.title = _cut(annotations.get("title"))
    for schema in _walk_schemas(members.get("inputSchema")):
        _add_schema(texts, schema)
    return texts


def summarize(name: str, tool: Raw) -> str:
    """Describe a tool in one short text, the input of the semantic index."""
    texts = extract_texts(name, tool)
    summary = ". ".join(filter(None, [" ".join(split_name(name)), texts.title, texts.description]))
    if texts.parameters:
        summary = f"{summary} ({', '.join(texts.parameters)})"
    return summary[:MAX_SUMMARY]


def _walk_schemas(root: object) -> Iterator[Mapping[str, object]]:
    """Yield a schema and its subschemas, outermost first, up to MAX_NODES."""
    queue = [root]
    for at in range(MAX_NODES):
        if at >= len(queue):
            return
        schema = queue[at]
        if isinstance(schema, dict) and len(queue) <= MAX_NODES:
            queue += _subschemas(schema)
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


def _add_schema(texts: ToolTexts, schema: Mapping[str, object]) -> None:
    properties = schema.get("properties")
    if isinstance(properties, dict):
        texts.parameters += list(properties)[:MAX_NODES]
        descriptions = (each.get("description") for each in properties.values() if isinstance(each, dict))
        texts.parameter_descriptions += [_cut(text) for text in descriptions if isinstance(text, str)]
    allowed = schema.get("enum")
    if isinstance(allowed, list):
        texts.values += [value[:MAX_TEXT] for value in allowed[:MAX_NODES] if isinstance(value, str)]


def _cut(text: object) -> str:
    return text[:MAX_TEXT] if isinstance(text, str) else ""
