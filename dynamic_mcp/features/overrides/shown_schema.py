"""An input schema as it is shown: for the arguments that a model gives, of which others are made for the server.

What fits the shown schema is what fits the server's once names are changed back and values are put in. Each part of a
schema that is about the whole arguments is rewritten by what is known of them: which arguments are always there, with
which value, and which never are. Where that is not possible, there is no shown schema, rather than a wrong one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Raw, Struct

from dynamic_mcp.features.overrides.schema_document import MAX_DEPTH, CannotShow, SchemaDocument, split
from dynamic_mcp.mcp import wire
from dynamic_mcp.tools.plain_schema import ANNOTATIONS

# A schema, or what it comes down to.
Schema = bool | dict[str, object]

_BRANCHES = ("allOf", "anyOf", "oneOf")
_OTHER_PARTS = ("not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "$ref")
_REWRITTEN = frozenset(("required", "properties", *_BRANCHES, *_OTHER_PARTS))
# They show whole arguments, with the server's names.
_SAMPLES = frozenset(("default", "examples"))


class Argument(Struct, frozen=True):
    """What becomes of an argument: `name` is the server's, `shown` that of the model.

    `value` is what is sent if a model gives none, or in any case of one that is not `is_given`; with neither, the
    argument is never there.
    """

    name: str
    shown: str
    description: str | None = None
    value: Raw | None = None
    is_given: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether only its description is another one."""
        return self.is_given and self.value is None and self.shown == self.name


def show_schema(document: SchemaDocument, arguments: Sequence[Argument]) -> Raw:
    """Return an input schema for what a model gives. Raises CannotShow."""
    if not arguments:
        return document.raw
    changes = [each for each in arguments if not each.is_plain]
    document.check(
        has_values=any(each.value is not None for each in changes),
        has_changes=bool(changes),
        renamed=[name for each in changes if each.shown != each.name for name in (each.name, each.shown)],
    )
    shown = _Writer(document, arguments).write()
    return document.finish(shown)


class _Writer:
    """Rewrites the parts of one schema."""

    def __init__(self, document: SchemaDocument, arguments: Sequence[Argument]) -> None:
        self._document = document
        self._arguments = {each.name: each for each in arguments}
        self._always = {each.name: each.value for each in arguments if each.value is not None}
        self._never = {each.name for each in arguments if not each.is_given and each.value is None}
        self._unshown = {each.name for each in arguments if not each.is_given}
        self._drops_samples = not all(each.is_plain for each in arguments)
        self._fault = ""
        # arguments whose value fits some calls only, so that it is no default
        self._needed: set[str] = set()

    def write(self) -> dict[str, object]:
        shown = self._rewrite(self._document.raw, ())
        if self._needed:
            shown = self._rewrite(self._document.raw, ())
        if shown is False:
            raise CannotShow(self._fault or "no call of it would fit its schema")
        return shown if isinstance(shown, dict) else {}

    # --- one part ----------------------------------------------------------------------------------------

    def _rewrite(self, schema: Raw, refs: tuple[str, ...]) -> Schema:
        """Return what a part about the whole arguments is for those that a model gives."""
        if bytes(schema) in (b"true", b"false"):
            return bytes(schema) == b"true"
        members = split(schema)
        if "$ref" in members and self._document.ignores_siblings:
            return self._follow(members["$ref"], refs)
        required, rest, more = self._read_dependencies(members, refs)
        required = [*_names(members.get("required")), *required]
        needed = self._check_values(members)
        if needed is None or not self._never.isdisjoint(required):
            self._fault = self._fault or f"`{_first(required, self._never)}` is required, and has no value"
            return False
        out: dict[str, object] = {
            key: value
            for key, value in members.items()
            if key not in _REWRITTEN and not (self._drops_samples and key in _SAMPLES)
        }
        if "properties" in members:
            out["properties"] = self._show_properties(members["properties"])
        wanted = [name for name in dict.fromkeys(required) if name not in self._always]
        wanted = list(dict.fromkeys([*wanted, *needed]))
        if wanted:
            out["required"] = [self._shown(name) for name in wanted]
        out |= rest
        return self._add_parts(out, members, more, refs)

    def _add_parts(
        self, out: dict[str, object], members: Mapping[str, Raw], more: list[Schema], refs: tuple[str, ...]
    ) -> Schema:
        more += [self._rewrite(each, refs) for each in _elements(members.get("allOf"))]
        if "$ref" in members:
            more.append(self._follow(members["$ref"], refs))
        if "not" in members:
            excluded = self._rewrite(members["not"], refs)
            more.append(_negate(excluded))
        if "if" in members and self._document.has_conditions:
            more.append(self._choose(members, refs))
        for key in ("anyOf", "oneOf"):
            if key in members:
                more.append(_alternatives(key, [self._rewrite(each, refs) for each in _elements(members[key])]))
        return _join(out, more)

    def _follow(self, reference: Raw, refs: tuple[str, ...]) -> Schema:
        name = wire.text(reference) or ""
        target = self._document.resolve(name)
        if target is None or name in refs or len(refs) > MAX_DEPTH:
            raise CannotShow(f"its schema refers to `{name[:100]}`, which cannot be followed")
        return self._rewrite(target, (*refs, name))

    def _choose(self, members: Mapping[str, Raw], refs: tuple[str, ...]) -> Schema:
        condition = self._rewrite(members["if"], refs)
        chosen = {key: self._rewrite(members[key], refs) for key in ("then", "else") if key in members}
        if _is_true(condition):
            return chosen.get("then", True)
        if condition is False:
            return chosen.get("else", True)
        return {"if": condition, **chosen}

    # --- arguments ---------------------------------------------------------------------------------------

    def _check_values(self, members: Mapping[str, Raw]) -> list[str] | None:
        """Return the arguments that a model must give here, as their value does not fit; None if nothing fits."""
        needed = []
        for name, value in self._always.items():
            if all(self._document.accepts(part, value) for part in self._document.parts_for(members, name)):
                continue
            if name in self._unshown:
                self._fault = f"`{name}` does not take the value that the config gives"
                return None
            needed.append(name)
        self._needed.update(needed)
        return needed

    def _show_properties(self, properties: Raw) -> dict[str, object]:
        return {
            self._shown(name): self._describe(name, schema)
            for name, schema in split(properties).items()
            if name not in self._unshown
        }

    def _describe(self, name: str, schema: Raw) -> object:
        argument = self._arguments.get(name)
        if argument is None or (argument.shown == name and argument.description is None and argument.value is None):
            return schema
        if bytes(schema) == b"false":
            return schema
        members: dict[str, object] = {} if bytes(schema) == b"true" else dict(split(schema))
        if argument.shown != name and _repeats(name, members.get("title")):
            del members["title"]
        if argument.description is not None:
            members["description"] = argument.description
        if name in self._needed:
            members.pop("default", None)
        elif argument.value is not None and self._document.accepts(schema, argument.value):
            members["default"] = argument.value
        return members

    def _shown(self, name: str) -> str:
        argument = self._arguments.get(name)
        return name if argument is None else argument.shown

    # --- dependencies ------------------------------------------------------------------------------------

    def _read_dependencies(
        self, members: Mapping[str, Raw], refs: tuple[str, ...]
    ) -> tuple[list[str], dict[str, object], list[Schema]]:
        """Return what is required because of what is always there, the keywords that stay, and other conditions."""
        required: list[str] = []
        rest: dict[str, object] = {}
        more: list[Schema] = []
        for keyword in self._document.dependency_keywords:
            kept: dict[str, object] = {}
            for name, wanted in split(members.get(keyword, wire.EMPTY_OBJECT)).items():
                if name in self._never:
                    continue
                if bytes(wanted).lstrip()[:1] == b"[":
                    self._depend_on_names(name, _names(wanted), required, kept, more)
                elif name in self._always:
                    more.append(self._rewrite(wanted, refs))
                else:
                    kept[self._shown(name)] = self._rewrite(wanted, refs)
            if kept:
                rest[keyword] = kept
        return required, rest, more

    def _depend_on_names(
        self, name: str, wanted: list[str], required: list[str], kept: dict[str, object], more: list[Schema]
    ) -> None:
        if name in self._always:
            required += wanted
        elif not self._never.isdisjoint(wanted):
            more.append({"not": {"required": [self._shown(name)]}})
        elif others := [self._shown(each) for each in wanted if each not in self._always]:
            kept[self._shown(name)] = others


# --- logic -----------------------------------------------------------------------------------------------


def _is_true(schema: Schema) -> bool:
    return schema is True or (isinstance(schema, dict) and all(_says_nothing(*each) for each in schema.items()))


def _says_nothing(key: str, value: object) -> bool:
    """Tell whether a keyword excludes no object."""
    if key == "type":
        return wire.encode(value) == b'"object"'
    return key in ANNOTATIONS or (key == "properties" and not value)


def _negate(schema: Schema) -> Schema:
    return False if _is_true(schema) else schema is False or {"not": schema}


def _alternatives(key: str, branches: list[Schema]) -> Schema:
    possible = [each for each in branches if each is not False]
    if not possible:
        return False
    if key == "anyOf" and any(map(_is_true, possible)):
        return True
    if len(possible) == 1 and len(branches) > 1:
        return possible[0]
    return {key: possible}


def _join(schema: dict[str, object], more: Sequence[Schema]) -> Schema:
    """Return what is all of these: keywords side by side where they cannot change each other, else `allOf`."""
    apart: list[Schema] = []
    for each in more:
        if each is False:
            return False
        if each is True or _is_true(each):
            continue
        assert isinstance(each, dict)
        if each.keys() == {"required"}:
            schema["required"] = list(dict.fromkeys([*_list(schema.get("required")), *_list(each["required"])]))
        elif _can_merge(schema, each):
            schema.update(each)
        else:
            apart.append(each)
    if apart:
        schema["allOf"] = apart
    return schema


# Keywords that stand for themselves, whatever stands beside them.
_INDEPENDENT = frozenset(("anyOf", "oneOf", "not", "required"))
_CONDITION = frozenset(("if", "then", "else"))


def _can_merge(schema: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Tell whether two schemas mean the same side by side as in an `allOf`."""
    shared = schema.keys() & other.keys()
    if any(key != "type" or wire.encode(schema[key]) != wire.encode(other[key]) for key in shared):
        return False
    return other.keys() <= _INDEPENDENT or other.keys() <= _CONDITION or _is_bare(schema)


def _is_bare(schema: Mapping[str, object]) -> bool:
    return all(key in ANNOTATIONS or key in ("type", "$defs", "definitions") for key in schema)


# --- reading ---------------------------------------------------------------------------------------------


def _names(names: Raw | None) -> list[str]:
    found = [wire.text(each) for each in _elements(names)]
    return [each for each in found if each is not None]


def _elements(elements: Raw | None) -> list[Raw]:
    if elements is None:
        return []
    try:
        return wire.elements(elements)
    except wire.Malformed:
        raise CannotShow("its schema is malformed") from None


def _repeats(name: str, title: object) -> bool:
    """Tell whether a title only has the words of a name, as libraries make it."""
    text = wire.text(title) if isinstance(title, Raw) else None
    return text is not None and text.replace(" ", "_").casefold() == name.casefold()


def _list(names: object) -> list[object]:
    return names if isinstance(names, list) else []


def _first(names: Sequence[str], wanted: set[str]) -> str:
    return next((name for name in names if name in wanted), "")
