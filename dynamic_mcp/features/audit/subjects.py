"""What many lines of the audit log have in common, made once: who a client is, and what is known of a tool."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw, Struct, structs

from dynamic_mcp.client import Client, ClientHello
from dynamic_mcp.features.audit import chain
from dynamic_mcp.features.audit.chain import AuditLine
from dynamic_mcp.identity import Authentication
from dynamic_mcp.mcp import wire
from dynamic_mcp.policy.classify import access_of
from dynamic_mcp.proxy.targets import Target
from dynamic_mcp.proxy.view import GroupView
from dynamic_mcp.system.bounded import BoundedDict

_MAX_TOOLS = 10_000
_MAX_PATTERNS = 20  # for each client
_LONGEST_TEXT = 200


class Pattern(Struct, frozen=True):
    """What the lines of the same use of the same thing by the same client share; `head` is its JSON, without its end.

    It is good for as long as the group's `catalog` is the same.
    """

    line: AuditLine
    head: bytes
    catalog: object

    @staticmethod
    def of(line: AuditLine, catalog: object) -> Pattern:
        """Return the pattern of a line without what each call has of its own."""
        return Pattern(line, chain.encode(line)[:-1], catalog)


class KnownClient(Struct, frozen=True):
    """The line of a client, what it was made of, and patterns for what the client uses."""

    authentication: Authentication
    hello: ClientHello
    line: AuditLine
    patterns: BoundedDict[tuple[str, ...], Pattern]


class ClientLines:
    """Lines that say who a client is, and nothing else."""

    def __init__(self, plain: AuditLine, roles_of: Callable[[Authentication], tuple[str, ...]]) -> None:
        self._plain = plain
        self._roles_of = roles_of
        self._known: WeakKeyDictionary[Client, KnownClient] = WeakKeyDictionary()

    def find(self, client: Client) -> KnownClient:
        """Return what is known of a client; its line has the address that it came from first."""
        known = self._known.get(client)
        if known is None or known.authentication is not client.authentication or known.hello is not client.hello:
            known = self._known[client] = self._describe(client)
        return known

    def _describe(self, client: Client) -> KnownClient:
        authentication, hello = client.authentication, client.hello
        line = structs.replace(
            self._plain,
            issuer=authentication.principal.issuer,
            subject=authentication.principal.subject,
            roles=self._roles_of(authentication),
            auth=authentication.provider,
            client=hello.name[:_LONGEST_TEXT],
            client_version=hello.version[:_LONGEST_TEXT],
            address=client.address,
            session=client.id,
        )
        return KnownClient(authentication, hello, line, BoundedDict(_MAX_PATTERNS))


class Used(Struct, frozen=True, gc=False):
    """What is known of a thing that was used: whether it only reads, the hash of its definition, and its server."""

    access: str = ""
    definition: str = ""
    upstream: str = ""
    version: str = ""


_NOTHING = Used()


class UsedThings:
    """Looks up what is known of things; of tools once for each definition."""

    def __init__(self) -> None:
        self._by_group: WeakKeyDictionary[GroupView, _GroupThings] = WeakKeyDictionary()

    def find(self, group: GroupView | None, target: Target) -> Used:
        """Return what is known of a thing."""
        if group is None:
            return _NOTHING
        found = self._by_group.get(group)
        if found is None:
            found = self._by_group[group] = _GroupThings()
        return found.find(group, target)


class _GroupThings:
    def __init__(self) -> None:
        self._tools: BoundedDict[str | None, tuple[Raw | None, object, Used]] = BoundedDict(_MAX_TOOLS)
        self._hello: object = None
        self._upstream = ("", "")

    def find(self, group: GroupView, target: Target) -> Used:
        catalog = group.group.known
        hello = None if catalog is None else catalog.hello
        if hello is not self._hello:
            server = wire.ABSENT if hello is None else hello.get("serverInfo", wire.ABSENT)
            self._upstream = _text(server, "name"), _text(server, "version")
            self._hello = hello
        name = target.name if target.kind == "tool" else None
        entry = catalog.tools.get(name) if catalog is not None and name is not None else None
        known = self._tools.get(name)
        if known is None or known[0] is not entry or known[1] is not hello:
            known = self._tools[name] = (entry, hello, self._describe(group, target, entry))
        return known[2]

    def _describe(self, group: GroupView, target: Target, entry: Raw | None) -> Used:
        if target.kind != "tool":
            return Used("read", "", *self._upstream)
        if entry is None:  # nothing is known of it, so it may do anything
            return Used("write", "", *self._upstream)
        access = access_of(target.name, entry, group.presentation.access).access
        return Used(access, hash_definition(entry), *self._upstream)


def hash_definition(entry: Raw) -> str:
    """Return the SHA-256 of a tool's definition in hex, the same however its JSON is written."""
    try:
        canonical = msgspec.json.encode(msgspec.json.decode(entry), order="sorted")
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        canonical = bytes(entry)
    return hashlib.sha256(canonical).hexdigest()


def _text(data: Raw, name: str) -> str:
    return (wire.text(wire.member(data, name)) or "")[:_LONGEST_TEXT]
