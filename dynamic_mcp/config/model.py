"""The sections of the config as pydantic models, which find all problems of a config and generate the schema.

Imported only for these two purposes: pydantic takes longer to load than everything else at startup.
"""

from __future__ import annotations

from functools import cache, partial
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import Meta
from msgspec.structs import FieldInfo
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
    create_model,
    model_validator,
)

from dynamic_mcp.config import form
from dynamic_mcp.config.section import (
    Deferred,
    PresentFields,
    Section,
    Shorthand,
    Switch,
    TaggedUnion,
    Value,
    by_tag,
    describe,
    describe_tag,
    file_fields,
    is_everyday,
    is_user_key,
    switched_section,
    without_user_keys,
)

# The key of a field in the schema that says whether it is `everyday` or `advanced`.
LEVEL = "x-level"


class Model(BaseModel):
    """An object of the file."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        defer_build=True,
        json_schema_extra={"patternProperties": {"^x-": {}}},
    )

    _without_user_keys = model_validator(mode="before")(without_user_keys)


@cache
def model(section: type[Section]) -> type[Model]:
    """Return the model of a section."""
    members: dict[str, Any] = {each.name: _member(key, each) for key, each in file_fields(section).items()}
    config = section.__struct_config__
    if config.tag_field is not None and not is_user_key(config.tag_field):
        members[config.tag_field] = (Literal[config.tag], _field(describe_tag(section), is_everyday=True))
    return create_model(section.__name__, __base__=Model, __doc__=section.__doc__, **members)


def _member(key: str, info: FieldInfo) -> tuple[Any, Any]:  # Any: types are values here, as Field() is
    alias = key if key != info.name else None
    level = is_everyday(info)
    if info.required:
        return _type(info.type), _field(describe(info), alias=alias, is_everyday=level)
    return _type(info.type) | None, _field(describe(info), alias=alias, is_everyday=level, default=None)


def _field(description: str, *, is_everyday: bool, alias: str | None = None, default: Any = ...) -> Any:  # as above
    level = "everyday" if is_everyday else "advanced"
    return Field(default, alias=alias, description=description, json_schema_extra={LEVEL: level})


def _type(annotation: Any) -> Any:
    """Translate an annotation of a section into one for pydantic."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        marked = (_marked(mark, parts[0]) for mark in parts[1:])
        found = next((each for each in marked if each is not None), None)
        bounds = [_bounds(each) for each in parts[1:] if isinstance(each, Meta)]
        return found or (Annotated[(_type(parts[0]), *bounds)] if bounds else _type(parts[0]))
    if origin in (Union, UnionType):
        return Union[tuple(map(_type, parts))]  # noqa: UP007 - its members are found here
    if origin in (list, tuple):
        return list[_type(parts[0])]  # type: ignore[misc]
    if origin is dict:
        return dict[_type(parts[0]), _type(parts[1])]  # type: ignore[misc]
    if isinstance(annotation, type) and issubclass(annotation, Deferred):
        return _type(annotation.load())
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return Annotated[model(annotation), AfterValidator(partial(_build, annotation))]
    return annotation


def _build(section: type[Section], members: Model) -> Section:
    """Return the section, which checks its fields against each other."""
    values = {name: getattr(members, name) for name in type(members).model_fields if hasattr(section, name)}
    return section(**{name: value for name, value in values.items() if value is not None})


def _marked(mark: object, annotation: Any) -> Any:
    """Return the type for a mark in an annotation; None if it is no mark."""
    match mark:
        case Value():
            return _value(mark)
        case PresentFields():
            return model(mark.section)
        case Switch():
            section = _type(switched_section(annotation))
            expand = BeforeValidator(_expand_switch, json_schema_input_type=bool | section | None)
            return Annotated[section | None, expand]
        case Shorthand():
            section = _type(annotation)
            words = Literal[tuple(mark.words)]  # type: ignore[valid-type]  # its members are found here
            return Annotated[section, BeforeValidator(mark.expand, json_schema_input_type=words | section)]
        case TaggedUnion():
            options = [Annotated[_type(each), Tag(tag)] for tag, each in by_tag(annotation).items()]
            return Annotated[Union[tuple(options)], Discriminator(mark.tag_of)]  # noqa: UP007 - as above
    return None


def _value(value: Value) -> Any:
    def parse(written: object) -> Any:  # not a class, whose signature pydantic cannot inspect
        return value.parse(written)

    if value.expand is not None:
        both = BeforeValidator(value.expand), AfterValidator(parse)
        return Annotated[_type(value.written), *both, WithJsonSchema(dict(value.schema))]
    if value.written is object:
        return Annotated[Any, PlainValidator(parse), WithJsonSchema(dict(value.schema))]
    return Annotated[_type(value.written), AfterValidator(parse), Field(json_schema_extra={**value.schema})]


def _expand_switch(value: object) -> object:
    return None if value is False else Switch.expand(value)


def _bounds(meta: Meta) -> Any:
    return Field(ge=meta.ge, le=meta.le, min_length=meta.min_length, max_length=meta.max_length)


Root = model(form.Root)
