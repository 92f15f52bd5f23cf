"""Records what a server has offered to which kinds of clients, to find whether it treats them differently.

It is compared when a link opens, once for each kind, and kept with the catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256

from msgspec import Raw, Struct, field
from msgspec.structs import replace

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.groups.catalog import Catalog, ListKind, encode_catalog
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.envelope import ASKED_WITH
from dynamic_mcp.mcp.revisions import NEWEST

# Clients may call themselves anything; the oldest kinds are forgotten.
MAX_KINDS = 32
# A client that says more of itself is compared with no other.
_MAX_BYTES = 4096
# The names of commands, and of clients that send none.
_OURSELVES = ClientInfo().name
# Capabilities that results may depend on without a question: only clients that declare the same share a server.
_EXTENSIONS = ("experimental", "extensions")
_COMMON = frozenset((*ASKED_WITH.values(), *_EXTENSIONS))


class ClientKind(Struct, frozen=True):
    """The part of a client's hello that may matter to a server. The version does not: it changes with every update.

    The kind without a name are all clients with these capabilities, for which a server is initialized as ourselves.
    """

    name: str
    revision: str
    capabilities: bytes

    @property
    def extensions(self) -> bytes:
        """The client's capabilities other than those to be asked, as JSON."""
        declared = _members(Raw(self.capabilities))
        found = {name: wire.value(declared[name]) for name in _EXTENSIONS if name in declared}
        return wire.encode({name: value for name, value in found.items() if value})


class Offers(Struct, frozen=True):
    """The digest of what each kind of client was offered."""

    digests: Mapping[ClientKind, str] = field(default_factory=dict)

    def record(self, kind: ClientKind, digest: str) -> Offers:
        """Return the offers with one more; if it differs from the one before, the others are out of date."""
        before = self.digests.get(kind)
        if before == digest:
            return self
        kept = dict(self.digests) if before is None else {}
        while len(kept) >= MAX_KINDS:
            del kept[next(iter(kept))]
        return Offers({**kept, kind: digest})

    def common_hello(self, kind: ClientKind) -> ClientInfo | None:
        """Return the hello that replaces this kind's, if the server offers several kinds the same.

        It declares what any of them can be asked: a question shows that the server is not to be shared, and a
        client that cannot answer it refuses it. None if too little is known, or the server does make a difference.
        """
        digest, common = self.digests.get(kind), self.digests.get(_common_kind(kind))
        extensions = kind.extensions
        alike = [each for each, its in self.digests.items() if its == digest and each.extensions == extensions]
        kinds = [each for each in alike if each.name]
        if digest is None or (len(kinds) < 2 if common is None else common != digest):
            return None
        return ClientInfo(NEWEST, _union(each.capabilities for each in kinds), is_common=True)


def kind_of(hello: ClientInfo) -> ClientKind | None:
    """Return the kind of a client by its hello; None if it is never compared."""
    kind = ClientKind(hello.name, hello.revision.name, bytes(hello.capabilities))
    if hello.is_common:
        return _common_kind(kind)
    size = len(kind.name) + len(kind.capabilities)
    return kind if kind.name not in ("", _OURSELVES) and size <= _MAX_BYTES else None


def digest_of(offer: Catalog) -> str:
    """Return a digest that is equal for equal catalogs, whatever the order in which lists were read."""
    ordered = replace(offer, lists={kind: offer.lists[kind] for kind in ListKind if kind in offer.lists})
    return sha256(wire.encode(encode_catalog(ordered))).hexdigest()[:32]


def encode_offers(offers: Offers) -> list[object]:
    """Return offers as a JSON array."""
    return [[kind.name, kind.revision, Raw(kind.capabilities), digest] for kind, digest in offers.digests.items()]


def decode_offers(data: Raw) -> Offers:
    """Decode offers that `encode_offers` has encoded. Raises ValueError for anything else."""
    digests: dict[ClientKind, str] = {}
    for each in wire.elements(data):
        name, revision, capabilities, digest = wire.elements(each)
        kind = ClientKind(wire.text(name) or "", wire.text(revision) or "", bytes(capabilities))
        digests[kind] = wire.text(digest) or ""
    return Offers(digests)


def _common_kind(kind: ClientKind) -> ClientKind:
    return ClientKind("", "", kind.extensions)


def _union(capabilities: Iterable[bytes]) -> Raw:
    """Return the union of these capabilities, the same for the same ones in another order."""
    union: dict[str, dict[str, Raw]] = {}
    for each in capabilities:
        for name, value in _members(Raw(each)).items():
            if name in _COMMON and bytes(value) != b"null":
                union.setdefault(name, {}).update(_members(value))
    return Raw(wire.encode({name: dict(sorted(parts.items())) for name, parts in sorted(union.items())}))


def _members(value: Raw) -> dict[str, Raw]:
    try:
        return wire.members(value)
    except wire.Malformed:
        return {}
