"""A tool as a model is shown it: by its name, in brief (a signature and the first sentence), or in full."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from enum import Enum

from msgspec import Raw

from dynamic_mcp.mcp import wire
from dynamic_mcp.system.text import one_line

MAX_SENTENCE = 160
MAX_PARAMETERS = 12
MAX_TYPE = 40
_SHOWN = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_WORDS_FOR = {"string": "str", "integer": "int", "boolean": "bool", "array": "[]", "object": "{}"}


# A full stop before a small letter is an abbreviation's; the wide ones of Chinese and Japanese need no space.
_END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=\W*[^\Wa-z])|(?<=[\u3002\uff01\uff1f])")


class Detail(Enum):
    """How much of a tool is shown."""

    NAMES = "names"
    BRIEF = "brief"
    FULL = "full"


def shown(name: str, tool: Raw, detail: Detail, *, group: str | None = None) -> str:
    """Return a tool as one compact JSON object, with its group first where that is to be told."""
    members = {} if group is None else {"group": wire.encode(group)}
    match detail:
        case Detail.NAMES:
            members["name"] = wire.encode(name)
        case Detail.BRIEF:
            members |= _brief(name, tool)
        case Detail.FULL:
            members |= _full(tool)
    return (b"{" + b",".join(b'"%s":%s' % (key.encode(), value) for key, value in members.items()) + b"}").decode()


def listing(rows: Iterable[str]) -> str:
    """Return shown tools as one compact JSON object: some clients take only an object for structured content."""
    return '{"tools":[' + ",".join(rows) + "]}"


def signature(schema: Mapping[str, object]) -> str:
    """Return the parameters of an input schema in one line: `(owner: str, state?: open|closed)`."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return "()"
    required = schema.get("required")
    needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    names = sorted(properties, key=lambda name: name not in needed)
    listed = list(names)[:MAX_PARAMETERS]
    told = [f"{_short(name)}{'' if name in needed else '?'}{_typed(properties[name])}" for name in listed]
    more = len(names) - len(listed)
    return "(" + ", ".join(told) + (f", … {more} more" if more else "") + ")"


def first_sentence(text: str) -> str:
    """Return how a text begins, as one line of at most MAX_SENTENCE characters."""
    start = one_line(text[: MAX_SENTENCE * 4], None)
    sentence = _END_OF_SENTENCE.split(start, maxsplit=1)[0]
    return sentence if len(sentence) <= MAX_SENTENCE else sentence[: MAX_SENTENCE - 1].rstrip() + "…"


def _full(tool: Raw) -> dict[str, bytes]:
    found = wire.members(tool)
    parts = {key: wire.compact(found[key]) for key in _SHOWN if key in found}
    if not parts.get("inputSchema", b"").startswith(b"{"):
        parts["inputSchema"] = b'{"type":"object"}'  # what the specification asks for at least
    return parts


def _brief(name: str, tool: Raw) -> dict[str, bytes]:
    found = wire.members(tool)
    schema = wire.value(found.get("inputSchema", wire.EMPTY_OBJECT))
    sentence = first_sentence(wire.text(found.get("description")) or wire.text(found.get("title")) or "")
    brief = {
        "name": wire.encode(name),
        "args": wire.encode(signature(schema if isinstance(schema, dict) else {})),
    }
    return brief | ({"description": wire.encode(sentence)} if sentence else {})


def _typed(schema: object) -> str:
    said = _type(schema) if isinstance(schema, dict) else ""
    return f": {said}" if said else ""


def _type(schema: Mapping[str, object]) -> str:
    """Return a short word for a type: its values, its name, or the names of its choices."""
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(allowed, list):
        values = "|".join(value if isinstance(value, str) else json.dumps(value) for value in allowed[:20])
        return _short(values) if len(allowed) <= 20 else _short(values + "|…")
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items")
        of = _type(items) if isinstance(items, dict) and "items" not in items else ""
        return f"({of})[]" if "|" in of else f"{of}[]"
    inner = schema.get("properties")
    if kind == "object" and isinstance(inner, dict) and inner:
        return _short("{" + ", ".join(inner) + "}")
    if isinstance(kind, str):
        return _short(_WORDS_FOR.get(kind, kind))
    choices = next((schema[key] for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list)), kind)
    if isinstance(choices, list):
        return _short("|".join(_choice(choice) for choice in choices if choice not in ("null", {"type": "null"})))
    return ""


def _choice(choice: object) -> str:
    kind = choice.get("type") if isinstance(choice, dict) else choice
    return _WORDS_FOR.get(kind, kind) if isinstance(kind, str) else "any"


def _short(text: str) -> str:
    return one_line(text, MAX_TYPE)
