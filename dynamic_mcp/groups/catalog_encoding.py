"""Catalogs as JSON, for the disk and for commands. Every entry keeps the bytes in which it arrived."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw

from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from dynamic_mcp.mcp import wire


def encode_catalog(catalog: Catalog) -> dict[str, object]:
    """Return a catalog as the members of a JSON object."""
    return {
        "instructions": catalog.instructions,
        "title": catalog.title,
        "capabilities": catalog.capabilities,
        "hello": catalog.hello,
        "lists": {kind.name: _encode_listing(listing) for kind, listing in catalog.lists.items()},
    }


def decode_catalog(members: Mapping[str, Raw]) -> Catalog:
    """Return the catalog that `encode_catalog` was given. Raises ValueError and KeyError for anything else."""
    return Catalog(
        {ListKind[name]: _decode_listing(listing) for name, listing in wire.members(members["lists"]).items()},
        wire.members(members["capabilities"]),
        wire.text(members["instructions"]) or "",
        wire.text(members["title"]) or "",
        None if bytes(members.get("hello", wire.NULL)) == b"null" else wire.members(members["hello"]),
    )


def _encode_listing(listing: Listing) -> dict[str, object]:
    complaints = {"complaints": listing.complaints} if listing.complaints else {}
    unknown = {"is_unknown": True} if listing.is_unknown else {}
    error = {"error": listing.error} if listing.has_failed else {}
    return {"entries": list(listing.entries.items()), "rest": listing.rest, **complaints, **unknown, **error}


def _decode_listing(data: Raw) -> Listing:
    members = wire.members(data)
    pairs = [wire.elements(pair) for pair in wire.elements(members["entries"])]
    entries = {wire.text(key) or "": entry for key, entry in pairs}
    complaints = tuple(wire.text(each) or "" for each in wire.elements(members.get("complaints", wire.EMPTY_ARRAY)))
    error = members.get("error", wire.ABSENT)
    return Listing(entries, wire.members(members["rest"]), complaints, "is_unknown" in members, error=error)
