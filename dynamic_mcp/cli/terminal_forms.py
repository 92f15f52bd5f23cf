"""Shows forms of proxies and servers to the user at the terminal, one line for each field.

Foreign text is shown behind a bar and without control characters, so it cannot imitate our messages. Keys typed
before the question is shown are discarded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from dynamic_mcp.cli import keys
from dynamic_mcp.cli.output import Output
from dynamic_mcp.features.table import FEATURES
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.elicitation import NO_PERSON_WITHIN_S
from dynamic_mcp.system.clock import Clock, LoopClock
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.text import one_line
from dynamic_mcp.tools.schema import InputSchema

_LOOK_EVERY_S = 0.2
_MOST_LINES = 200
_LONGEST_LABEL = 200
_YES, _NO = ("y", "yes"), ("n", "no")


class TerminalForms:
    """Shows one form at a time on the terminal."""

    def __init__(
        self,
        out: Output,
        *,
        read_line: Callable[[float], str | None] = keys.read_line,
        discard_typed: Callable[[], None] = keys.discard_typed,
        clock: Clock | None = None,
    ) -> None:
        self._out = out
        self._read_line = read_line
        self._discard_typed = discard_typed
        self._clock = clock or LoopClock()
        self._turn = asyncio.Lock()

    async def ask(self, params: Raw) -> Mapping[str, object]:
        """Return the result of `elicitation/create`. Raises Malformed for an invalid form."""
        form = _Form.read(params)
        async with self._turn:
            with self._out.interlude():
                self._quote(form.message)
                await self._clock.sleep(NO_PERSON_WITHIN_S)  # the proxy accepts no earlier answer
                self._discard_typed()
                try:
                    return await self._fill(form)
                except EOFError:
                    self._out.say("")
                    return {"action": "cancel"}

    def _quote(self, message: str) -> None:
        lines = message.split("\n")
        more = [f"… {len(lines) - _MOST_LINES} more lines"] if len(lines) > _MOST_LINES else []
        for line in [*lines[:_MOST_LINES], *more]:
            self._out.quote(line)

    async def _fill(self, form: _Form) -> Mapping[str, object]:
        if not form.fields:
            is_accepted = await self._read("y or n", _read_yes)
            return {"action": "accept", "content": {}} if is_accepted else {"action": "decline"}
        content: dict[str, object] = {}
        for field in form.fields:
            self._quote(field.question)
            value = await self._read(field.expected, field.parse)
            if value is not None:
                content[field.name] = value
        return {"action": "accept", "content": content}

    async def _read(self, expected: str, parse: Callable[[str], object]) -> object:
        """Ask until the answer is valid. Raises EOFError at the end of input."""
        while True:
            self._out.prompt(f"your answer ({expected}; Ctrl-D for none): ")
            try:
                return parse((await self._next_line()).strip())
            except ValueError as exc:
                self._out.say(str(exc))

    async def _next_line(self) -> str:
        while True:
            line = await asyncio.to_thread(self._read_line, _LOOK_EVERY_S)
            if line is not None:
                return line


class _Choice(Struct, frozen=True):
    value: str
    title: str = ""


class _Property(Struct, frozen=True, rename="camel"):
    type: str = "string"
    title: str = ""
    description: str = ""
    default: object = None
    enum: list[str] = []
    enum_names: list[str] = []
    one_of: list[dict[str, object]] = []
    any_of: list[dict[str, object]] = []
    items: dict[str, object] = {}


class _Field(Struct, frozen=True):
    """One field of a form: its question and the parser of its answer. `choices` are keyed by the typed text."""

    name: str
    schema: Raw
    kind: _Property
    choices: Mapping[str, _Choice]
    is_required: bool

    @classmethod
    def of(cls, name: str, schema: Raw, *, is_required: bool) -> _Field:
        kind = msgspec.convert(_object(schema), _Property, strict=False)
        return cls(name, schema, kind, _keyed(_choices(kind)), is_required)

    @property
    def question(self) -> str:
        kind = self.kind
        label = one_line(kind.title or self.name, _LONGEST_LABEL)
        about = f" ({one_line(kind.description, _LONGEST_LABEL)})" if kind.description else ""
        titles = {key: one_line(each.title or each.value, _LONGEST_LABEL) for key, each in self.choices.items()}
        choices = ", ".join(f"{key} = {title}" for key, title in titles.items())
        default = "" if kind.default is None else f" (Enter: {one_line(str(kind.default), _LONGEST_LABEL)})"
        return f"{label}{about}{choices and ': '}{choices}{default}"

    @property
    def expected(self) -> str:
        words = ", ".join(self.choices) if len(self.choices) != 2 else " or ".join(self.choices)
        match self.kind.type:
            case "boolean":
                return "y or n"
            case "array":
                return f"some of {words}, with commas"
            case "integer" | "number":
                return "a number"
            case _:
                return words or "text"

    def parse(self, line: str) -> object:
        """Return the value of a typed line; None if it is empty. Raises ValueError with a message for the user."""
        if not line:
            if self.kind.default is None and self.is_required:
                raise ValueError("this needs an answer")
            return self.kind.default
        value = self._read(line)
        whole = Raw(wire.encode({"type": "object", "properties": {self.name: self.schema}}))
        flaws = InputSchema(whole).describe_flaws(Raw(wire.encode({self.name: value})))
        if flaws:
            raise ValueError(one_line(flaws, _LONGEST_LABEL))
        return value

    def _read(self, line: str) -> object:
        match self.kind.type:
            case "boolean":
                return _read_yes(line)
            case "array":
                return [self._choose(word.strip()) for word in line.split(",")]
            case "integer" | "number":
                return _read_number(line, is_whole=self.kind.type == "integer")
            case _:
                return self._choose(line) if self.choices else line

    def _choose(self, word: str) -> str:
        found = self.choices.get(word.lower()) or next((c for c in self.choices.values() if c.value == word), None)
        if found is None:
            raise ValueError(f"type {' or '.join(self.choices)}")
        return found.value


class _Schema(Struct, frozen=True):
    properties: dict[str, Raw] = {}
    required: list[str] = []


class _Params(Struct, frozen=True, rename="camel"):
    message: str
    requested_schema: _Schema = _Schema()
    mode: Literal["form"] = "form"


class _Form(Struct, frozen=True):
    message: str
    fields: Sequence[_Field]

    @classmethod
    def read(cls, params: Raw) -> _Form:
        """Return the form of a request. Raises Malformed."""
        try:
            read = decode_as(params, _Params)
            schema = read.requested_schema
            fields = [_Field.of(*each, is_required=each[0] in schema.required) for each in schema.properties.items()]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise wire.Malformed(str(exc)) from exc
        return cls(read.message, fields)


def _object(data: Raw) -> Mapping[str, object]:
    found = msgspec.json.decode(data)
    return found if isinstance(found, dict) else {}


def _choices(kind: _Property) -> list[_Choice]:
    if kind.type == "array":
        kind = msgspec.convert(kind.items, _Property, strict=False)
    titled = kind.one_of or kind.any_of
    if titled:
        return [_Choice(str(each.get("const", "")), str(each.get("title", ""))) for each in titled]
    names = kind.enum_names if len(kind.enum_names) == len(kind.enum) else kind.enum
    return [_Choice(*pair) for pair in zip(kind.enum, names, strict=True)]


def _keyed(choices: Sequence[_Choice]) -> Mapping[str, _Choice]:
    for typed in (feature.choice_keys for feature in FEATURES):
        if choices and all(each.value in typed for each in choices):
            return {typed[each.value]: each for each in choices}
    return {str(number): each for number, each in enumerate(choices, 1)}


def _read_yes(line: str) -> bool:
    word = line.lower()
    if word not in (*_YES, *_NO):
        raise ValueError("type y or n")
    return word in _YES


def _read_number(line: str, *, is_whole: bool) -> int | float:
    try:
        return int(line) if is_whole else float(line)
    except ValueError:
        raise ValueError("this is not a whole number" if is_whole else "this is not a number") from None
