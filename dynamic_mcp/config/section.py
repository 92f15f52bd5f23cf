"""The objects of the config file, and how they are read.

A section is one struct. The annotation of a field defines it completely: the type of the value that the program
uses, its written form if that differs (`Value`, `Switch`, `Shorthand`, `PresentFields`, `TaggedUnion`), its bounds,
its description. `read` makes the value from JSON; `model` makes pydantic models of the same structs, to find all
problems.

A field that is left out, or null, has its default. Keys that start with `x-` are the user's own and ignored, so a
field with such a name in the file is only set by the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from types import UnionType
from typing import Annotated, Any, ClassVar, TypeVar, Union, get_args, get_origin

from msgspec import Struct, convert
from msgspec.structs import FieldInfo, fields

from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.features.table import FEATURES, is_missing

S = TypeVar("S", bound="Section")
Reader = Callable[[object], Any]  # Any: each reads its own type


class Section(Struct, frozen=True):
    """An object of the file. A `__post_init__` checks its fields against each other and raises FlawError.

    What rules of features are at a `place`, `server` or `defaults`, is read into the member `rules`, by their keys.
    """

    place: ClassVar[str] = ""


class Private(Struct, frozen=True):
    """A struct that may hold secrets: its `repr` has only the fields that are `shown`."""

    shown: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        members = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.shown)
        return f"{type(self).__name__}({members})"


class Value:
    """The written form of a value. It stands in an annotation, beside the type of the value in use.

    `parse` returns the value to use, None if it is left out, or raises FlawError. Its argument is of the type
    `written`; `object` is any JSON. `expand` turns a shorter way to write the value into that type. `schema` is the
    whole JSON Schema if `written` is `object` or there is an `expand`, else an addition to that of the type.
    `type_name` is what the reference calls the written form; by default it names the type `written`.
    """

    def __init__(
        self,
        parse: Callable[[Any], Any],
        *,
        written: Any = object,  # Any: types are values here
        expand: Callable[[object], object] | None = None,
        schema: Mapping[str, Any] | None = None,
        type_name: str = "",
    ) -> None:
        self.parse = parse
        self.written = written
        self.expand = expand
        self.schema = schema or {}
        self.type_name = type_name

    def reader(self) -> Reader:
        """Return the function that reads the value. It raises ValueError."""
        return self.parse if self.written is object else partial(self._read, reader(self.written))

    def _read(self, read_written: Reader, value: object) -> Any:
        return self.parse(read_written(value if self.expand is None else self.expand(value)))


class Switch:
    """Marks a section that may also be `true`, for all defaults, or `false`."""

    @staticmethod
    def expand(value: object) -> object:
        """Return the section as an object; False if it is off. Raises FlawError."""
        if value is True:
            return {}
        if value is not False and isinstance(value, (str, int, float, list)):
            raise FlawError("must be true, false or an object")
        return value


class Shorthand:
    """Marks a section that may also be written as one of some words, each for an object with these members."""

    def __init__(self, words: Mapping[str, Mapping[str, object]]) -> None:
        self.words = words

    def expand(self, value: object) -> object:
        """Return the section as an object. Raises FlawError."""
        if isinstance(value, str) and value in self.words:
            return dict(self.words[value])
        if isinstance(value, (str, int, float, list)):
            raise FlawError(f"must be {', '.join(f'`{each}`' for each in self.words)} or an object")
        return value


class TaggedUnion:
    """Marks a union of sections; `tag_of` returns the tag of a written section, None if it is none of them.

    `key` is the field with the tag; `message` and `hint` describe the valid values.
    """

    def __init__(self, tag_of: Callable[[object], str | None], *, key: str, message: str, hint: str = "") -> None:
        self.tag_of = tag_of
        self.key = key
        self.message = message
        self.hint = hint


class PresentFields:
    """Marks a mapping of the fields of a section that are present in the file, by their names in the struct."""

    def __init__(self, section: type[Section]) -> None:
        self.section = section


class Everyday:
    """Marks a field that many configs have. The other fields are advanced.

    A field of an advanced object is advanced. Editors and the reference show the everyday fields first.
    """


class OfFeature:
    """Marks a field that only a program with this feature has."""

    def __init__(self, feature: str) -> None:
        self.feature = feature


class Deferred:
    """A type that is imported once a config has a value of it."""

    target: ClassVar[str] = ""

    @classmethod
    def load(cls) -> Any:
        module, _, name = cls.target.partition(":")
        return getattr(import_module(module), name)


def deferred(target: str) -> type[Deferred]:
    """Return a class that stands for the type `module:Name` in annotations."""
    return type(target.rpartition(":")[2], (Deferred,), {"target": target})


def read(section: type[S], written: object) -> S:
    """Return a section from JSON. Raises ValueError at the first problem; `find_problems` explains all problems."""
    members = _read_fields(section, written)
    try:
        return section(**members)
    except TypeError as exc:  # a required field is missing
        raise FlawError(str(exc)) from exc


def _read_fields(section: type[Struct], written: object) -> dict[str, Any]:
    """Return the values of the fields that are in the file."""
    if not isinstance(written, dict):
        raise FlawError("must be an object")
    allowed_keys, members = file_fields(section), {}
    for key, value in written.items():
        if key in allowed_keys:
            found = None if value is None else _field_reader(section, key)(value)
            if found is not None and key in section.__struct_encode_fields__:
                members[allowed_keys[key].name] = found
            elif found is not None:
                members["rules"] = {**members.get("rules", {}), key: found}
        elif not is_user_key(key) and key != section.__struct_config__.tag_field:
            raise FlawError(f"has an unknown field: `{key}`")
    return members


def without_user_keys(section: object) -> object:
    """Return a section without the user's own keys."""
    if not isinstance(section, dict):
        return section
    return {key: value for key, value in section.items() if not is_user_key(key)}


@cache
def file_fields(section: type[Struct]) -> dict[str, FieldInfo]:
    """Return the fields of a section that can stand in the file, by their names there.

    Its own come before those that it inherits; fields of features are last. A feature that is not installed has none.
    """
    kernel_fields = (
        each for each in fields(section) if not is_user_key(each.encode_name) and not _lacks_feature(each)
    )
    in_order = sorted(kernel_fields, key=partial(_depth, section))
    return {each.encode_name: each for each in (*in_order, *_list_rules(section))}


def _depth(section: type[Struct], info: FieldInfo) -> int:
    """Return how many of a section and its bases have a field: the further up it is declared, the more."""
    bases = (base for base in section.__mro__ if issubclass(base, Struct) and base is not Struct)
    return sum(info.name in base.__struct_fields__ for base in bases)


def is_everyday(info: FieldInfo) -> bool:
    """Return whether a field is an everyday one, if the objects around it are."""
    return any(isinstance(mark, Everyday) for mark in get_args(info.type))


def describe(info: FieldInfo) -> str:
    """Return the description of a field."""
    return next(mark for mark in get_args(info.type) if isinstance(mark, str))


def describe_tag(section: type[Section]) -> str:
    """Return the description of the field with the tag of a section: the tag, and what it stands for."""
    return f"`{section.__struct_config__.tag}`: {(section.__doc__ or '').splitlines()[0]}"


def value_at(section: Struct, key: str) -> object:
    """Return the value of a section at a key of the file."""
    info = file_fields(type(section))[key]
    if key in section.__struct_encode_fields__:
        return getattr(section, info.name)
    rules: Mapping[str, object] = section.rules  # type: ignore[attr-defined]  # it has a place for rules
    return rules.get(key)


def _lacks_feature(info: FieldInfo) -> bool:
    """Return whether a field belongs to a feature that is not installed."""
    return any(isinstance(mark, OfFeature) and is_missing(mark.feature) for mark in get_args(info.type))


def _list_rules(section: type[Struct]) -> Iterator[FieldInfo]:
    """Yield the fields of rules on calls in a section."""
    place = section.place if issubclass(section, Section) else ""
    for feature in FEATURES if place else ():
        rules = feature.rules
        if rules is not None and place in rules.places:
            written = deferred(f"{feature.package}.{rules.section}")
            yield FieldInfo(rules.key, rules.key, Annotated[written | None, rules.text, Everyday()], None)


def is_user_key(key: str) -> bool:
    """Return whether a key of the file is the user's own and ignored."""
    return key.startswith("x-")


@cache
def _field_reader(section: type[Struct], key: str) -> Reader:
    return reader(file_fields(section)[key].type)


def reader(annotation: Any) -> Reader:  # Any: types are values here
    """Return the function that reads a value of this type. It raises ValueError."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if not _needs_reader(annotation):
        return partial(convert, type=annotation)
    if origin is Annotated:
        return next((found for mark in parts[1:] if (found := _marked(mark, parts[0]))), None) or reader(parts[0])
    if origin in (Union, UnionType):
        (only,) = (each for each in parts if each is not type(None))
        return reader(only)
    if origin in (list, tuple):
        return partial(_read_items, origin, reader(parts[0]))
    if origin is dict:
        return partial(_read_members, reader(parts[0]), reader(parts[1]))
    return partial(_read_deferred, annotation) if issubclass(annotation, Deferred) else partial(read, annotation)


def _needs_reader(annotation: Any) -> bool:
    """Return whether msgspec cannot read a type."""
    if isinstance(annotation, type) and issubclass(annotation, (Section, Deferred)):
        return True
    return isinstance(annotation, (Value, Switch, Shorthand, TaggedUnion, PresentFields)) or any(
        map(_needs_reader, get_args(annotation))
    )


def _marked(mark: object, annotation: Any) -> Reader | None:
    match mark:
        case Value():
            return mark.reader()
        case PresentFields():
            return partial(_read_fields, mark.section)
        case Switch():
            return partial(_read_switch, reader(switched_section(annotation)))
        case Shorthand():
            return partial(_read_shorthand, mark, reader(annotation))
        case TaggedUnion():
            return partial(_read_choice, mark, by_tag(annotation))
    return None


def _read_switch(read_section: Reader, value: object) -> Any:
    value = Switch.expand(value)
    return value if value is False else read_section(value)


def _read_shorthand(mark: Shorthand, read_section: Reader, value: object) -> Any:
    return read_section(mark.expand(value))


def _read_choice(choice: TaggedUnion, sections: Mapping[str, type[Section]], value: object) -> Any:
    tag = choice.tag_of(value)
    if tag is None:
        raise FlawError(f"`{choice.key}` {choice.message}", hint=choice.hint)
    return read(sections[tag], value)


def _read_items(kind: type, read_item: Reader, value: object) -> Any:
    if not isinstance(value, list):
        raise FlawError("must be a list")
    return kind(map(read_item, value))


def _read_members(read_key: Reader, read_member: Reader, value: object) -> Any:
    if not isinstance(value, dict):
        raise FlawError("must be an object")
    return {read_key(key): read_member(member) for key, member in value.items()}


def _read_deferred(annotation: type[Deferred], value: object) -> Any:
    return reader(annotation.load())(value)


# --- annotations --------------------------------------------------------------------------------------------


def by_tag(annotation: Any) -> dict[str, type[Section]]:
    """Return the sections that an annotation allows, by their tags in the file."""
    return {str(each.__struct_config__.tag): each for each in sections_in(annotation)}


def choice_in(annotation: Any) -> TaggedUnion | None:
    """Return the mark of a union of sections."""
    return next((each for each in get_args(annotation) if isinstance(each, TaggedUnion)), None)


def sections_in(annotation: Any) -> Iterator[type[Any]]:
    """Yield the sections that an annotation allows."""
    for part in alternatives(annotation):
        if isinstance(part, type) and issubclass(part, Section):
            yield part


def alternatives(annotation: Any) -> Iterator[Any]:
    """Yield the alternatives of a union, as they can be written."""
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        for mark in marks:
            if isinstance(mark, (Value, PresentFields)):
                inner = mark.written if isinstance(mark, Value) else mark.section
        yield from alternatives(inner)
    elif get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from alternatives(part)
    elif isinstance(annotation, type) and issubclass(annotation, Deferred):
        yield from alternatives(annotation.load())
    else:
        yield annotation


def switched_section(annotation: Any) -> Any:
    """Return the type of the section that a switch enables."""
    return next(each for each in get_args(annotation) if isinstance(each, type) and each is not type(None))
