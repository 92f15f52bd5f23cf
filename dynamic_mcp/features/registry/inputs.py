"""What a document says of a value that a person gives: an input, alone or as an argument, a variable or a header."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from dynamic_mcp.features.registry.reading import FlawedDocument, Reader

Format = Literal["string", "number", "boolean", "filepath"]

_IN_BRACES = re.compile(r"\{([^{}]+)\}")
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class Input(Struct, frozen=True, kw_only=True):
    """A value: fixed with `value`, whose `{names}` stand for `variables`, or else given by a person."""

    description: str = ""
    is_required: bool = False
    is_secret: bool = False
    format: Format = "string"
    value: str | None = None
    default: str | None = None
    placeholder: str = ""
    choices: tuple[str, ...] = ()
    variables: Mapping[str, Input] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The variables that its fixed value refers to, in their order."""
        return tuple(dict.fromkeys(name for name in _IN_BRACES.findall(self.value or "") if name in self.variables))

    @property
    def unknown_names(self) -> tuple[str, ...]:
        """The names in braces that no variable has, and that stay as they are."""
        return tuple(name for name in _IN_BRACES.findall(self.value or "") if name not in self.variables)

    def flaw_of(self, text: str) -> str:
        """Return why a text is no value for this input, or an empty text."""
        if self.choices and text not in self.choices:
            return f"must be one of {', '.join(f'`{each}`' for each in self.choices[:20])}"
        if self.format == "number" and not _NUMBER.fullmatch(text):
            return "must be a number"
        if self.format == "boolean" and text not in ("true", "false"):
            return "must be `true` or `false`"
        if not text.isprintable():
            return "has control characters"
        return ""

    @property
    def valid_default(self) -> str | None:
        """The default, unless it is empty, or no value for this input."""
        return None if not self.default or self.flaw_of(self.default) else self.default


class Keyed(Struct, frozen=True):
    """An environment variable or a header."""

    name: str
    input: Input


class Argument(Struct, frozen=True, kw_only=True):
    """An argument: a named one has a `name` with its dashes, a positional one at most a `hint`."""

    input: Input
    name: str = ""
    hint: str = ""
    is_repeated: bool = False


def is_reference(text: str) -> bool:
    """Tell whether an answer is a variable of the config, which is filled in when the server starts."""
    return _REFERENCE.fullmatch(text) is not None


def fill_in(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the values of the `{names}` in it; unknown names stay as they are."""
    return _IN_BRACES.sub(lambda match: values.get(match[1], match[0]), text)


def read_input(reader: Reader) -> Input:
    """Return an input with its variables. Raises FlawedDocument."""
    return replace(read_plain_input(reader), variables=reader.by_name("variables", read_plain_input))


def read_plain_input(reader: Reader) -> Input:
    """Return an input that has no variables of its own, as those are. Raises FlawedDocument."""
    return Input(
        description=reader.remark("description"),
        is_required=reader.flag("isRequired"),
        is_secret=reader.flag("isSecret"),
        format=_read_format(reader),
        value=reader.text("value"),
        default=reader.text("default"),
        placeholder=reader.remark("placeholder"),
        # only a person may refer to a variable
        choices=tuple(text for text in reader.texts("choices") if not is_reference(text)),
    )


def read_keyed(reader: Reader) -> Keyed:
    """Return an environment variable or a header. Raises FlawedDocument."""
    return Keyed(reader.required("name"), read_input(reader))


def read_argument(reader: Reader) -> Argument:
    """Return an argument. Raises FlawedDocument."""
    given, repeated = read_input(reader), reader.flag("isRepeated")
    kind = reader.text("type") or ("named" if reader.text("name") else "positional")
    match kind:
        case "named":
            return Argument(input=given, name=reader.required("name"), is_repeated=repeated)
        case "positional":
            return Argument(input=given, hint=reader.text("valueHint") or "", is_repeated=repeated)
    raise FlawedDocument("an argument is neither named nor positional")


def _read_format(reader: Reader) -> Format:
    match reader.text("format"):
        case "number":
            return "number"
        case "boolean":
            return "boolean"
        case "filepath":
            return "filepath"
    return "string"
