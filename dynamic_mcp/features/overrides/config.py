"""Configures how tools are shown to clients."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated

from msgspec import Meta, field
from msgspec.structs import replace

from dynamic_mcp.config.flaws import FlawError, printable
from dynamic_mcp.config.section import Section, Value
from dynamic_mcp.config.types import LongText, RawJson

_Name = Annotated[str, Meta(min_length=1, max_length=200)]


class ArgumentOverride(Section, frozen=True):
    """How an argument of a tool is shown, and what is sent for it."""

    rename: Annotated[_Name | None, "Another name for the argument."] = None
    description: Annotated[LongText | None, "Another description of the argument."] = None
    default: Annotated[RawJson | None, "What is sent if a call leaves the argument out; so it is not required."] = (
        None
    )
    fixed: Annotated[RawJson | None, "What is always sent. The argument is not shown."] = None
    is_hidden: Annotated[bool | None, "Hide the argument, and do not accept it. Default: false."] = field(
        default=None, name="hide"
    )


class Annotations(Section, frozen=True):
    """What clients are shown of the effects of a tool. For rules, `effects` of the server says what they are."""

    title: Annotated[LongText | None, "Another title, for people."] = None
    read_only: Annotated[bool | None, "Whether the tool only reads."] = field(default=None, name="readOnlyHint")
    destructive: Annotated[bool | None, "Whether the tool may destroy something."] = field(
        default=None, name="destructiveHint"
    )
    idempotent: Annotated[bool | None, "Whether the same call again has no further effect."] = field(
        default=None, name="idempotentHint"
    )
    open_world: Annotated[bool | None, "Whether the tool works with things outside of the server."] = field(
        default=None, name="openWorldHint"
    )


def _list_annotations(annotations: Annotations) -> Mapping[str, str | bool]:
    """Return the configured annotations by their MCP names."""
    found = {
        "title": annotations.title,
        "readOnlyHint": annotations.read_only,
        "destructiveHint": annotations.destructive,
        "idempotentHint": annotations.idempotent,
        "openWorldHint": annotations.open_world,
    }
    return {name: value for name, value in found.items() if value is not None}


class Override(Section, frozen=True):
    """How a tool is shown to clients. What it does not give stays as the server says it.

    `tools.exclude` of the server takes a tool away.
    """

    tools: str = field(default="", name="x-tools")
    rename: Annotated[_Name | None, "Another name for the tool; not for a glob."] = None
    title: Annotated[LongText | None, "Another title for the tool."] = None
    description: Annotated[LongText | None, "Another description of the tool."] = None
    annotations: Annotated[
        Annotated[Mapping[str, str | bool], Value(_list_annotations, written=Annotations)],
        "Other annotations; those that are left out stay.",
    ] = {}
    arguments: Annotated[
        dict[str, ArgumentOverride], "The arguments of the tool, by the server's names for them."
    ] = {}


def _find_twice(overrides: Iterable[Override | ArgumentOverride]) -> str | None:
    """Return a name that two overrides assign."""
    taken = Counter(each.rename for each in overrides if each.rename is not None)
    return next((name for name, times in taken.items() if times > 1), None)


def _with_names(overrides: Mapping[str, Override]) -> tuple[Override, ...]:
    """Return the overrides in the order of the file.

    Raises FlawError if two tools, or two arguments of one, get the same name.
    """
    for name, override in overrides.items():
        if override.rename is not None and is_glob(name):
            raise FlawError(f"`{printable(name)}` is a glob, which may be of several tools; they cannot get one name")
        _check_arguments(name, override.arguments)
    if twice := _find_twice(overrides.values()):
        raise FlawError(f"two tools get the name `{printable(twice)}`")
    return tuple(replace(each, tools=name) for name, each in overrides.items())


def _check_arguments(tool: str, arguments: Mapping[str, ArgumentOverride]) -> None:
    for name, each in arguments.items():
        if each.fixed is not None and (each.default is not None or each.rename is not None):
            raise FlawError(f"`{printable(name)}` of `{printable(tool)}` is fixed, so it has no name and no default")
    if twice := _find_twice(arguments.values()):
        raise FlawError(f"two arguments of `{printable(tool)}` get the name `{printable(twice)}`")


Overrides = Annotated[tuple[Override, ...], Value(_with_names, written=dict[str, Override])]


def is_glob(tools: str) -> bool:
    """Return whether an override may match several tools."""
    return "*" in tools or "?" in tools
