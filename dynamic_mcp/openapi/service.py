"""What a config and a document say together: the service, and those of its operations that are tools."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import cast
from urllib.parse import urlsplit

from msgspec import Struct

from dynamic_mcp.openapi.document import (
    BadDocument,
    Document,
    Json,
    find_base_url,
    is_same_origin,
    is_url,
    read_document,
    read_servers,
)
from dynamic_mcp.openapi.operations import LeftOut, Operation, Place, SecurityScheme, read_operations
from dynamic_mcp.openapi.selection import find_mistakes, matches, select_operations
from dynamic_mcp.openapi.tools import make_tools
from dynamic_mcp.system.text import one_line


class BadService(ValueError):
    """The document cannot be used with this config. The message names the document or the field of the config."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Selection(Struct, frozen=True):
    """What a config says of a document. `location` is a file or a URL, `base_url` empty if the document names it.

    `headers`, `query` and `cookies` are the names of fields that the config fills.
    """

    location: str
    base_url: str = ""
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    slashes: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    query: tuple[str, ...] = ()
    cookies: tuple[str, ...] = ()


class ApiService(Struct, frozen=True):
    """A service. `hidden` are the places and names of fields that no call gives, as the config fills them.

    `deselected` is the number of operations that the config leaves out, `with_slashes` the tools whose paths may have
    `/` in a parameter.
    """

    document: Document
    base_url: str
    tools: tuple[Json, ...]
    operations: Mapping[str, Operation]
    left_out: tuple[LeftOut, ...]
    schemes: Mapping[str, SecurityScheme]
    hidden: frozenset[tuple[Place, str]]
    deselected: int
    with_slashes: frozenset[str]

    @property
    def version(self) -> str:
        info = self.document.tree.get("info")
        return one_line(str(info.get("version") if isinstance(info, dict) else "") or "unknown", 100)

    def summarize(self) -> str:
        """Return how many operations are tools, and how many are not."""
        others = [f"{self.deselected} not selected"] if self.deselected else []
        count = len({each.where for each in self.left_out if each.is_whole})
        others += [f"{count} left out"] if count else []
        operations = "operation is a tool" if len(self.tools) == 1 else "operations are tools"
        return "; ".join([f"{len(self.tools)} {operations}", *others])

    def list_reasons(self) -> list[str]:
        """Return why operations, or parts of them, are left out, with an example of each reason."""
        found: dict[str, list[str]] = {}
        for each in self.left_out:
            found.setdefault(each.why, []).append(each.where)
        return [
            f"{places[0]}{f' and {len(places) - 1} more' if len(places) > 1 else ''}: {why}"
            for why, places in found.items()
        ]

    def find_unfilled(self) -> dict[str, list[str]]:
        """Return what the service wants of its callers and the config does not fill, with the tools that need it.

        A tool that may also be called without, or for which another way is filled, is not among them.
        """
        found: dict[str, list[str]] = {}
        for tool, operation in self.operations.items():
            missing = [self._find_missing(each) for each in operation.security]
            if missing and all(missing):
                found.setdefault(" and ".join(missing[0]), []).append(tool)
        return found

    def _find_missing(self, names: Iterable[str]) -> list[str]:
        schemes = [self.schemes[name] for name in names if name in self.schemes]
        return [_describe(each) for each in schemes if (each.place, each.field) not in self.hidden]


def read_service(data: bytes, selection: Selection) -> ApiService:
    """Return the service that a document and a config describe. Raises BadService. May take seconds."""
    try:
        document = read_document(data)
        base_url = selection.base_url or choose_base_url(document.tree.get("servers"), selection.location)
    except BadDocument as exc:
        raise BadService(f"`{shown_location(selection.location)}` {exc}", hint=exc.hint) from exc
    hidden = _find_hidden(selection)
    found = read_operations(document, hidden)
    every = found.operations
    for field, entries in (
        ("include", [each for each in selection.include if each != "*"]),
        ("exclude", selection.exclude),
        ("slashes", selection.slashes),
    ):
        if mistakes := find_mistakes(every, found.left_out, entries):
            where = shown_location(selection.location)
            raise BadService(f"`{field}` does not fit `{where}`: {'; '.join(mistakes)}")
    selected = select_operations(every, selection.include, selection.exclude)
    made = make_tools(document, selected)
    return ApiService(
        document=document,
        base_url=base_url,
        tools=made.tools,
        operations=made.operations,
        left_out=(*found.left_out, *made.left_out),
        schemes=found.schemes,
        hidden=hidden,
        deselected=len(every) - len(selected),
        with_slashes=frozenset(each.tool for each in selected if matches(each, selection.slashes)),
    )


def choose_base_url(servers: object, location: str) -> str:
    """Return the URL of the service that a document names. Raises BadDocument if it may not choose it.

    Credentials go there, so a document at a URL may only name its own origin, and a file no address of a network that
    its author does not know.
    """
    written = [each for each in servers if isinstance(each, dict)] if isinstance(servers, list) else []
    url = find_base_url(cast("list[Json]", written), _without_user(location) if is_url(location) else "")
    hint = f"set `url` to `{url}` if that is the service"
    if is_url(location):
        if not is_same_origin(url, location):
            raise BadDocument(f"names a server on another host or port, `{url}`", hint=hint)
    elif not _may_be_named(url):
        raise BadDocument(f"names a server that is neither https nor this machine, `{url}`", hint=hint)
    return url


def find_base_url_in(data: bytes, location: str) -> str:
    """Return the URL of the service, without reading the whole document where possible. Raises BadDocument."""
    return choose_base_url(read_servers(data), location)


def _may_be_named(url: str) -> bool:
    """Return whether a file may name this server: this machine, or a public one by https."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        is_number = host.rstrip(".").rpartition(".")[2].isdigit() or host.startswith("0x")
        return parts.scheme == "https" and not is_number
    return address.is_loopback or (parts.scheme == "https" and address.is_global)


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def shown_location(location: str) -> str:
    """Return where a document is, without what may be secret in a URL."""
    if not is_url(location):
        return location
    parts = urlsplit(location)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _find_hidden(selection: Selection) -> frozenset[tuple[Place, str]]:
    places: tuple[tuple[Place, Iterable[str]], ...] = (
        ("header", (name.lower() for name in selection.headers)),
        ("query", selection.query),
        ("cookie", selection.cookies),
    )
    return frozenset((place, name) for place, names in places for name in names)


def _describe(scheme: SecurityScheme) -> str:
    match scheme.kind:
        case "apiKey" if scheme.place == "cookie":
            return f"the cookie `{scheme.field}` (`headers`: `Cookie`)"
        case "apiKey":
            return f"the {scheme.place} `{scheme.field}` (`{'query' if scheme.place == 'query' else 'headers'}`)"
        case "basic":
            return "a name and a password (`headers`: `Authorization`, or in `url`)"
        case "oauth2" | "openIdConnect":
            return "a token (`headers`: `Authorization`, or `oauth`)"
    return "a token (`headers`: `Authorization`)"
