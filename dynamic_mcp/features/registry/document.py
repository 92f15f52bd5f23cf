"""A server's description in a registry (`server.json`): all published formats become one `ServerDocument`.

An invalid package or remote does not affect the others; the document lists its flaws.
https://github.com/modelcontextprotocol/registry/tree/main/docs/reference/server-json
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dynamic_mcp.system.text import one_line

T = TypeVar("T")
Status = Literal["active", "deprecated", "deleted"]

NAME = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")
_LONGEST_NAME, _LONGEST_VERSION = 200, 255
_OFFICIAL = "io.modelcontextprotocol.registry/official"
_WORST_FIRST: tuple[Status, ...] = ("deleted", "deprecated")
_Format = Literal["string", "number", "boolean", "filepath"]
_IN_BRACES = re.compile(r"\{([^{}]+)\}")
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_LONGEST_TEXT = 10_000
_MOST_ITEMS = 200


class Package(Struct, frozen=True, kw_only=True):
    """A program to start. `kind` is the type of its package registry: npm, pypi, oci, nuget, mcpb, or another."""

    kind: str
    identifier: str
    version: str = ""
    transport: str = "stdio"
    base_url: str = ""
    hint: str = ""
    runtime_arguments: tuple[PackageArgument, ...] = ()
    arguments: tuple[PackageArgument, ...] = ()
    variables: tuple[Keyed, ...] = ()

    @property
    def label(self) -> str:
        """The name of this option, which stays the same between versions."""
        return f"{self.kind}:{self.identifier}" if self.kind != "oci" else f"oci:{image_name(self.identifier)}"


class RemoteServer(Struct, frozen=True, kw_only=True):
    """A server to reach; the `{names}` in its URL stand for `variables`."""

    kind: Literal["http", "sse"]
    url: str
    headers: tuple[Keyed, ...] = ()
    variables: Mapping[str, ValueInput] = {}

    @property
    def label(self) -> str:
        """The name of this option."""
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
    answer = _Reader(value, "")
    server = answer.inner("server")
    if server is None:
        return _read_document(value, {})
    assert isinstance(value, dict)
    return _read_document(value["server"], value.get("_meta"))


def _read_document(value: object, meta: object) -> ServerDocument:
    server = _Reader(value, "")
    assert isinstance(value, dict)
    name, version = server.required("name"), server.required("version")
    if not NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise FlawedDocument("`name` is not the name of a server")
    if len(version) > _LONGEST_VERSION:
        raise FlawedDocument("`version` is too long")
    facts = [each for each in (_official(meta), _official(value.get("_meta"))) if each is not None]
    repository = value.get("repository")
    flaws: list[str] = []
    return ServerDocument(
        name=name,
        version=version,
        description=server.remark("description"),
        title=server.remark("title"),
        status=_worst([*(each.remark("status") for each in facts), server.remark("status")]),
        message=next((text for each in facts if (text := each.remark("statusMessage"))), ""),
        published=next((text for each in facts if (text := each.remark("publishedAt"))), ""),
        repository=_Reader(repository, "").remark("url") if isinstance(repository, dict) else "",
        website=server.remark("websiteUrl"),
        packages=tuple(_each(value.get("packages"), "packages", _read_package, flaws)),
        remotes=tuple(_each(value.get("remotes"), "remotes", _read_remote, flaws)),
        flaws=tuple(flaws),
    )


def _official(meta: object) -> _Reader | None:
    own = meta.get(_OFFICIAL) if isinstance(meta, dict) else None
    return _Reader(own, "") if isinstance(own, dict) else None


def _worst(said: list[str]) -> Status:
    return next((status for status in _WORST_FIRST if status in said), "active")


def _each(value: object, name: str, read: Callable[[_Reader], T], flaws: list[str]) -> Iterator[T]:
    """Yield the valid items of a list, parsed by `read`, and record the flaws of the others."""
    if value is None:
        return
    if not isinstance(value, list):
        flaws.append(f"`{name}` is not a list")
        return
    if len(value) > _MOST_ITEMS:
        flaws.append(f"only the first {_MOST_ITEMS} of `{name}` count")
    for number, item in enumerate(value[:_MOST_ITEMS]):
        try:
            yield read(_Reader(item, f"{name}[{number}]"))
        except (FlawedDocument, RecursionError) as exc:
            flaws.append(f"`{name}[{number}]` cannot be used: {str(exc) or 'it is nested too deeply'}")


def _read_package(package: _Reader) -> Package:
    transport = package.inner("transport")
    return Package(
        kind=package.required("registryType"),
        identifier=package.required("identifier"),
        version=package.text("version") or "",
        transport="stdio" if transport is None else transport.required("type"),
        base_url=package.text("registryBaseUrl") or "",
        hint=package.text("runtimeHint") or "",
        runtime_arguments=package.each("runtimeArguments", _read_argument),
        arguments=package.each("packageArguments", _read_argument),
        variables=package.each("environmentVariables", _read_keyed),
    )


def _read_remote(remote: _Reader) -> RemoteServer:
    kind = remote.required("type")
    if kind not in ("streamable-http", "sse"):
        raise FlawedDocument(f"its transport `{kind[:50]}` is unknown")
    return RemoteServer(
        kind="sse" if kind == "sse" else "http",
        url=remote.required("url"),
        headers=remote.each("headers", _read_keyed),
        variables=remote.by_name("variables", _read_plain_input),
    )


def image_name(image: str) -> str:
    """Return the reference of an image without its tag and its digest."""
    head, slash, last = image.partition("@")[0].rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


class ValueInput(Struct, frozen=True, kw_only=True):
    """A value: fixed with `value`, whose `{names}` stand for `variables`, or else given by the user."""

    description: str = ""
    is_required: bool = False
    is_secret: bool = False
    format: _Format = "string"
    value: str | None = None
    default: str | None = None
    placeholder: str = ""
    choices: tuple[str, ...] = ()
    variables: Mapping[str, ValueInput] = {}

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
        if not text.isprintable():
            return "has control characters"
        return ""

    @property
    def valid_default(self) -> str | None:
        """The default, unless it is empty or invalid."""
        return None if not self.default or self.flaw_of(self.default) else self.default


class Keyed(Struct, frozen=True):
    """An environment variable or a header."""

    name: str
    input: ValueInput


class PackageArgument(Struct, frozen=True, kw_only=True):
    """An argument: a named one has a `name` with its dashes, a positional one may have a `hint`."""

    input: ValueInput
    name: str = ""
    hint: str = ""
    is_repeated: bool = False


def is_reference(text: str) -> bool:
    """Return whether an answer is a variable of the config, which is substituted when the server starts."""
    return _REFERENCE.fullmatch(text) is not None


def fill_in(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the `{names}` in it substituted; unknown names stay unchanged."""
    return _IN_BRACES.sub(lambda match: values.get(match[1], match[0]), text)


def _read_input(reader: _Reader) -> ValueInput:
    """Return an input with its variables. Raises FlawedDocument."""
    return replace(_read_plain_input(reader), variables=reader.by_name("variables", _read_plain_input))


def _read_plain_input(reader: _Reader) -> ValueInput:
    """Return an input without variables, such as a variable itself. Raises FlawedDocument."""
    return ValueInput(
        description=reader.remark("description"),
        is_required=reader.flag("isRequired"),
        is_secret=reader.flag("isSecret"),
        format=_read_format(reader),
        value=reader.text("value"),
        default=reader.text("default"),
        placeholder=reader.remark("placeholder"),
        # only the user may refer to a variable
        choices=tuple(text for text in reader.texts("choices") if not is_reference(text)),
    )


def _read_keyed(reader: _Reader) -> Keyed:
    """Return an environment variable or a header. Raises FlawedDocument."""
    return Keyed(reader.required("name"), _read_input(reader))


def _read_argument(reader: _Reader) -> PackageArgument:
    """Return an argument. Raises FlawedDocument."""
    source, repeated = _read_input(reader), reader.flag("isRepeated")
    kind = reader.text("type") or ("named" if reader.text("name") else "positional")
    match kind:
        case "named":
            return PackageArgument(input=source, name=reader.required("name"), is_repeated=repeated)
        case "positional":
            return PackageArgument(input=source, hint=reader.text("valueHint") or "", is_repeated=repeated)
    raise FlawedDocument("an argument is neither named nor positional")


def _read_format(reader: _Reader) -> _Format:
    match reader.text("format"):
        case "number":
            return "number"
        case "boolean":
            return "boolean"
        case "filepath":
            return "filepath"
    return "string"


class FlawedDocument(Exception):
    """An invalid part of a document; the message names the member and the flaw."""


class _Reader:
    """Reads the members of one object: checks types and sizes, and raises errors that name the member.

    Members are read by their current names; those of 2025-07-09 had underscores (`registry_type`).
    """

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, dict):
            raise FlawedDocument(f"`{path}` is not an object" if path else "it is not an object")
        self._members = value
        self._path = path

    def text(self, name: str) -> str | None:
        """Return a text that is safe on one line and in a command, or None if it is missing."""
        value = self._member(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise FlawedDocument(f"`{self._at(name)}` is not a text")
        if len(value) > _LONGEST_TEXT:
            raise FlawedDocument(f"`{self._at(name)}` is longer than {_LONGEST_TEXT} characters")
        if not value.isprintable():
            raise FlawedDocument(f"`{self._at(name)}` has control characters")
        return value

    def required(self, name: str) -> str:
        """Return a text that must not be missing or empty."""
        value = self.text(name)
        if not value:
            raise FlawedDocument(f"`{self._at(name)}` is missing")
        return value

    def remark(self, name: str) -> str:
        """Return a text for display: on one line, and without control characters."""
        value = self._member(name)
        return one_line(value, 1000) if isinstance(value, str) else ""

    def flag(self, name: str) -> bool:
        """Return a boolean; false if it is missing."""
        value = self._member(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise FlawedDocument(f"`{self._at(name)}` is neither true nor false")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; empty if it is missing."""
        items = self.items(name)
        reader = _Reader({str(number): each for number, each in enumerate(items)}, self._at(name))
        return tuple(reader.text(str(number)) or "" for number in range(len(items)))

    def items(self, name: str) -> list[object]:
        """Return a list; empty if it is missing."""
        value = self._member(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise FlawedDocument(f"`{self._at(name)}` is not a list")
        if len(value) > _MOST_ITEMS:
            raise FlawedDocument(f"`{self._at(name)}` has more than {_MOST_ITEMS} items")
        return value

    def inner(self, name: str) -> _Reader | None:
        """Return an object, or None if it is missing."""
        value = self._member(name)
        return None if value is None else _Reader(value, self._at(name))

    def each(self, name: str, read: Callable[[_Reader], T]) -> tuple[T, ...]:
        """Return the objects of a list, parsed by `read`."""
        return tuple(
            read(_Reader(value, f"{self._at(name)}[{number}]")) for number, value in enumerate(self.items(name))
        )

    def by_name(self, name: str, read: Callable[[_Reader], T]) -> dict[str, T]:
        """Return the members of an object, parsed by `read`."""
        inner = self.inner(name)
        return {} if inner is None else {key: read(each) for key, each in inner.members()}

    def members(self) -> Iterator[tuple[str, _Reader]]:
        """Yield the members by name, each of which must be an object."""
        if len(self._members) > _MOST_ITEMS:
            raise FlawedDocument(f"`{self._path}` has more than {_MOST_ITEMS} members")
        for key, value in self._members.items():
            if not key.isprintable() or len(key) > _LONGEST_TEXT:
                raise FlawedDocument(f"`{self._path}` has a name with control characters")
            yield key, _Reader(value, self._at(key))

    def _member(self, name: str) -> object:
        older = re.sub(r"([A-Z0-9]+)", lambda match: f"_{match[1].lower()}", name)
        return self._members.get(name, self._members.get(older))

    def _at(self, name: str) -> str:
        return f"{self._path}.{one_line(name)}" if self._path else one_line(name)
