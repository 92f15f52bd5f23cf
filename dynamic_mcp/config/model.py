"""The form of the config file as pydantic models, which find all problems of a config and generate the schema.

Imported only for these two purposes: pydantic takes longer to load than everything else at startup.
"""

from collections.abc import Callable
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import NODEFAULT, Meta, Struct
from msgspec.structs import FieldInfo, fields
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

from dynamic_mcp.config import (
    access_form,
    access_values,
    addresses,
    auth_form,
    auth_values,
    cel,
    cli_values,
    form,
    http_form,
    http_values,
    observe_values,
    registry_form,
    rules_form,
    rules_values,
    values,
)

_SECONDS: dict[str, object] = {"type": "number", "minimum": 0, "maximum": values.LONGEST_S}
_LENGTH = r"(\+?[0-9]+(\.[0-9]+)?\s*([mM]?[sS]|[mM]|[mM][iI][nN]|[hH]|[dD])?)?"
_NEVER = "[nN][eE][vV][eE][rR]"
_STRINGS: dict[str, object] = {"type": "array", "items": {"type": "string"}}
_NULL: dict[str, object] = {"type": "null"}


class Section(BaseModel):
    """An object of the file."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        defer_build=True,
        json_schema_extra={"patternProperties": {"^x-": {}}},
    )

    _without_own_keys = model_validator(mode="before")(form.without_own_keys)


@cache
def model(section: type[Struct]) -> type[Section]:
    """Return the model of a section of the form."""
    members: dict[str, Any] = {each.name: (_type(each.type), _field(each)) for each in fields(section)}
    if (config := section.__struct_config__).tag_field == auth_form.KIND:
        members[auth_form.KIND] = (
            Literal[config.tag],
            Field(description="What it is."),
        )
    check = _CHECKS_OF_WHOLE.get(section)
    validators: dict[str, Any] = {} if check is None else {"_judge_whole": _judge_of(check)}
    return create_model(
        section.__name__, __base__=Section, __doc__=section.__doc__, __validators__=validators, **members
    )


def _judge_of(check: Callable[[Any], None]) -> Any:
    """Return a validator that judges what the members of a section need of each other."""

    def judge(whole: Section) -> Section:
        check(whole)
        return whole

    return model_validator(mode="after")(judge)


def _field(info: FieldInfo) -> Any:  # Any: the type of pydantic's Field()
    description = next(each for each in get_args(info.type) if isinstance(each, str))
    alias = info.encode_name if info.encode_name != info.name else None
    return Field(... if info.default is NODEFAULT else info.default, alias=alias, description=description)


def _type(annotation: Any) -> Any:  # Any: types are values here
    """Translate an annotation of the form into one for pydantic."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        if values.expand_switch in parts:
            return _switch(parts[0])
        functions = (each for each in parts[1:] if callable(each))
        bounds = [_bounds(each) for each in parts[1:] if isinstance(each, Meta)]
        checked = next((_TYPES_BY_FUNCTION[each] for each in functions), None)
        return (
            checked if checked is not None else Annotated[(_type(parts[0]), *bounds)] if bounds else _type(parts[0])
        )
    if origin in (Union, UnionType):
        return Union[tuple(map(_type, parts))]  # noqa: UP007 - its members are found here
    if origin is list:
        return list[_type(parts[0])]  # type: ignore[misc]
    if origin is dict:
        return dict[_type(parts[0]), _type(parts[1])]  # type: ignore[misc]
    return model(annotation) if isinstance(annotation, type) and issubclass(annotation, Struct) else annotation


def _switch(annotation: Any) -> Any:
    """Return the type of a section that may also be true or false."""
    (section,) = (_type(each) for each in get_args(annotation) if isinstance(each, type) and issubclass(each, Struct))
    return Annotated[
        section | None,
        BeforeValidator(values.expand_switch, json_schema_input_type=bool | section | None),
    ]


def _list_of(check: Any, pattern: str) -> Any:
    """Return the type of a list of texts with this check."""
    items: dict[str, object] = {"type": "string", "pattern": pattern}
    return Annotated[list[str], AfterValidator(check), Field(json_schema_extra={"items": items})]  # type: ignore[dict-item]


def _size(parse: Any) -> Any:
    """Return the type of a size that this function parses."""
    text = {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*([kKmM]i?)?[bB]?\s*$"}
    options = [{"type": "integer", "minimum": values.SMALLEST_LIMIT}, text, _NULL]
    return Annotated[int | None, PlainValidator(parse), WithJsonSchema({"anyOf": options})]


def _bounds(meta: Meta) -> Any:
    return Field(ge=meta.ge, le=meta.le, min_length=meta.min_length, max_length=meta.max_length)


# What judges a section as a whole.
_CHECKS_OF_WHOLE: dict[type[Struct], Callable[[Any], None]] = {http_form.Http: http_values.check_server}
# The pydantic types of the fields that a function checks.
_TYPES_BY_FUNCTION: dict[object, Any] = {
    values.parse_duration: Annotated[
        float | None,
        PlainValidator(values.parse_duration),
        WithJsonSchema({"anyOf": [_SECONDS, {"type": "string", "pattern": rf"^\s*{_LENGTH}\s*$"}, _NULL]}),
    ],
    values.parse_idle_time: Annotated[
        float | None,
        PlainValidator(values.parse_idle_time),
        WithJsonSchema({"anyOf": [_SECONDS, {"type": "string", "pattern": rf"^\s*({_LENGTH}|{_NEVER})\s*$"}, _NULL]}),
    ],
    values.parse_limit: Annotated[
        int | None,
        PlainValidator(values.parse_limit),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "integer", "minimum": values.SMALLEST_LIMIT},
                    {"type": "string", "pattern": r"^\s*([0-9]+(\.[0-9]+)?\s*([kKmM]i?)?[bB]?|off)\s*$"},
                    _NULL,
                ]
            }
        ),
    ],
    values.parse_inherit: Annotated[
        values.Inherit | None,
        PlainValidator(values.parse_inherit),
        WithJsonSchema({"anyOf": [{"enum": ["safe", "all"]}, _STRINGS, _NULL]}),
    ],
    values.parse_list: Annotated[
        list[str] | None,
        BeforeValidator(values.parse_list),
        WithJsonSchema({"anyOf": [{"type": "string"}, _STRINGS, _NULL]}),
    ],
    values.check_variables: Annotated[
        dict[str, str],
        AfterValidator(values.check_variables),
        Field(json_schema_extra={"propertyNames": {"pattern": values.VARIABLE_NAME}}),
    ],
    values.check_headers: Annotated[
        dict[str, str],
        AfterValidator(values.check_headers),
        Field(json_schema_extra={"propertyNames": {"pattern": values.HEADER_NAME}}),
    ],
    values.check_literal_url: Annotated[str, AfterValidator(values.check_literal_url)],
    addresses.parse_address: Annotated[
        addresses.Address | None,
        PlainValidator(addresses.parse_address),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "integer", "minimum": 0, "maximum": 65535},
                    {"type": "string", "pattern": addresses.PATTERN},
                    _NULL,
                ]
            }
        ),
    ],
    http_values.check_socket_mode: Annotated[
        str,
        AfterValidator(http_values.check_socket_mode),
        Field(json_schema_extra={"pattern": http_values.SOCKET_MODE}),
    ],
    http_values.check_path: Annotated[
        str, AfterValidator(http_values.check_path), Field(json_schema_extra={"pattern": http_values.PATH})
    ],
    http_values.check_root_path: Annotated[
        str,
        AfterValidator(http_values.check_root_path),
        Field(json_schema_extra={"pattern": f"^$|{http_values.PATH}"}),
    ],
    observe_values.check_command: Annotated[
        list[str],
        AfterValidator(observe_values.check_command),
        Field(json_schema_extra={"items": {"type": "string"}, "minItems": 1}),
    ],
    observe_values.check_endpoint: Annotated[
        str, AfterValidator(observe_values.check_endpoint), Field(json_schema_extra={"pattern": "^https?://"})
    ],
    http_values.check_hosts: _list_of(http_values.check_hosts, http_values.HOST),
    http_values.check_origins: _list_of(http_values.check_origins, http_values.ORIGIN),
    http_values.check_proxies: _list_of(http_values.check_proxies, r"^(unix|[0-9A-Fa-f.:]+(/[0-9]+)?)$"),
    http_values.check_public_url: Annotated[str, AfterValidator(http_values.check_public_url)],
    auth_values.check_header_name: Annotated[
        str,
        AfterValidator(auth_values.check_header_name),
        Field(json_schema_extra={"pattern": values.HEADER_NAME}),
    ],
    access_values.check_globs: Annotated[list[str], AfterValidator(access_values.check_globs)],
    access_values.check_values: Annotated[
        list[Any],
        AfterValidator(access_values.check_values),
        Field(json_schema_extra={"items": {"type": ["string", "number", "boolean", "null"]}}),
    ],
    access_values.check_pattern: Annotated[str, AfterValidator(access_values.check_pattern)],
    cel.check_expression: Annotated[
        str, AfterValidator(cel.check_expression), Field(min_length=1, max_length=cel.MAX_LENGTH)
    ],
    access_values.check_scope: Annotated[str, AfterValidator(access_values.check_scope)],
    access_values.check_profile_name: Annotated[
        str, AfterValidator(access_values.check_profile_name), Field(min_length=1, max_length=values.NAME_LENGTH)
    ],
    rules_values.check_rate: Annotated[
        str, AfterValidator(rules_values.check_rate), Field(json_schema_extra={"pattern": rules_values.RATE})
    ],
    access_values.check_path: Annotated[
        str, AfterValidator(access_values.check_path), Field(json_schema_extra={"pattern": "^[$]"})
    ],
    rules_values.check_plugin_name: Annotated[
        str,
        AfterValidator(rules_values.check_plugin_name),
        Field(json_schema_extra={"pattern": rules_values.PLUGIN_NAME}),
    ],
    cli_values.check_names: Annotated[
        list[str], AfterValidator(cli_values.check_names), Field(json_schema_extra={"minItems": 1})
    ],
    cli_values.check_effects: Annotated[
        dict[str, Literal["read", "write", "destructive"]], AfterValidator(cli_values.check_effects)
    ],
    cli_values.check_flags: _list_of(cli_values.check_flags, cli_values.FLAG_GLOB),
    rules_values.take_json: Any,
    rules_values.parse_cache_size: _size(rules_values.parse_cache_size),
    cli_values.parse_output_limit: _size(cli_values.parse_output_limit),
    values.check_group_name: Annotated[
        str, AfterValidator(values.check_group_name), Field(min_length=1, max_length=values.NAME_LENGTH)
    ],
}
for _check, _section in (
    (rules_values.check_guards, rules_form.Guard),
    (rules_values.check_limits, rules_form.Limit),
    (rules_values.check_caches, rules_form.Cache),
    (rules_values.check_redacts, rules_form.Redact),
    (registry_form.check_registries, registry_form.Registry),
):
    _TYPES_BY_FUNCTION[_check] = Annotated[list[model(_section)], AfterValidator(_check)]  # type: ignore[misc]
_TYPES_BY_FUNCTION[rules_values.check_overrides] = Annotated[
    dict[str, model(rules_form.Override)],  # type: ignore[misc]
    AfterValidator(rules_values.check_overrides),
]
_TYPES_BY_FUNCTION[form.kind] = Annotated[
    Annotated[model(form.Program), Tag("stdio")]
    | Annotated[model(form.Remote), Tag("remote")]
    | Annotated[model(form.CommandLine), Tag("cli")],
    Discriminator(form.kind),
]
_TYPES_BY_FUNCTION[access_values.check_paths] = Annotated[
    dict[str, model(access_form.Condition)],  # type: ignore[misc]
    AfterValidator(access_values.check_paths),
    Field(json_schema_extra={"propertyNames": {"pattern": "^[$]"}}),
]
_PROVIDER: Any = Annotated[
    Annotated[model(auth_form.Bearer), Tag("bearer")]
    | Annotated[model(auth_form.Jwt), Tag("jwt")]
    | Annotated[model(auth_form.Forwarded), Tag("forwarded")]
    | Annotated[model(auth_form.Login), Tag("login")],
    Discriminator(auth_values.kind_of_provider),
]
_TYPES_BY_FUNCTION[auth_values.check_providers] = Annotated[
    list[_PROVIDER], AfterValidator(auth_values.check_providers)
]

Root = model(form.Root)
