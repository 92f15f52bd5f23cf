"""A server's description in a registry (`server.json`): all published formats become one `ServerDocument`.

An invalid package or remote does not affect the others; the document lists its flaws. Members may have their names of
2025-07-09, with underscores (`registry_type`).
https://github.com/modelcontextprotocol/registry/tree/main/docs/reference/server-json
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import force_setattr

from dynamic_mcp.system.text import one_line

Status = Literal["active", "deprecated", "deleted"]

NAME = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")
_LONGEST_NAME, _LONGEST_VERSION, _LONGEST_REMARK = 200, 255, 1000
_OFFICIAL = "io.modelcontextprotocol.registry/official"
_WORST_FIRST: tuple[Status, ...] = ("deleted", "deprecated")
_FORMATS = ("number", "boolean", "filepath")
_IN_BRACES = re.compile(r"\{([^{}]+)\}")
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_LONGEST_TEXT = 10_000
_MOST_ITEMS = 200
# Texts that are only displayed: on one line, without control characters.
_REMARKS = frozenset(("description", "placeholder"))

T = TypeVar("T")
_Required = Annotated[str, Meta(min_length=1)]
_Items = Annotated[tuple[T, ...], Meta(max_length=_MOST_ITEMS)]


class FlawedDocument(Exception):
    """An invalid part of a document; the message names the member and the flaw."""


class _Part(Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of a document whose texts are safe on one line and in a command."""

    def __post_init__(self) -> None:
        for member, name in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            value = getattr(self, member)
            for text in [value] if isinstance(value, str) else value if isinstance(value, (tuple, dict)) else ():
                if isinstance(text, str) and len(text) > _LONGEST_TEXT:
                    raise ValueError(f"`{name}` is longer than {_LONGEST_TEXT} characters")
                if isinstance(text, str) and not text.isprintable():
                    raise ValueError(f"`{name}` has control characters")


class ValueInput(_Part, frozen=True, kw_only=True):
    """A value: fixed with `value`, whose `{names}` stand for `variables`, or else given by the user."""

    description: str = ""
    is_required: bool = False
    is_secret: bool = False
    format: str = "string"
    value: str | None = None
    default: str | None = None
    placeholder: str = ""
    choices: _Items[str] = ()
    variables: Annotated[Mapping[str, ValueInput], Meta(max_length=_MOST_ITEMS)] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        # only the user may refer to a variable
        force_setattr(self, "choices", tuple(text for text in self.choices if not is_reference(text)))
        if self.format not in _FORMATS:
            force_setattr(self, "format", "string")

    @property
    def names(self) -> tuple[str, ...]:
        """The variables in its fixed value, in order."""
        return tuple(dict.fromkeys(name for name in _IN_BRACES.findall(self.value or "") if name in self.variables))

    @property
    def unknown_names(self) -> tuple[str, ...]:
        """The names in braces that are not variables, and that stay unchanged."""
        return tuple(name for name in _IN_BRACES.findall(self.value or "") if name not in self.variables)

    def flaw_of(self, text: str) -> str:
        """Return why a text is not valid for this input, or an empty text."""
        if self.choices and text not in self.choices:
            return f"must be one of {', '.join(f'`{each}`' for each in self.choices[:20])}"
        if self.format == "number" and not _NUMBER.fullmatch(text):
            return "must be a number"
        if self.format == "boolean" and text not in ("true", "false"):
            return "must be `true` or `false`"
        return "" if text.isprintable() else "has control characters"

    @property
    def valid_default(self) -> str | None:
        """The default, unless it is empty or invalid."""
        return None if not self.default or self.flaw_of(self.default) else self.default


class NamedInput(ValueInput, frozen=True, kw_only=True):
    """An environment variable or a header."""

    name: _Required


class PackageArgument(ValueInput, frozen=True, kw_only=True):
    """An argument: a named one has a `name` with its dashes, a positional one may have a `hint`."""

    type: str = ""
    name: str = ""
    hint: str = field(default="", name="valueHint")
    is_repeated: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        match self.type or ("named" if self.name else "positional"):
            case "named" if self.name:
                force_setattr(self, "hint", "")
            case "positional":
                force_setattr(self, "name", "")
            case "named":
                raise ValueError("`name` is missing")
            case _:
                raise ValueError("an argument is neither named nor positional")


class _Transport(_Part, frozen=True):
    type: _Required


class Package(_Part, frozen=True, kw_only=True):
    """A program to start. `kind` is the type of its package registry: npm, pypi, oci, nuget, mcpb, or another."""

    kind: _Required = field(name="registryType")
    identifier: _Required
    version: str = ""
    reached_by: _Transport = field(default=_Transport(type="stdio"), name="transport")
    base_url: str = field(default="", name="registryBaseUrl")
    hint: str = field(default="", name="runtimeHint")
    runtime_arguments: _Items[PackageArgument] = ()
    arguments: _Items[PackageArgument] = field(default=(), name="packageArguments")
    variables: _Items[NamedInput] = field(default=(), name="environmentVariables")

    @property
    def transport(self) -> str:
        return self.reached_by.type

    @property
    def label(self) -> str:
        """The name of this option, which stays the same between versions."""
        return f"{self.kind}:{self.identifier}" if self.kind != "oci" else f"oci:{image_name(self.identifier)}"


class RemoteServer(_Part, frozen=True, kw_only=True):
    """A server to reach; the `{names}` in its URL stand for `variables`."""

    type: _Required
    url: _Required
    headers: _Items[NamedInput] = ()
    variables: Annotated[Mapping[str, ValueInput], Meta(max_length=_MOST_ITEMS)] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.type not in ("streamable-http", "sse"):
            raise ValueError(f"its transport `{self.type[:50]}` is unknown")

    @property
    def kind(self) -> Literal["http", "sse"]:
        return "sse" if self.type == "sse" else "http"

    @property
    def label(self) -> str:
        return self.url


class ServerDocument(Struct, frozen=True, kw_only=True):
    """One version of a server. `flaws` lists its invalid parts."""

    name: str
    version: str
    description: str = ""
    title: str = ""
    status: Status = "active"
    message: str = ""
    published: str = ""
    repository: str = ""
    website: str = ""
    packages: tuple[Package, ...] = ()
    remotes: tuple[RemoteServer, ...] = ()
    flaws: tuple[str, ...] = ()


def read_answer(value: object) -> ServerDocument:
    """Return the document in an answer: `{"server": …, "_meta": …}`, or the server alone. Raises FlawedDocument."""
    if isinstance(value, dict) and value.get("server") is not None:
        return _read_document(value["server"], value.get("_meta"))
    return _read_document(value, {})


def is_reference(text: str) -> bool:
    """Return whether an answer is a variable of the config, which is substituted when the server starts."""
    return _REFERENCE.fullmatch(text) is not None


def fill_in(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the `{names}` in it substituted; unknown names stay unchanged."""
    return _IN_BRACES.sub(lambda match: values.get(match[1], match[0]), text)


def image_name(image: str) -> str:
    """Return the reference of an image without its tag and its digest."""
    head, slash, last = image.partition("@")[0].rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def _read_document(value: object, meta: object) -> ServerDocument:
    if not isinstance(value, dict):
        raise FlawedDocument("it is not an object")
    server, flaws = _with_current_names(value), list[str]()
    name, version = server.get("name"), server.get("version")
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise FlawedDocument("`name` is not the name of a server")
    if not isinstance(version, str) or not version.isprintable() or not 0 < len(version) <= _LONGEST_VERSION:
        raise FlawedDocument("`version` is missing, too long, or has control characters")
    facts = [_member(each, _OFFICIAL) for each in (meta, server.get("_meta"))]
    status = [*(_remark(_member(each, "status")) for each in facts), _remark(server.get("status"))]
    return ServerDocument(
        name=name,
        version=version,
        description=_remark(server.get("description")),
        title=_remark(server.get("title")),
        status=next((each for each in _WORST_FIRST if each in status), "active"),
        message=next((text for each in facts if (text := _remark(_member(each, "statusMessage")))), ""),
        published=next((text for each in facts if (text := _remark(_member(each, "publishedAt")))), ""),
        repository=_remark(_member(server.get("repository"), "url")),
        website=_remark(server.get("websiteUrl")),
        packages=tuple(_each(server.get("packages"), "packages", Package, flaws)),
        remotes=tuple(_each(server.get("remotes"), "remotes", RemoteServer, flaws)),
        flaws=tuple(flaws),
    )


def _each(value: object, name: str, kind: type[T], flaws: list[str]) -> Iterator[T]:
    """Yield the valid items of a list, and record the flaws of the others."""
    if value is not None and not isinstance(value, list):
        flaws.append(f"`{name}` is not a list")
        return
    items = value or []
    if len(items) > _MOST_ITEMS:
        flaws.append(f"only the first {_MOST_ITEMS} of `{name}` count")
    for number, item in enumerate(items[:_MOST_ITEMS]):
        try:
            yield msgspec.convert(_prepared(item), kind)
        except msgspec.ValidationError as exc:
            flaw = one_line(str(exc)).replace(" - at `$.", " at `")
            flaws.append(f"`{name}[{number}]` cannot be used: {flaw[:1].lower()}{flaw[1:]}")
        except RecursionError:
            flaws.append(f"`{name}[{number}]` cannot be used: it is nested too deeply")


def _prepared(value: object) -> object:
    """Return a part with the current names of its members, without nulls, and with displayable remarks."""
    match value:
        case dict():
            members = {name: each for name, each in _with_current_names(value).items() if each is not None}
            return {name: _prepared_member(name, each) for name, each in members.items()}
        case list():
            return [_prepared(each) for each in value]
    return value


def _prepared_member(name: str, value: object) -> object:
    if name in _REMARKS:
        return _remark(value)
    if name == "variables" and isinstance(value, dict):  # by their own names
        return {each: _prepared(inner) for each, inner in value.items()}
    return _prepared(value)


def _with_current_names(members: Mapping[str, object]) -> dict[str, object]:
    older = {re.sub(r"(?<=[a-z])_([a-z0-9])", lambda match: match[1].upper(), name): name for name in members}
    return {name: members.get(name, members[written]) for name, written in older.items()}


def _member(value: object, name: str) -> object:
    return _with_current_names(value).get(name) if isinstance(value, dict) else None


def _remark(value: object) -> str:
    return one_line(value, _LONGEST_REMARK) if isinstance(value, str) else ""
