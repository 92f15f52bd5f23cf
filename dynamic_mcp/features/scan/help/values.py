"""Reads the type of a value from its placeholder: `FILE`, `<N>`, `{a,b}`, `stringArray`, `INTEGER RANGE`."""

from __future__ import annotations

import re

from dynamic_mcp.features.scan.facts import ValueFact
from dynamic_mcp.policy.verbs import words

_INTEGERS = words("int int8 int16 int32 int64 uint uint8 uint16 uint32 uint64 integer n num number count depth")
_INTEGER_ENDING = re.compile(r"[-_](?:number|num|count)$")
_NUMBERS = words("float float32 float64 double decimal")
_PATHS = words("file path dir directory folder filename filepath pathname pathspec")
_BOOLEANS = words("bool boolean")
_LISTS = words("list strings stringarray stringslice stringtostring map")
_INTEGER_LISTS = words("ints intslice uints uintslice")
_PATH_ENDING = re.compile(r"(?:^|[-_ ])(?:file|path|dir|directory|filename)s?$|^(?:files|paths|dirs)$")
_LITERAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+:-]*")
# `[possible values: a, b]`, `One of: (a, b)`, `one of "a", "b" or "c"`
_LISTED = re.compile(
    r"\[possible values: (?P<clap>[^\]]+)\]|\b(?:one of|values are)\b:?\s*[(\[]?(?P<one>[^.;)\]\n]+)", re.IGNORECASE
)
_BULLETS = re.compile(r"possible values:\s+(?=- )", re.IGNORECASE)
_BULLET = re.compile(r"(?:^|\s)- ([A-Za-z0-9][\w.+-]*)(?=:|\s|$)")
_AGAIN = re.compile(
    r"\b(?:can|may|could)? ?(?:be )?(?:given|specified|repeated|used|set|passed|provided|supplied|set)"
    r" (?:multiple|several|many|more than one) ?times?\b|\bmultiple times\b|\brepeatable\b"
    r"|\b(?:can|may) be repeated\b|\[multiple\]|\bmore than once\b",
    re.IGNORECASE,
)
_RANGE = re.compile(r"(?:(-?\d+(?:\.\d+)?)(<=?))?x(?:(<=|<|>=|>)(-?\d+(?:\.\d+)?))?")


def read_value(placeholder: str, description: str = "") -> ValueFact:
    """Return the value for a placeholder; the description may list values and say that it repeats."""
    text = placeholder.strip().strip("\"'").strip()
    is_list = text.endswith("...") or bool(_AGAIN.search(description))
    text = text.removesuffix("...").strip()
    if values := _choices(text):
        return ValueFact(type="enum", values=values, repeatable=is_list or None)
    word = text.strip("<>[]").lower()
    if word in _LISTS:
        return ValueFact(type="string", repeatable=True)
    if word in _INTEGER_LISTS:
        return ValueFact(type="integer", repeatable=True)
    value = _by_word(word, description)
    if value.type == "string" and (values := listed_values(description)):
        value = ValueFact(type="enum", values=values)
    if value.type == "boolean":
        return value
    return ValueFact(
        type=value.type,
        values=value.values,
        repeatable=is_list or None,
        minimum=value.minimum,
        maximum=value.maximum,
    )


def _by_word(word: str, description: str) -> ValueFact:
    if word in _BOOLEANS:
        return ValueFact(type="boolean")
    if word in ("integer range", "float range"):
        least, most = _range(description)
        return ValueFact(type="integer" if word.startswith("i") else "number", minimum=least, maximum=most)
    if word in _INTEGERS or _INTEGER_ENDING.search(word):
        return ValueFact(type="integer")
    if word in _NUMBERS:
        return ValueFact(type="number")
    return ValueFact(type="path" if word in _PATHS or _PATH_ENDING.search(word) else "string")


def listed_values(description: str) -> tuple[str, ...]:
    """Return the values that a description lists as the only ones."""
    if found := _BULLETS.search(description):
        return tuple(dict.fromkeys(_BULLET.findall(" " + description[found.end() :])))
    found = _LISTED.search(description)
    if found is None:
        return ()
    parts = re.split(r",\s*(?:or\s+|and\s+)?|\s+(?:or|and)\s+|\|", (found["clap"] or found["one"]).strip())
    values = tuple(dict.fromkeys(part.strip().strip("\"'`") for part in parts if part.strip()))
    return values if len(values) > 1 and all(map(_LITERAL.fullmatch, values)) else ()


def says_repeatable(description: str) -> bool:
    """Return whether a flag may be given more than once, by its description."""
    return bool(_AGAIN.search(description))


def _choices(text: str) -> tuple[str, ...]:
    """Return the values of `{a,b}`, `[a|b]`, `(a|b)` and `a|b`. In `<a|b>` they may be placeholders."""
    bracket = re.fullmatch(r"\{([^{}]+)\}|[\[(]([^\[\]()|]+(?:\|[^\[\]()|]+)+)[\])]", text)
    inner = next((group for group in bracket.groups() if group), "") if bracket else text
    if bracket is None and "|" not in text:
        return ()
    if text.startswith("<"):
        return ()
    parts = tuple(dict.fromkeys(part.strip().strip("\"'") for part in re.split(r"[,|]", inner)))
    if not all(map(_LITERAL.fullmatch, parts)):
        return ()
    # without brackets, capital letters stand for something: `N|all`
    return () if bracket is None and any(part.isupper() for part in parts) else parts


def _range(description: str) -> tuple[float | None, float | None]:
    found = next((m for m in _RANGE.finditer(description) if m[1] or m[4]), None)
    if found is None:
        return None, None
    least = float(found[1]) if found[1] and found[2] == "<=" else None
    most = float(found[4]) if found[4] and found[3] == "<=" else None
    return (float(found[4]) if found[3] == ">=" else least), most
