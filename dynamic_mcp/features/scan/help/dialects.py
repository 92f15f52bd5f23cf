"""The forms of help texts: what is known of the programs that print them, and what each means by a value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal

from dynamic_mcp.features.scan.facts import Value
from dynamic_mcp.features.scan.help.spelling import Spelling
from dynamic_mcp.features.scan.help.values import read_value, says_repeatable
from dynamic_mcp.packs.model import Style

_NOTHING = Value(type="boolean")
_DURATION = re.compile(r"\d+(?:\.\d+)?(?:ns|us|ms|s|m|h)+[\dhms]*")

ValueReader = Callable[[Spelling, str], Value]
Form = Literal["argparse", "click", "cobra", "clap", "docopt", "go", "gnu"]
# The first that is found. Each program framework prints some words that the others do not.
_SIGNS: tuple[tuple[Form, str], ...] = (
    ("argparse", r"^usage: [^\n]*\n(?:.|\n)*^(?:options|optional arguments|positional arguments):$"),
    ("argparse", r"^  -h, --help +show this help message and exit"),
    ("click", r"^ *(?:-h, )?--help +Show this message and exit\.|^.{1,3}╭─ (?:Options|Commands)|^ *│ --help "),
    ("cobra", r"^(?:Available Commands|Global Flags|Management Commands):$"),
    ("cobra", r'^Use "[^"\n]+ --help" for more information about a (?:given )?command|^ *-h, --help +help for '),
    ("cobra", r"^ +(?:-\w, )?--[\w-]+ (?:string|int|list|strings|stringArray|duration|map|bytes)\b"),
    ("cobra", r'^ +(?:-\w, )?--[\w-]+=(?:\'\'|\[\]|true|false):$|^Use "[^"\n]* options" for a list of global'),
    ("clap", r"^ *-h, --help +(?:Print|Prints) help"),
    ("clap", r"^ +-h, --help\n +(?:Print|Prints) help"),
    ("clap", r"\[possible values: |^SUBCOMMANDS:$"),
    ("go", r"^ {2,}-[a-z]{2,}[\w-]*(?:=\S+)?(?:  |$)"),
)
_COMPILED = [(form, re.compile(sign, re.MULTILINE)) for form, sign in _SIGNS]
_DOCOPT = re.compile(r"^Usage:\s*\n(?:  .*\n)+\s*^Options:", re.MULTILINE)
# Parsers of these know `--flag=value`, and `--` as the end of the flags.
WITH_EQUALS = frozenset(("argparse", "click", "cobra", "clap", "docopt", "go"))
WITH_SEPARATOR = frozenset(("argparse", "click", "cobra", "clap", "docopt"))


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


def find_form(text: str) -> Form:
    """Return the form of a help text; `gnu` if it has no signs of another one."""
    for form, sign in _COMPILED:
        if sign.search(text):
            return form
    return "docopt" if _DOCOPT.search(text) else "gnu"
