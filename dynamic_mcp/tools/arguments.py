"""Repairs the arguments of a tool call if its input schema allows exactly one interpretation; pure.

Valid arguments pass byte for byte. Only repaired arguments are encoded again, with a note of each change. Arguments
that cannot be repaired stay unchanged, and a `Misfit` describes the problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Raw, Struct

from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.mcp import wire
from dynamic_mcp.tools.schema import Flaw, InputSchema, Path

# Separators that models write between the names of a group and a tool.
SEPARATORS = ("__", ".", "/")
# Names that models use for the arguments.
_WRAPPERS = ("arguments", "params", "args")
_MOST_ENCODINGS = 3
_MOST_ROUNDS = 3
_MOST_REPAIRS = 20
_MOST_SHOWN = 10
_LONGEST_REPAIRED = 1 << 20
_LONGEST_SCHEMA_SHOWN = 20_000
_BRACE, _BRACKET, _QUOTE = b'{["'

_AS_JSON = "was JSON in a string"
_IN_A_LIST = "was one value and is now a list"


class Misfit(Struct, frozen=True):
    """Arguments that do not fit a schema. The problems are determined on demand."""

    schema: InputSchema
    args: Raw

    def describe(self) -> str:
        """Return a line for each problem, and one with the schema."""
        return _describe(self.schema, describe_flaws(self.schema, self.args, self.schema.find_flaws(self.args)))

    def refusal(self, tool: str) -> InvalidArguments:
        """Return the error for rejecting the call."""
        return _refusal(tool, self.describe())


class Interpretation(Struct, frozen=True):
    """One interpretation of the arguments, with a note for each change; `misfit` if it does not fit."""

    args: Raw
    notes: tuple[str, ...] = ()
    misfit: Misfit | None = None

    def with_note(self, note: str, args: Raw) -> Interpretation:
        return Interpretation(args, (*self.notes, note))

    def as_misfit(self, schema: InputSchema) -> Interpretation:
        return Interpretation(self.args, self.notes, Misfit(schema, self.args))


def split_name(name: str, groups: Iterable[str]) -> list[tuple[str, str]]:
    """Return the groups and tools that a name such as `github__create_issue` or `github.create_issue` can mean."""
    return [
        (group, name[len(group) + len(separator) :])
        for group in groups
        for separator in SEPARATORS
        if name.startswith(group + separator) and len(name) > len(group) + len(separator)
    ]


def is_valid(schema: InputSchema, args: Raw) -> bool:
    """Return whether the arguments are an object that the schema accepts."""
    if schema.accepts_plain(args):
        return True
    if memoryview(args)[0] != _BRACE or not schema.accepts(args):
        return False
    # the upstream may use the first of two values with the same name, but the last one was checked
    return schema.accepts_any_object or wire.find_duplicate_name(args) is None


def repair(schema: InputSchema, args: Raw | None, extra_arguments: Mapping[str, Raw], tool: str) -> Interpretation:
    """Return the only interpretation of the arguments that fits the schema.

    If none fits, return the most literal one with a `misfit` and with as many values repaired as possible.
    `extra_arguments` were passed next to `args`. `tool` is for messages. Raises InvalidArguments if the arguments are
    not an object, have duplicate names, or are ambiguous.
    """
    candidates = list_readings(schema, args, extra_arguments)
    valid = {bytes(each.args): each for each in candidates if each.misfit is None}
    if len(valid) == 1:
        return next(iter(valid.values()))
    if not candidates or valid:
        problem = "they can be read in more than one way" if valid else "`args` is not an object"
        raise _refusal(tool, _describe(schema, [problem]))
    return candidates[0]


def list_readings(schema: InputSchema, args: Raw | None, extra_arguments: Mapping[str, Raw]) -> list[Interpretation]:
    """Return what the arguments can mean, the most literal first, each with as many values repaired as possible.

    Raises InvalidArguments.
    """
    return [_coerce(schema, each) for each in _interpret(schema, args, extra_arguments)]


def describe_flaws(schema: InputSchema, args: Raw, flaws: Sequence[Flaw]) -> list[str]:
    """Return a line for each of the first flaws, and one for each name that no parameter has."""
    more = [f"and {len(flaws) - _MOST_SHOWN} more"] if len(flaws) > _MOST_SHOWN else []
    return [*map(str, flaws[:_MOST_SHOWN]), *more, *_suggest_names(schema, args, flaws)]


# --- interpretations --------------------------------------------------------------------------------------------


def _interpret(schema: InputSchema, args: Raw | None, extra_arguments: Mapping[str, Raw]) -> Iterator[Interpretation]:
    """Yield the possible interpretations, the most literal first."""
    parsed = _parse_object(args)
    if parsed is None:
        return
    inside = wire.members(parsed.args)
    if not inside and (args is None or _is_null(args) or any(name in _WRAPPERS for name in extra_arguments)):
        yield from _interpret_extra(schema, parsed, extra_arguments)
        return
    extras = {name: extra_arguments[name] for name in extra_arguments if name in schema.parameters}
    missing = {name: extras[name] for name in extras if name not in inside}
    whole = parsed.with_note(_extra_note(missing), _to_object({**inside, **missing})) if missing else parsed
    yield whole
    others = {name: extras[name] for name in extras if name in inside and not _are_same(inside[name], extras[name])}
    if others:
        yield whole.with_note(_extra_note(others), _to_object({**inside, **extras}))
    for name in extra_arguments:
        inner = _parse_object(extra_arguments[name]) if name in _WRAPPERS and name not in schema.parameters else None
        if inner and wire.members(inner.args) and not _are_same(inner.args, parsed.args):
            yield inner.with_note(f"the arguments were under `{name}`", inner.args)
    if missing:
        return
    for name in _WRAPPERS:
        if list(inside) == [name] and name not in schema.parameters and (inner := _parse_object(inside[name])):
            yield parsed.with_note(f"the arguments were under `{name}`", inner.args)


def _interpret_extra(
    schema: InputSchema, parsed: Interpretation, extra_arguments: Mapping[str, Raw]
) -> Iterator[Interpretation]:
    """Yield interpretations of the extra arguments, where `args` itself is empty."""
    if not extra_arguments:
        yield parsed
        return
    if all(schema.allows_parameter(name) for name in extra_arguments) or not any(
        name in _WRAPPERS for name in extra_arguments
    ):
        yield parsed.with_note(_extra_note(extra_arguments), _to_object(extra_arguments))
    for name in _WRAPPERS:
        inner = (
            _parse_object(extra_arguments[name])
            if name in extra_arguments and name not in schema.parameters
            else None
        )
        if inner is not None:
            unwrapped = inner.with_note(f"the arguments were under `{name}`", inner.args)
            rest = {key: value for key, value in extra_arguments.items() if key in schema.parameters}
            both = _to_object({**rest, **wire.members(inner.args)})
            yield unwrapped.with_note(_extra_note(rest), both) if rest else unwrapped


def _are_same(one: Raw, other: Raw) -> bool:
    return wire.compact(one) == wire.compact(other)


def _extra_note(names: Iterable[str]) -> str:
    return f"{', '.join(f'`{name}`' for name in names)} stood beside `args`"


def _parse_object(args: Raw | None) -> Interpretation | None:
    """Parse the arguments as an object. Missing arguments are an empty object, and JSON in a string is decoded."""
    if args is None or _is_null(args):
        return Interpretation(wire.EMPTY_OBJECT)
    value, notes = args, tuple[str, ...]()
    for _ in range(_MOST_ENCODINGS):
        if memoryview(value)[0] != _QUOTE:
            break
        text = (wire.text(value) or "").strip() or "{}"
        value, notes = Raw(text.encode()), (f"`args` {_AS_JSON}",)
    if memoryview(value)[0] != _BRACE:
        return None
    try:
        wire.members(value)
    except wire.Malformed:
        return None
    refuse_duplicates(value)
    return Interpretation(value, notes)


def refuse_duplicates(data: Raw, *, is_flat: bool = False) -> None:
    """Raise InvalidArguments if an object has a duplicate name, since it is unclear which value counts."""
    name = wire.find_duplicate_name(data, is_flat=is_flat)
    if name is not None:
        raise InvalidArguments(f"`{name[:100]}` is given twice, so nothing was called", hint="give each name once")


def _to_object(members: Mapping[str, Raw]) -> Raw:
    return Raw(wire.encode(members))


# --- values ----------------------------------------------------------------------------------------------


def _coerce(schema: InputSchema, reading: Interpretation) -> Interpretation:
    """Return the interpretation with its invalid values repaired where possible."""
    if not _has_known_names(schema, reading):
        return reading.as_misfit(schema)
    if len(reading.args) > _LONGEST_REPAIRED:
        return reading if schema.accepts(reading.args) else reading.as_misfit(schema)
    repairs = 0
    for _ in range(_MOST_ROUNDS):
        if schema.accepts(reading.args):
            return reading
        before = reading
        for flaw in schema.find_flaws(reading.args):
            better = _repair_value(schema, reading, flaw.path) if flaw.path and repairs < _MOST_REPAIRS else None
            reading, repairs = better or reading, repairs + 1
        if reading is before:
            break
    return reading if schema.accepts(reading.args) else reading.as_misfit(schema)


def _has_known_names(schema: InputSchema, reading: Interpretation) -> bool:
    """Return whether an interpretation that moves values passes only known parameters. True if it moves none."""
    return (
        not reading.notes
        or reading.notes == (f"`args` {_AS_JSON}",)
        or all(map(schema.allows_parameter, wire.members(reading.args)))
    )


def _repair_value(schema: InputSchema, reading: Interpretation, path: Path) -> Interpretation | None:
    """Replace the invalid value at `path` if exactly one alternative is valid there."""
    value = _value_at(reading.args, path)
    if value is None:
        return None
    name = ".".join(map(str, path))
    candidates = [
        reading.with_note(f"`{name}` {note}", _replace_at(reading.args, path, other))
        for other, note in _alternatives(value)
    ]
    flawed = [[flaw.path for flaw in schema.find_flaws(each.args)] for each in candidates]
    whole = [
        other for other, paths in zip(candidates, flawed, strict=True) if all(p[: len(path)] != path for p in paths)
    ]
    # the next round repairs what is still invalid inside the value
    fitting = whole or [other for other, paths in zip(candidates, flawed, strict=True) if path not in paths]
    return fitting[0] if len(fitting) == 1 else None


def _alternatives(value: Raw) -> Iterator[tuple[Raw, str]]:
    """Yield other interpretations of a value: the JSON in its text, or a list of this one value."""
    decoded = _decode_text(value)
    if decoded is not None:
        yield decoded, _AS_JSON
        if memoryview(decoded)[0] in (_BRACE, _BRACKET):
            return  # a list in a string never means a list of one string
    if memoryview(value)[0] != _BRACKET and not _is_null(value):
        yield _wrap_in_list(value), _IN_A_LIST
        if decoded is not None:
            yield _wrap_in_list(decoded), f"{_AS_JSON}, {_IN_A_LIST}"


def _decode_text(value: Raw) -> Raw | None:
    """Return the JSON in a string, unless it is a string again."""
    text = (wire.text(value) or "").strip()
    text = {"True": "true", "False": "false"}.get(text, text)
    if not text or text[0] == '"':
        return None
    try:
        values = wire.elements(f"[{text}]".encode())
    except wire.Malformed:
        return None
    return values[0] if len(values) == 1 else None


def _is_null(value: Raw) -> bool:
    return len(value) == 4 and bytes(value) == b"null"


def _wrap_in_list(value: Raw) -> Raw:
    return Raw(b"[" + bytes(value) + b"]")


def _value_at(data: Raw, path: Path) -> Raw | None:
    for step in path:
        try:
            data = wire.elements(data)[step] if isinstance(step, int) else wire.members(data)[step]
        except (wire.Malformed, LookupError):
            return None
    return data


def _replace_at(data: Raw, path: Path, value: Raw) -> Raw:
    """Return the JSON with a new value at a path; all other bytes stay the same."""
    if not path:
        return value
    step, *deeper = path
    if isinstance(step, int):
        items = wire.elements(data)
        items[step] = _replace_at(items[step], tuple(deeper), value)
        return Raw(wire.encode(items))
    members = wire.members(data)
    return _to_object({**members, step: _replace_at(members[step], tuple(deeper), value)})


# --- messages ----------------------------------------------------------------------------------------


def _suggest_names(schema: InputSchema, args: Raw, flaws: Sequence[Flaw]) -> Iterator[str]:
    """Yield a suggestion for each name that no parameter has."""
    from difflib import get_close_matches  # only after a misspelled name

    parsed = wire.members(args)
    reported = {name for flaw in flaws for name in flaw.unknown}
    unused = [name for name in schema.parameters if name not in parsed]
    for name in [name for name in parsed if name not in schema.parameters][:_MOST_SHOWN]:
        near = get_close_matches(name[:100].casefold(), [each.casefold() for each in unused], n=3, cutoff=0.6)
        close = [each for folded in near for each in unused if each.casefold() == folded]
        guess = "did you mean " + " or ".join(f"`{each}`" for each in close) + "?" if close else ""
        if guess or not (name in reported or schema.allows_parameter(name)):
            problem = f"`{name[:100]}` is not a declared parameter"
            yield f"{problem}; {guess}" if guess else problem


def _refusal(tool: str, description: str) -> InvalidArguments:
    return InvalidArguments(f"{tool} was not called, because its arguments do not fit:\n{description}")


def _describe(schema: InputSchema, problems: Iterable[str]) -> str:
    text = wire.compact(schema.raw).decode()
    if len(text) > _LONGEST_SCHEMA_SHOWN:
        text = f"{text[:_LONGEST_SCHEMA_SHOWN]}… (of {len(text)} characters)"
    return "\n".join([*(f"- {each}" for each in problems), f"its input schema: {text}"])
