"""What the forms of help texts mean by a value; they spell the same things differently."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from dynamic_mcp.features.scan.facts import Value
from dynamic_mcp.features.scan.help.forms import Form
from dynamic_mcp.features.scan.help.spelling import Spelling
from dynamic_mcp.features.scan.help.values import read_value, says_repeatable
from dynamic_mcp.packs.model import Style

_NOTHING = Value(type="boolean")
_DURATION = re.compile(r"\d+(?:\.\d+)?(?:ns|us|ms|s|m|h)+[\dhms]*")

ValueReader = Callable[[Spelling, str], Value]


def read_flag_value(form: Form, spelling: Spelling, description: str) -> Value:
    """Return what a flag takes, as a text of this form says it."""
    if spelling.placeholder is None:
        return _NOTHING
    if spelling.second is not None:
        return Value(type="pairs")
    return _READERS.get(form, _read_gnu)(spelling, description)


def style_of(form: Form, spelling: Spelling, value: Value, *, has_equals: bool) -> Style | None:
    """Return how a flag is written, if not as a pack has it by default. `has_equals`: the program knows `--a=b`."""
    name = next((each for each in spelling.names if each.startswith("--")), spelling.names[0])
    if value.type == "boolean":
        return "equals" if _takes_boolean(form, spelling) else None
    if value.type == "pairs":
        return None
    if spelling.sign == "=" or has_equals:
        return "equals" if len(name) > 2 and not name.startswith("--") else None
    return "separate" if len(name) > 2 or (spelling.sign == " " and form == "gnu") else None


def _takes_boolean(form: Form, spelling: Spelling) -> bool:
    """Tell whether a boolean needs its value: it is on by default, or spelled with one, as Go's flags are."""
    text = (spelling.placeholder or "").strip("<>'\"").lower()
    return text == "true" or (form == "go" and text == "false") or text in ("bool", "boolean")


def _read_gnu(spelling: Spelling, description: str) -> Value:
    return read_value(spelling.placeholder or "", description)


def _read_named(spelling: Spelling, description: str) -> Value:
    """Read a placeholder that is the flag's own name unless the author chose one: `--count COUNT` says no type."""
    value = read_value(spelling.placeholder or "", description)
    text = re.sub(r"[^a-z0-9]", "", (spelling.placeholder or "").lower())
    is_default = any(text == re.sub(r"[^a-z0-9]", "", name.lower()) for name in spelling.names)
    if (is_default and value.type in ("integer", "number", "boolean")) or value.type == "boolean":
        return Value(type="string", repeatable=value.repeatable)
    return value


def _read_argparse(spelling: Spelling, description: str) -> Value:
    """Read `{a,b}`, a metavar, or one that is a comma-separated list of values."""
    value = _read_named(spelling, description)
    # `FILE [FILE ...]` takes all words that follow; given twice, the last one counts
    return value if says_repeatable(description) else _without_repeats(value)


def _read_click(spelling: Spelling, description: str) -> Value:
    text = (spelling.placeholder or "").strip()
    if text.startswith("<") and " " in text:
        return Value(type="pairs") if len(text.split()) == 2 else Value(type="string")
    value = read_value(text, description)
    if value.type == "enum" and not text.startswith("["):
        return Value(type="string")
    return value


def _read_cobra(spelling: Spelling, description: str) -> Value:
    text = (spelling.placeholder or "").strip("'\"")
    if spelling.sign != "=":
        return _NOTHING if text == "count" else read_value(text, description)
    if text in ("true", "false"):
        return _NOTHING
    if text == "[]":
        return Value(type="string", repeatable=True)
    if re.fullmatch(r"-?\d+", text):
        return Value(type="integer")
    if _DURATION.fullmatch(text):
        return Value(type="string")
    return read_value("string", description)  # what stands there is the default


def _read_go(spelling: Spelling, description: str) -> Value:
    text = (spelling.placeholder or "").strip("'\"")
    if text in ("true", "false"):
        return _NOTHING
    return read_value(text if re.fullmatch(r"[\w|-]+", text) else "string", description)


def _without_repeats(value: Value) -> Value:
    return Value(type=value.type, values=value.values, minimum=value.minimum, maximum=value.maximum)


_READERS: Mapping[Form, ValueReader] = {
    "argparse": _read_argparse,
    "click": _read_click,
    "clap": _read_named,
    "cobra": _read_cobra,
    "go": _read_go,
}
