"""A server as a registry describes it (`server.json`): all published versions of the format become one `Document`.

A package or a remote that is wrong does not spoil the others; the document says what is wrong with it.
https://github.com/modelcontextprotocol/registry/tree/main/docs/reference/server-json
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct

from dynamic_mcp.features.registry.inputs import Argument, Input, Keyed, read_argument, read_keyed, read_plain_input
from dynamic_mcp.features.registry.reading import MOST_ITEMS, FlawedDocument, Reader

T = TypeVar("T")
Status = Literal["active", "deprecated", "deleted"]

NAME = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")
_LONGEST_NAME, _LONGEST_VERSION = 200, 255
_OFFICIAL = "io.modelcontextprotocol.registry/official"
_WORST_FIRST: tuple[Status, ...] = ("deleted", "deprecated")


class Package(Struct, frozen=True, kw_only=True):
    """A program to start. `kind` is the type of its package registry: npm, pypi, oci, nuget, mcpb, or another."""

    kind: str
    identifier: str
    version: str = ""
    transport: str = "stdio"
    base_url: str = ""
    hint: str = ""
    runtime_arguments: tuple[Argument, ...] = ()
    arguments: tuple[Argument, ...] = ()
    variables: tuple[Keyed, ...] = ()

    @property
    def label(self) -> str:
        """What it is called where one chooses, which stays from version to version."""
        return f"{self.kind}:{self.identifier}" if self.kind != "oci" else f"oci:{image_name(self.identifier)}"


class RemoteServer(Struct, frozen=True, kw_only=True):
    """A server to reach; the `{names}` in its URL stand for `variables`."""

    kind: Literal["http", "sse"]
    url: str
    headers: tuple[Keyed, ...] = ()
    variables: Mapping[str, Input] = {}

    @property
    def label(self) -> str:
        """What it is called where one chooses."""
        return self.url


class Document(Struct, frozen=True, kw_only=True):
    """One version of a server. `flaws` says what was wrong with it, `digest` tells whether it has changed."""

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
    digest: str = ""


def read_answer(value: object) -> Document:
    """Return the document in an answer: `{"server": …, "_meta": …}`, or the server alone. Raises FlawedDocument."""
    answer = Reader(value, "")
    server = answer.inner("server")
    if server is None:
        return _read_document(value, {})
    assert isinstance(value, dict)
    return _read_document(value["server"], value.get("_meta"))


def _read_document(value: object, meta: object) -> Document:
    server = Reader(value, "")
    assert isinstance(value, dict)
    name, version = server.required("name"), server.required("version")
    if not NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise FlawedDocument("`name` is not the name of a server")
    if len(version) > _LONGEST_VERSION:
        raise FlawedDocument("`version` is too long")
    facts = [each for each in (_official(meta), _official(value.get("_meta"))) if each is not None]
    repository = value.get("repository")
    flaws: list[str] = []
    return Document(
        name=name,
        version=version,
        description=server.remark("description"),
        title=server.remark("title"),
        status=_worst([*(each.remark("status") for each in facts), server.remark("status")]),
        message=next((text for each in facts if (text := each.remark("statusMessage"))), ""),
        published=next((text for each in facts if (text := each.remark("publishedAt"))), ""),
        repository=Reader(repository, "").remark("url") if isinstance(repository, dict) else "",
        website=server.remark("websiteUrl"),
        packages=tuple(_each(value.get("packages"), "packages", _read_package, flaws)),
        remotes=tuple(_each(value.get("remotes"), "remotes", _read_remote, flaws)),
        flaws=tuple(flaws),
        digest=sha256(msgspec.json.encode(value, order="deterministic")).hexdigest(),
    )


def _official(meta: object) -> Reader | None:
    own = meta.get(_OFFICIAL) if isinstance(meta, dict) else None
    return Reader(own, "") if isinstance(own, dict) else None


def _worst(said: list[str]) -> Status:
    return next((status for status in _WORST_FIRST if status in said), "active")


def _each(value: object, name: str, read: Callable[[Reader], T], flaws: list[str]) -> Iterator[T]:
    """Yield what `read` makes of the right items of a list, and note what is wrong with the others."""
    if value is None:
        return
    if not isinstance(value, list):
        flaws.append(f"`{name}` is not a list")
        return
    if len(value) > MOST_ITEMS:
        flaws.append(f"only the first {MOST_ITEMS} of `{name}` count")
    for number, item in enumerate(value[:MOST_ITEMS]):
        try:
            yield read(Reader(item, f"{name}[{number}]"))
        except (FlawedDocument, RecursionError) as exc:
            flaws.append(f"`{name}[{number}]` cannot be used: {str(exc) or 'it is nested too deeply'}")


def _read_package(package: Reader) -> Package:
    transport = package.inner("transport")
    return Package(
        kind=package.required("registryType"),
        identifier=package.required("identifier"),
        version=package.text("version") or "",
        transport="stdio" if transport is None else transport.required("type"),
        base_url=package.text("registryBaseUrl") or "",
        hint=package.text("runtimeHint") or "",
        runtime_arguments=package.each("runtimeArguments", read_argument),
        arguments=package.each("packageArguments", read_argument),
        variables=package.each("environmentVariables", read_keyed),
    )


def _read_remote(remote: Reader) -> RemoteServer:
    kind = remote.required("type")
    if kind not in ("streamable-http", "sse"):
        raise FlawedDocument(f"its transport `{kind[:50]}` is unknown")
    return RemoteServer(
        kind="sse" if kind == "sse" else "http",
        url=remote.required("url"),
        headers=remote.each("headers", read_keyed),
        variables=remote.by_name("variables", read_plain_input),
    )


def image_name(image: str) -> str:
    """Return the reference of an image without its tag and its digest."""
    head, slash, last = image.partition("@")[0].rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"
