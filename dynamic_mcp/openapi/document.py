"""Reads OpenAPI documents, as JSON or YAML, within bounds, and finds what their references name.

Only references within the document are followed: one to another file or URL is an error of the operation that needs
it. A document could otherwise have any file read, or any address called.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, cast
from urllib.parse import unquote, urljoin, urlsplit

import msgspec

from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.text import one_line

Json = dict[str, Any]  # Any: JSON

MAX_BYTES = 32 << 20
# YAML is read a hundred times as slowly as JSON, and most of that lets nothing else run.
_MAX_YAML_BYTES = 8 << 20
# Of YAML, whose aliases can make gigabytes of a few lines.
_MAX_PARTS = 1_000_000
_MAX_NESTING = 150
_MAX_REFERENCES = 50
_VERSION = re.compile(r"3\.[01](?:\.|$)")
# The servers of a YAML document in block style, which can be read without the rest of it.
_SERVERS = re.compile(r"^servers:[^\n]*\n(?:(?:[ \t#-][^\n]*)?\r?(?:\n|\Z))*", re.MULTILINE)
_VARIABLE = re.compile(r"\{([^{}]*)\}")


class BadDocument(ValueError):
    """A document that cannot be used. The message continues a sentence that begins with its name."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class BadReference(ValueError):
    """A reference that leads nowhere. The message says why."""


class Document:
    """An OpenAPI document of version 3.0 or 3.1."""

    def __init__(self, tree: Json) -> None:
        self.tree = tree
        self.version = _check_version(tree)

    @property
    def is_old(self) -> bool:
        """True for 3.0, whose schemas are not quite JSON Schema."""
        return self.version.startswith("3.0")

    @property
    def title(self) -> str:
        return one_line(str(as_object(self.tree.get("info")).get("title") or ""), 200)

    @property
    def description(self) -> str:
        return str(as_object(self.tree.get("info")).get("description") or "")

    def resolve(self, value: object) -> Json:
        """Return the object that a value is, or that its reference leads to. Raises BadReference."""
        for _ in range(_MAX_REFERENCES):
            found = as_object(value)
            reference = found.get("$ref")
            if not isinstance(reference, str):
                return found
            value = self.find(reference)
        raise BadReference(f"`{_shorten(str(reference))}` leads in a circle")

    def find(self, reference: str) -> object:
        """Return what a reference within the document names (RFC 6901). Raises BadReference."""
        if not reference.startswith("#"):
            why = "refers to another document, which is never fetched; bundle both into one"
            raise BadReference(f"`{_shorten(reference)}` {why}")
        value: object = self.tree
        for token in pointer_tokens(reference):
            if isinstance(value, dict) and token in value:
                value = value[token]
            elif isinstance(value, list) and token.isascii() and token.isdigit() and int(token) < len(value):
                value = value[int(token)]
            else:
                raise BadReference(f"`{_shorten(reference)}` names nothing in the document")
        return value


def as_object(value: object) -> Json:
    """Return a value if it is an object, else an empty one."""
    return cast(Json, value) if isinstance(value, dict) else {}


def pointer_tokens(reference: str) -> list[str]:
    """Return the names in a reference within the document, from the root. Raises BadReference."""
    pointer = unquote(reference[1:])
    if pointer and not pointer.startswith("/"):
        raise BadReference(f"`{_shorten(reference)}` is no JSON pointer")
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def read_document(data: bytes) -> Document:
    """Return the document in these bytes. Raises BadDocument. May take seconds."""
    return Document(_read_tree(data))


def read_servers(data: bytes) -> list[Json]:
    """Return the `servers` of a document, as far as possible without reading the rest. Raises BadDocument."""
    if _is_json(data):
        try:
            head = decode_as(data.removeprefix(b"\xef\xbb\xbf"), _Head)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise BadDocument(f"is no OpenAPI document: {one_line(str(exc), 200)}") from None
        found = head.servers
        if not found and head.openapi is None:
            _check_version({"swagger": head.swagger} if head.swagger is not None else {})
    else:
        block = _SERVERS.search(data.decode("utf-8", "replace"))
        tree = _read_yaml(block[0].encode()) if block else _read_tree(data)
        found = tree.get("servers")
        if not found and not block and tree.get("openapi") is None:
            _check_version(tree)
    return [as_object(each) for each in found] if isinstance(found, list) else []


def find_base_url(servers: list[Json], location: str) -> str:
    """Return the URL of the first server, with the defaults of its variables. Raises BadDocument.

    `location` is the URL of the document, against which it is resolved, or empty for a file.
    """
    server = servers[0] if servers else {"url": "/"}
    variables = as_object(server.get("variables"))
    url = _VARIABLE.sub(
        lambda match: str(as_object(variables.get(match[1])).get("default", match[0])), str(server.get("url") or "/")
    )
    if location:
        url = urljoin(location, url)
    hint = "set `url` to the address of the service"
    if not url.startswith(("http://", "https://")):
        raise BadDocument("names no server with a full URL", hint=hint)
    try:
        parts = urlsplit(url)
        is_usable = bool(parts.hostname) and parts.port != 0 and not _VARIABLE.search(url)
    except ValueError:
        is_usable = False
    if not is_usable or parts.username or parts.query or parts.fragment or not url.isprintable() or " " in url:
        raise BadDocument(f"has a server whose URL cannot be used: `{_shorten(url)}`", hint=hint)
    return url


class _Head(msgspec.Struct):
    servers: Any = None  # Any: JSON
    openapi: Any = None
    swagger: Any = None


def _check_version(tree: Json) -> str:
    version = tree.get("openapi")
    if isinstance(version, str) and _VERSION.match(version):
        return version
    if "swagger" in tree:
        hint = "convert it to OpenAPI 3, e.g. with `swagger2openapi`"
        raise BadDocument(f"is Swagger {_shorten(str(tree['swagger']))}, not OpenAPI 3.0 or 3.1", hint=hint)
    if version is None:
        raise BadDocument("is no OpenAPI document: it has no `openapi`")
    raise BadDocument(f"is OpenAPI {_shorten(str(version))}, of which only 3.0 and 3.1 are supported")


def _is_json(data: bytes) -> bool:
    return data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"


def _read_tree(data: bytes) -> Json:
    if not _is_json(data):
        return _read_yaml(data)
    try:
        tree = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise BadDocument(f"is not JSON: {one_line(str(exc), 200)}") from None
    return as_object(tree)


def _read_yaml(data: bytes) -> Json:
    if len(data) > _MAX_YAML_BYTES:
        raise BadDocument(f"has more than {_MAX_YAML_BYTES >> 20} MiB of YAML", hint="convert it to JSON")
    from ruamel.yaml import YAML
    from ruamel.yaml.constructor import SafeConstructor

    class _Constructor(SafeConstructor):
        """Leaves dates the texts that they are in JSON, too, and bounds what merges (`<<`) copy."""

        parts_left = _MAX_PARTS

        def flatten_mapping(self, node: Any) -> None:  # Any: the library has no type for it here
            self._count(node)
            super().flatten_mapping(node)
            self._count(node)

        def _count(self, node: Any) -> None:
            self.parts_left -= len(node.value) + 1
            if self.parts_left < 0:
                raise BadDocument("has too many parts once its YAML merges are written out")

    _Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)
    yaml = YAML(typ="safe")
    yaml.Constructor = _Constructor
    try:
        text = data.decode()
        _check_nesting(YAML(typ="safe").parse(text))
        tree = yaml.load(text)
    except BadDocument:
        raise
    except Exception as exc:  # noqa: BLE001 - for odd texts the library raises more types than its own
        raise BadDocument(f"is neither JSON nor YAML: {one_line(str(exc), 200)}") from None
    if not isinstance(tree, dict):
        raise BadDocument("is no OpenAPI document: it is not an object")
    return as_object(_as_json(tree, iter(range(_MAX_PARTS)), 0))


def _check_nesting(events: Iterator[object]) -> None:
    """Raise BadDocument for deep nesting, before the library recurses into it, which would end the process."""
    from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent

    depth = 0
    for event in events:
        if isinstance(event, CollectionStartEvent):
            depth += 1
        elif isinstance(event, CollectionEndEvent):
            depth -= 1
        if depth > _MAX_NESTING:
            raise BadDocument("is nested too deeply")


def _as_json(value: object, left: Iterator[int], depth: int) -> object:
    """Return a YAML value as JSON has it, with aliases written out. Raises BadDocument if that is too much."""
    if next(left, None) is None or depth > _MAX_NESTING:
        raise BadDocument("has too many parts, or nests them too deeply, once its YAML aliases are written out")
    match value:
        case dict():
            return {_key(name): _as_json(each, left, depth + 1) for name, each in value.items()}
        case list():
            return [_as_json(each, left, depth + 1) for each in value]
        case None | bool() | int() | str():
            return value
        case float() if isfinite(value):
            return value
    return str(value)  # JSON has no such numbers


def _key(name: object) -> str:
    """Return the name of a member: statuses such as `200` are numbers in YAML."""
    if isinstance(name, bool):
        return "true" if name else "false"
    return str(name)


def _shorten(text: str) -> str:
    return one_line(text, 200)


def is_url(location: str) -> bool:
    """Return whether a document is at a URL, not in a file."""
    return location.startswith(("http://", "https://", "http+unix://"))


def is_same_origin(url: str, other: str) -> bool:
    """Return whether two URLs have the same origin (RFC 6454)."""
    return _origin(url) == _origin(other)


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    port = parts.port or cast("Mapping[str, int]", {"http": 80, "https": 443}).get(parts.scheme)
    return parts.scheme, parts.hostname or "", port
