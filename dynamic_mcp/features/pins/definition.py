"""Definitions of a server that models are shown, in one form however they were written, and their fingerprints.

Two definitions have one fingerprint exactly if no reader can tell them apart. `_meta` and icons do not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from hashlib import sha256

import msgspec
from msgspec import Raw

from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.mcp import wire

# Written before each fingerprint, so that another way to make them is told apart from another definition.
SCHEME = "h1:"
_MAX_SEARCHED_BYTES = 1 << 20
# What clients do not show a model. All else counts, also what no revision of the protocol has: a client may show it.
_UNCOUNTED = frozenset(("_meta", "icons", "execution"))


class PinKind(Enum):
    """What is pinned: the word for one, the member of a lock that has them, and their list."""

    TOOL = ("tool", "tools", ListKind.TOOLS)
    PROMPT = ("prompt", "prompts", ListKind.PROMPTS)
    TEMPLATE = ("resource template", "templates", ListKind.TEMPLATES)
    INSTRUCTIONS = ("instructions", "instructions", None)

    def __init__(self, noun: str, member: str, listed_as: ListKind | None) -> None:
        self.noun = noun
        self.member = member
        self.listed_as = listed_as


# What names a thing of a server: a tool, a prompt or a template by its key; instructions have no name.
Key = tuple[PinKind, str]


def definitions(catalog: Catalog) -> Iterator[tuple[PinKind, str, Raw]]:
    """Yield what is to be pinned of a catalog: the kind, the name, and the entry as it came."""
    for kind in PinKind:
        if kind.listed_as is not None:
            for name, entry in catalog.entries(kind.listed_as).items():
                yield kind, name, entry
    if catalog.title:  # models are shown it, too
        server_info = {"title": catalog.title, "instructions": catalog.instructions}
        yield PinKind.INSTRUCTIONS, "", Raw(wire.encode(server_info))
    elif catalog.instructions:
        yield PinKind.INSTRUCTIONS, "", Raw(wire.encode(catalog.instructions))


def canonical(entry: Raw) -> bytes:
    """Return what counts of an entry as JSON without white space, its keys sorted.

    An entry that readers may take in two ways, or that cannot be decoded, stays as it is.
    """
    try:
        value = msgspec.json.decode(entry)
        whole = msgspec.json.encode(value, order="sorted")
    except (msgspec.DecodeError, OverflowError, UnicodeError, RecursionError):
        return bytes(entry)
    if not _has_all_of(entry, whole) and has_duplicates(entry):
        return bytes(entry)
    what_counts = _counted(value)
    return whole if what_counts is value else msgspec.json.encode(what_counts, order="sorted")


def fingerprint(entry: Raw) -> str:
    """Return the fingerprint of an entry: `h1:` and 64 hexadecimal digits."""
    return digest(Raw(canonical(entry)))


def digest(form: Raw) -> str:
    """Return the fingerprint of an entry in its canonical form."""
    return SCHEME + sha256(form).hexdigest()


def _counted(value: object) -> object:
    if not isinstance(value, dict) or _UNCOUNTED.isdisjoint(value):
        return value
    return {name: each for name, each in value.items() if name not in _UNCOUNTED}


def _has_all_of(entry: Raw, encoded: bytes) -> bool:
    """Return whether nothing was lost when an entry was decoded, as a member is whose name comes twice.

    Each name has two quotes, and what is encoded has as many as what was read, unless one was written as an escape.
    """
    source = bytes(entry)
    return b"\\u0022" not in source and source.count(b'"') == encoded.count(b'"')


def has_duplicates(entry: Raw) -> bool:
    """Return whether an object has a name twice; also true of what is too large to be searched."""
    try:
        if _has_all_of(entry, msgspec.json.encode(msgspec.json.decode(entry))):
            return False
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    return len(entry) > _MAX_SEARCHED_BYTES or wire.find_duplicate_name(entry) is not None
