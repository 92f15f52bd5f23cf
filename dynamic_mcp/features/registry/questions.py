"""The values that a package or a remote needs: its parts, the questions about them, and their valid answers.

A question's key is what `--set KEY=VALUE` names: the name of a variable or a header, a flag without its dashes, or
the hint of a positional argument. Where two would be the same, the later one names its place too (`mount.path`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

from msgspec import Struct

from dynamic_mcp.features.registry.document import Package, PackageArgument, RemoteServer, ValueInput, is_reference

# The answers by the key of the question; repeatable parts have several values.
ServerAnswers = Mapping[str, tuple[str, ...]]

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=\{([^{}]+)\}")


class ValuePlace(Enum):
    """The place of a value."""

    RUNTIME = "runtime argument"
    ARGUMENT = "argument"
    VARIABLE = "environment variable"
    HEADER = "header"
    URL = "URL"


class ValuePart(Struct, frozen=True, kw_only=True):
    """One value of a server: its place, and the keys of the questions about it.

    `keys` has the key for each variable of a fixed value, or for `""`, the value itself. `name` is that of the
    variable, the header or the flag; a positional argument has none.
    """

    place: ValuePlace
    name: str
    input: ValueInput
    keys: Mapping[str, str]
    is_repeated: bool = False


class ServerQuestion(Struct, frozen=True, kw_only=True):
    """One value that the user gives. `variable` is the environment variable that consists of this value alone."""

    key: str
    input: ValueInput
    place: ValuePlace
    is_required: bool
    is_secret: bool
    is_repeated: bool
    is_bare: bool
    variable: str = ""

    def flaw_of(self, text: str) -> str:
        """Return why an answer is invalid, or an empty text. `${NAME}` is always valid."""
        if is_reference(text):
            return ""
        if self.is_bare and text.startswith("-") and self.input.format != "number":
            return "must not begin with `-`, since the program would take it for a flag"
        if self.is_required and not text:
            return "must not be empty"
        return self.input.flaw_of(text)


def parts_of(option: Package | RemoteServer) -> tuple[ValuePart, ...]:
    """Return the parts of a package or a remote, in the order of its command line."""
    taken: set[str] = set()
    return tuple(
        ValuePart(
            place=place,
            name=name,
            input=source,
            keys=_keys_of(source, label, taken),
            is_repeated=is_repeated,
        )
        for place, name, label, source, is_repeated in _places(option)
    )


def questions_of(parts: Iterable[ValuePart]) -> Iterator[ServerQuestion]:
    """Yield the questions about these parts."""
    for part in parts:
        for name, key in part.keys.items():
            source = part.input.variables[name] if name else part.input
            yield ServerQuestion(
                key=key,
                input=source,
                place=part.place,
                is_required=source.is_required or part.input.is_required,
                is_secret=source.is_secret or part.input.is_secret,
                is_repeated=part.is_repeated,
                is_bare=_is_bare(part, name),
                variable=_variable_of(part, name),
            )


def is_unanswered(question: ServerQuestion, answers: ServerAnswers) -> bool:
    """Return whether a required answer to this question is missing."""
    return question.is_required and not answers.get(question.key) and not question.input.valid_default


def _places(option: Package | RemoteServer) -> Iterator[tuple[ValuePlace, str, str, ValueInput, bool]]:
    if isinstance(option, RemoteServer):
        # a URL with a missing part is invalid
        yield (
            ValuePlace.URL,
            "",
            "url",
            ValueInput(value=option.url, variables=option.variables, is_required=True),
            False,
        )
        for header in option.headers:
            yield ValuePlace.HEADER, header.name, header.name, header, False
        return
    for place, arguments in ((ValuePlace.RUNTIME, option.runtime_arguments), (ValuePlace.ARGUMENT, option.arguments)):
        for number, each in enumerate(arguments, 1):
            yield place, each.name, _label(each, number), each, each.is_repeated
    for variable in option.variables:
        yield ValuePlace.VARIABLE, variable.name, variable.name, variable, False


def _label(argument: PackageArgument, number: int) -> str:
    return argument.name.lstrip("-") or argument.name or argument.hint or f"arg{number}"


def _keys_of(source: ValueInput, label: str, taken: set[str]) -> dict[str, str]:
    if source.value is None:
        return {"": _claim([label], taken)}
    return {name: _claim([name, f"{label}.{name}"], taken) for name in source.names}


def _claim(candidates: list[str], taken: set[str]) -> str:
    last = candidates[-1]
    numbered = (f"{last}#{number}" for number in range(2, len(taken) + 3))
    key = next(each for each in (*candidates, *numbered) if each not in taken)
    taken.add(key)
    return key


def _variable_of(part: ValuePart, name: str) -> str:
    if part.place is ValuePlace.VARIABLE and not name:
        return part.name
    # the way images get their variables: `-e NAME={value}`
    assignment = _ASSIGNMENT.fullmatch(part.input.value or "") if part.place is ValuePlace.RUNTIME else None
    return assignment[1] if assignment is not None and assignment[2] == name else ""


def _is_bare(part: ValuePart, name: str) -> bool:
    """Return whether an answer begins a word of the command line."""
    if part.place not in (ValuePlace.RUNTIME, ValuePlace.ARGUMENT) or part.name.startswith("--"):
        return False
    begins = not name or (part.input.value or "").startswith(f"{{{name}}}")
    return begins and (not part.name or part.name.startswith("-"))
