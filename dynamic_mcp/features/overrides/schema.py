"""Rewrites input schemas for the arguments of a model, from which the server's arguments are made.

Arguments valid in the shown schema are valid in the server's, once names are mapped back and values filled in. A
schema that describes more than each argument's name, type and whether it is required is not rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Raw, Struct

from dynamic_mcp.mcp import wire
from dynamic_mcp.tools.schema import MAX_SCHEMA_BYTES, InputSchema

_DEFINITIONS = ("$defs", "definitions")
_TO_DEFINITIONS = ("#/$defs/", "#/definitions/")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# Keywords about the arguments as a whole, or about single ones outside `properties`.
_UNSUPPORTED = (
    *("allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
    *("dependentRequired", "dependentSchemas", "dependencies"),
    *("patternProperties", "propertyNames", "minProperties", "maxProperties", "unevaluatedProperties"),
    *("const", "enum", *_REFERENCES),
)
# These contain whole arguments, with the server's names.
_SAMPLES = frozenset(("default", "examples"))


class CannotShow(ValueError):
    """A tool that cannot be shown as configured; the text says why."""


class ShownArgument(Struct, frozen=True):
    """The mapping of one argument: `name` is the server's, `shown` the model's.

    `value` is sent if the model gives none, and always if not `is_given`; without a value, such an argument is never
    sent.
    """

    name: str
    shown: str
    description: str | None = None
    value: Raw | None = None
    is_given: bool = True

    @property
    def is_plain(self) -> bool:
        """True if only its description changes."""
        return self.is_given and self.value is None and self.shown == self.name


def split(schema: Raw) -> dict[str, Raw]:
    """Return the members of an object in a schema. Raises CannotShow."""
    try:
        return wire.members(schema)
    except wire.Malformed:
        raise CannotShow("its schema is malformed") from None


class ToolSchema:
    """The input schema of a tool. Raises CannotShow if it is malformed or too long."""

    def __init__(self, raw: Raw) -> None:
        if len(raw) > MAX_SCHEMA_BYTES:
            raise CannotShow("its schema is too long")
        self._raw = raw if bytes(raw).lstrip()[:1] == b"{" else wire.EMPTY_OBJECT
        self._root = split(self._raw)
        self._properties = split(self._root.get("properties", wire.EMPTY_OBJECT))

    @cached_property
    def declared(self) -> frozenset[str]:
        """The names of all arguments that the schema describes, including those in conditions."""
        names = {*self._properties}
        if self._unsupported:
            for each in self._objects:
                properties = each.get("properties")
                names |= properties.keys() if isinstance(properties, dict) else set()
        return frozenset(names)

    def accepts(self, name: str, value: Raw) -> bool:
        """Return whether a value is valid for an argument; also true if that cannot be decided."""
        part = self._properties.get(name, self._root.get("additionalProperties", Raw(b"true")))
        if bytes(part) in (b"true", b"false"):
            return bytes(part) == b"true"
        schema: dict[str, object] = {"type": "object", "properties": {"value": part}}
        schema |= {key: self._root[key] for key in ("$schema", *_DEFINITIONS) if key in self._root}
        return InputSchema(Raw(wire.encode(schema))).accepts(Raw(wire.encode({"value": value})))

    def show(self, arguments: Sequence[ShownArgument]) -> Raw:
        """Return the schema for a model. Raises CannotShow."""
        changes = not all(each.is_plain for each in arguments)
        if changes or any(each.name not in self._properties for each in arguments):
            self._check()
        shown: dict[str, object] = {
            key: value for key, value in self._root.items() if not (changes and key in _SAMPLES)
        }
        required = self._find_required(arguments)
        by_name = {each.name: each for each in arguments}
        shown.pop("required", None)
        if required:
            shown["required"] = [by_name[name].shown if name in by_name else name for name in required]
        if "properties" in self._root:
            shown["properties"] = dict(self._show_properties(by_name))
        return Raw(wire.encode(shown))

    def _find_required(self, arguments: Sequence[ShownArgument]) -> list[str]:
        """Return the arguments that a model must give, including those whose default the server would reject."""
        required = _names(self._root.get("required"))
        for each in arguments:
            if each.value is not None:
                if self.accepts(each.name, each.value):
                    required = [name for name in required if name != each.name]
                elif each.is_given:
                    required = list(dict.fromkeys([*required, each.name]))
                else:
                    raise CannotShow(f"`{each.name}` does not take the value that the config gives")
            elif not each.is_given and each.name in required:
                raise CannotShow(f"`{each.name}` is required, and has no value")
        return required

    def _show_properties(self, arguments: Mapping[str, ShownArgument]) -> Iterator[tuple[str, object]]:
        for name, schema in self._properties.items():
            argument = arguments.get(name)
            if argument is None:
                yield name, schema
            elif argument.is_given:
                yield argument.shown, self._describe(argument, schema)

    def _describe(self, argument: ShownArgument, schema: Raw) -> object:
        if bytes(schema) == b"false":
            return schema
        members: dict[str, object] = {} if bytes(schema) == b"true" else dict(split(schema))
        if argument.shown != argument.name and _repeats(argument.name, members.get("title")):
            del members["title"]
        if argument.description is not None:
            members["description"] = argument.description
        if argument.value is not None:
            members.pop("default", None)
            if self.accepts(argument.name, argument.value):
                members["default"] = argument.value
        return members

    def _check(self) -> None:
        """Check that only `properties` and `required` are about single arguments."""
        if self._unsupported:
            raise CannotShow(f"its schema has `{self._unsupported}`")
        for each in self._objects:
            for reference in map(each.get, _REFERENCES):
                if isinstance(reference, str) and not reference.startswith(_TO_DEFINITIONS):
                    raise CannotShow(f"its schema refers to `{reference[:100]}`")

    @property
    def _unsupported(self) -> str:
        """The first keyword that prevents rewriting; empty if there is none."""
        return next((keyword for keyword in _UNSUPPORTED if keyword in self._root), "")

    @cached_property
    def _objects(self) -> list[dict[str, object]]:
        value = wire.value(self._raw)
        if value is None:
            raise CannotShow("its schema is nested too deeply")
        found: list[dict[str, object]] = []
        left: list[object] = [value]
        while left:
            match left.pop():
                case dict() as members:
                    found.append(members)
                    left += members.values()
                case list() as elements:
                    left += elements
        return found


def _names(required: Raw | None) -> list[str]:
    try:
        found = [] if required is None else [wire.text(each) for each in wire.elements(required)]
    except wire.Malformed:
        raise CannotShow("its schema is malformed") from None
    return [each for each in found if each is not None]


def _repeats(name: str, title: object) -> bool:
    """Return whether a title only repeats the words of a name, as libraries generate it."""
    text = wire.text(title) if isinstance(title, Raw) else None
    return text is not None and text.replace(" ", "_").casefold() == name.casefold()
