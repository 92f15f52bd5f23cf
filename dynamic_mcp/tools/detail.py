"""Formats tools for a model: the name, a brief form (signature and first sentence), or everything."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from msgspec import Raw

from dynamic_mcp.mcp import wire
from dynamic_mcp.system.text import one_line

MAX_SENTENCE = 160
MAX_PARAMETERS = 12
MAX_TYPE = 40
_FULL_MEMBERS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_TYPE_NAMES = {"string": "str", "integer": "int", "boolean": "bool", "array": "[]", "object": "{}"}


# A full stop before a lower-case letter ends an abbreviation; Chinese and Japanese full stops need no space after.
_END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=\W*[^\Wa-z])|(?<=[\u3002\uff01\uff1f])")


class Detail(Enum):
    """The level of detail of a shown tool."""

    NAMES = "names"
    BRIEF = "brief"
    FULL = "full"


def format_tool(name: str, tool: Raw, detail: Detail, *, group: str | None = None) -> str:
    """Return a tool as one compact JSON object, with its group first if `group` is given."""
    members = {} if group is None else {"group": wire.encode(group)}
    match detail:
        case Detail.NAMES:
            members["name"] = wire.encode(name)
        case Detail.BRIEF:
            members |= _brief_members(name, tool)
        case Detail.FULL:
            members |= _full_members(tool)
    return (b"{" + b",".join(b'"%s":%s' % (key.encode(), value) for key, value in members.items()) + b"}").decode()


def format_tools(rows: Iterable[str], skills: Sequence[str] = ()) -> str:
    """Join formatted tools into one JSON object; some clients accept only objects as structured content.

    Skills, if there are any, are another member of it.
    """
    return '{"tools":[' + ",".join(rows) + "]" + (f',"skills":[{",".join(skills)}]' if skills else "") + "}"


def format_signature(schema: Mapping[str, object]) -> str:
    """Return the parameters of an input schema on one line: `(owner: str, state?: open|closed)`."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return "()"
    required = schema.get("required")
    needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    names = sorted(properties, key=lambda name: name not in needed)
    shown = list(names)[:MAX_PARAMETERS]
    parameters = [
        f"{_shorten(name)}{'' if name in needed else '?'}{_type_suffix(properties[name])}" for name in shown
    ]
    more = len(names) - len(shown)
    return "(" + ", ".join(parameters) + (f", … {more} more" if more else "") + ")"


def first_sentence(text: str) -> str:
    """Return the first sentence of a text on one line, cut at MAX_SENTENCE characters."""
    start = one_line(text[: MAX_SENTENCE * 4], None)
    sentence = _END_OF_SENTENCE.split(start, maxsplit=1)[0]
    return sentence if len(sentence) <= MAX_SENTENCE else sentence[: MAX_SENTENCE - 1].rstrip() + "…"


def _full_members(tool: Raw) -> dict[str, bytes]:
    members = wire.members(tool)
    full = {key: wire.compact(members[key]) for key in _FULL_MEMBERS if key in members}
    if not full.get("inputSchema", b"").startswith(b"{"):
        full["inputSchema"] = b'{"type":"object"}'  # the minimum that the specification requires
    return full


def _brief_members(name: str, tool: Raw) -> dict[str, bytes]:
    members = wire.members(tool)
    schema = wire.value(members.get("inputSchema", wire.EMPTY_OBJECT))
    sentence = first_sentence(wire.text(members.get("description")) or wire.text(members.get("title")) or "")
    brief = {
        "name": wire.encode(name),
        "args": wire.encode(format_signature(schema if isinstance(schema, dict) else {})),
    }
    return brief | ({"description": wire.encode(sentence)} if sentence else {})


def _type_suffix(schema: object) -> str:
    type_name = _format_type(schema) if isinstance(schema, dict) else ""
    return f": {type_name}" if type_name else ""


def _format_type(schema: Mapping[str, object]) -> str:
    """Return a type in short: its allowed values, its name, or the names of its alternatives."""
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(allowed, list):
        values = "|".join(value if isinstance(value, str) else json.dumps(value) for value in allowed[:20])
        return _shorten(values) if len(allowed) <= 20 else _shorten(values + "|…")
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items")
        of = _format_type(items) if isinstance(items, dict) and "items" not in items else ""
        return f"({of})[]" if "|" in of else f"{of}[]"
    inner = schema.get("properties")
    if kind == "object" and isinstance(inner, dict) and inner:
        return _shorten("{" + ", ".join(inner) + "}")
    if isinstance(kind, str):
        return _shorten(_TYPE_NAMES.get(kind, kind))
    choices = next((schema[key] for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list)), kind)
    if isinstance(choices, list):
        return _shorten(
            "|".join(_format_choice(choice) for choice in choices if choice not in ("null", {"type": "null"}))
        )
    return ""


def _format_choice(choice: object) -> str:
    kind = choice.get("type") if isinstance(choice, dict) else choice
    return _TYPE_NAMES.get(kind, kind) if isinstance(kind, str) else "any"


def _shorten(text: str) -> str:
    return one_line(text, MAX_TYPE)
