"""The definitions of a server that models see, in a canonical form, and their fingerprints.

Two definitions have the same fingerprint exactly if no reader can tell them apart. `_meta` and icons do not count,
but for what a tool says of its UI, which is a definition of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from hashlib import sha256

import msgspec
from msgspec import Raw

from dynamic_mcp.groups.catalog import Catalog, ListKind, may_have_ui
from dynamic_mcp.mcp import wire

# The prefix of each fingerprint: it distinguishes a new algorithm from a changed definition.
SCHEME = "h1:"
_MAX_SEARCHED_BYTES = 1 << 20
_OF_UI = frozenset(("ui", "ui/resourceUri"))
# Members that clients do not show to a model. All others count, even non-standard ones: a client may show them.
_UNCOUNTED = frozenset(("_meta", "icons", "execution"))
# How canonical JSON writes the characters of ASCII that nobody sees.
_ESCAPES = (b"\\u", b"\\b", b"\x7f")


class PinKind(Enum):
    """A kind of pinned definition: its noun, its member in the lock file, and its list."""

    TOOL = ("tool", "tools", ListKind.TOOLS)
    UI = ("UI of the tool", "uis", ListKind.TOOLS)
    PROMPT = ("prompt", "prompts", ListKind.PROMPTS)
    TEMPLATE = ("resource template", "templates", ListKind.TEMPLATES)
    SKILL = ("skill", "skills", ListKind.SKILLS)
    INSTRUCTIONS = ("instructions", "instructions", None)

    def __init__(self, noun: str, member: str, listed_as: ListKind | None) -> None:
        self.noun = noun
        self.member = member
        self.listed_as = listed_as


# The name of a definition: the key of a tool, a prompt or a template; instructions have no name, and the UI of a tool
# has the tool's.
Key = tuple[PinKind, str]


def definitions(catalog: Catalog) -> Iterator[tuple[PinKind, str, Raw]]:
    """Yield the definitions of a catalog to pin: the kind, the name, and the unchanged entry."""
    for kind in PinKind:
        if kind.listed_as is not None:
            for name, entry in catalog.entries(kind.listed_as).items():
                if kind is not PinKind.UI:
                    yield kind, name, _in_order(entry) if kind is PinKind.SKILL else entry
                elif (ui := _find_ui(entry)) is not None:
                    yield kind, name, ui
    if catalog.title:  # models see it, too
        server_info = {"title": catalog.title, "instructions": catalog.instructions}
        yield PinKind.INSTRUCTIONS, "", Raw(wire.encode(server_info))
    elif catalog.instructions:
        yield PinKind.INSTRUCTIONS, "", Raw(wire.encode(catalog.instructions))


def _find_ui(tool: Raw) -> Raw | None:
    """Return what a tool says of its UI in `_meta`: whose page it is, who may call the tool; None if nothing."""
    if not may_have_ui(bytes(tool)):
        return None
    try:
        meta = wire.members(wire.member(tool, "_meta"))
    except wire.Malformed:
        return None
    found = {name: each for name, each in meta.items() if name in _OF_UI or name.startswith("openai/")}
    return Raw(wire.encode(found)) if found else None


def _in_order(skill: Raw) -> Raw:
    """Return the entry of a skill with its files in a fixed order, which means nothing."""
    try:
        files = wire.elements(wire.member(skill, "resources"))
    except wire.Malformed:  # it is generated
        return skill
    ordered = sorted(files, key=lambda each: (wire.text(wire.member(each, "uri")) or "", bytes(each)))
    return skill if ordered == files else wire.with_member(skill, ordered, "resources")


def is_plain(form: Raw) -> bool:
    """Return whether a canonical definition has nothing but printable ASCII characters, so that none is hidden."""
    source = bytes(form)
    return source.isascii() and not any(escape in source for escape in _ESCAPES)


def canonical(entry: Raw) -> bytes:
    """Return the relevant members of an entry as JSON without white space, with sorted keys.

    An entry that is ambiguous or cannot be decoded stays unchanged.
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
    """Return whether decoding an entry lost nothing, as it would with duplicate names.

    Each name has two quotes, and the encoded form has as many as the original, unless one was escaped.
    """
    source = bytes(entry)
    return b"\\u0022" not in source and source.count(b'"') == encoded.count(b'"')


def has_duplicates(entry: Raw) -> bool:
    """Return whether an object has duplicate names; also true if it is too large to search."""
    try:
        if _has_all_of(entry, msgspec.json.encode(msgspec.json.decode(entry))):
            return False
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    return len(entry) > _MAX_SEARCHED_BYTES or wire.find_duplicate_name(entry) is not None
