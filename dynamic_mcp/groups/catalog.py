"""What a group offers, read from its lists and kept as the bytes that arrived.

An entry that cannot be used is left out by itself; the others stay, in the upstream's order.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from msgspec import Raw

from dynamic_mcp.errors import DynamicMcpError, Refused
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.mirrored_headers import HeaderParameters, find_mirrored
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.system.text import one_line
from dynamic_mcp.tools.schema import InputSchema

MAX_PAGES = 100
MAX_BYTES = 64 << 20
# Input schemas that are kept compiled; a model uses few tools at a time.
MAX_COMPILED = 128

Ask = Callable[[str, Mapping[str, Raw]], Awaitable[dict[str, Raw]]]


class ListKind(Enum):
    """A list of an upstream: its method, the result's member, what tells its entries apart, and the capability."""

    TOOLS = ("tools/list", "tools", "name", "tools")
    RESOURCES = ("resources/list", "resources", "uri", "resources")
    TEMPLATES = ("resources/templates/list", "resourceTemplates", "uriTemplate", "resources")
    PROMPTS = ("prompts/list", "prompts", "name", "prompts")

    def __init__(self, method: str, member: str, key: str, capability: str) -> None:
        self.method = method
        self.member = member
        self.key = key
        self.capability = capability

    @property
    def noun(self) -> str:
        """One entry, in words."""
        return self.member.removesuffix("s").replace("resourceT", "resource t")


# Which lists a `notifications/<capability>/list_changed` is about.
CHANGED_BY = {
    f"notifications/{capability}/list_changed": frozenset(kind for kind in ListKind if kind.capability == capability)
    for capability in ("tools", "resources", "prompts")
}


@dataclass(frozen=True)
class Listing:
    """One list, all pages of it: entries by key, and the result's other members. `complaints` is what was wrong.

    `is_unknown`: the upstream does not know this list, though it has the capability.
    """

    entries: Mapping[str, Raw] = field(default_factory=dict)
    rest: Mapping[str, Raw] = field(default_factory=dict)
    complaints: tuple[str, ...] = field(default=(), compare=False)
    is_unknown: bool = False


UNKNOWN = Listing(is_unknown=True)


@dataclass(frozen=True)
class Catalog:
    """What a group offers, as far as it is known, and what the upstream says of itself.

    `hello` has the members of its `initialize` result but for the revision; None is not known.
    """

    lists: Mapping[ListKind, Listing] = field(default_factory=dict)
    capabilities: Mapping[str, Raw] = field(default_factory=dict)
    instructions: str = ""
    title: str = ""
    hello: Mapping[str, Raw] | None = None

    @cached_property
    def tools(self) -> Mapping[str, Raw]:
        """The tools by name."""
        return self.entries(ListKind.TOOLS)

    @cached_property
    def mirrored(self) -> Mapping[str, HeaderParameters]:
        """The parameters that calls over HTTP repeat in headers, by the names of the tools that have any."""
        return find_mirrored(self.tools)

    def entries(self, kind: ListKind) -> Mapping[str, Raw]:
        """Return the entries of a list by key; none while it is not known."""
        listing = self.lists.get(kind)
        return listing.entries if listing else {}

    def knows(self, kinds: Iterable[ListKind]) -> bool:
        """Tell whether these lists have been read."""
        return all(kind in self.lists for kind in kinds)

    def complaint(self, kinds: Iterable[ListKind]) -> str | None:
        """Say what is missing from these lists; None when they are not known."""
        if not self.knows(kinds):
            return None
        return "; ".join(line for kind in kinds for line in self.lists[kind].complaints)

    def with_lists(self, lists: Mapping[ListKind, Listing]) -> Catalog:
        """Return the catalog with these lists instead of those that it had."""
        return replace(self, lists={**self.lists, **lists})

    def may(self, capability: str, *part: str) -> bool:
        """Tell whether the upstream declared a capability, or a part of one as `subscribe` of `resources`."""
        if not part:
            return capability in self.capabilities
        declared = wire.member(self.capabilities.get(capability, wire.EMPTY_OBJECT), *part)
        return bytes(declared) not in (b"", b"null", b"false")

    def input_schema(self, tool: str) -> InputSchema:
        """Return what a tool takes, ready to be asked; one that has none takes every object."""
        found = self._compiled.get(tool)
        if found is None:
            raw = wire.member(self.tools.get(tool, wire.EMPTY_OBJECT), "inputSchema")
            found = self._compiled[tool] = InputSchema(raw if len(raw) else wire.EMPTY_OBJECT)
        return found

    @cached_property
    def _compiled(self) -> BoundedDict[str, InputSchema]:
        return BoundedDict(MAX_COMPILED)

    @cached_property
    def summary(self) -> str:
        """One line on what this group is, from the upstream's title or instructions; may be empty."""
        return one_line(self.title) or one_line(_first_sentence(self.instructions))


async def read_or_keep(ask: Ask, kind: ListKind, known: Catalog) -> tuple[Listing, bool]:
    """Read a list, and tell whether it could be read; one that cannot stays what it was, and says so."""
    try:
        return await read_list(ask, kind), True
    except DynamicMcpError as exc:
        if isinstance(exc, Refused) and exc.is_unknown:
            return UNKNOWN, True  # many servers with resources have no templates
        complaint = f"{kind.method} could not be read: {exc.message}"
        return replace(known.lists.get(kind, Listing()), complaints=(complaint,)), False


async def read_list(ask: Ask, kind: ListKind) -> Listing:
    """Read all pages of a list, with what was wrong with it.

    `ask` sends one request and returns its result's members; what it raises passes.
    """
    found, rest, complaints = await _all_pages(ask, kind)
    entries: dict[str, Raw] = {}
    for entry in found:
        key = _key(entry, kind)
        if key is None:
            complaints.append(f"a {kind.noun} without a {kind.key} was left out")
        elif key in entries:
            complaints.append(f"a second {kind.noun} with the {kind.key} `{key}` was left out")
        else:
            entries[key] = entry
    return Listing(entries, rest, tuple(complaints))


async def _all_pages(ask: Ask, kind: ListKind) -> tuple[list[Raw], dict[str, Raw], list[str]]:
    """Fetch a list within bounds on pages and bytes; a cursor that comes again ends it."""
    entries: list[Raw] = []
    rest: dict[str, Raw] = {}
    complaints: list[str] = []
    seen, size = set[bytes](), 0
    params: dict[str, Raw] = {}
    while len(seen) < MAX_PAGES and size <= MAX_BYTES:
        page = await ask(kind.method, params)
        size += sum(len(value) for value in page.values())
        cursor = bytes(page.pop("nextCursor", wire.NULL))
        try:
            entries += wire.elements(page.pop(kind.member, wire.EMPTY_ARRAY))
        except wire.Malformed:
            complaints.append(f"`{kind.member}` in the answer to {kind.method} is not a list")
        rest |= page
        if cursor == b"null":
            return entries, rest, complaints
        if cursor in seen:
            break
        seen.add(cursor)
        params = {"cursor": Raw(cursor)}
    complaints.append(f"{kind.method} does not end: stopped after {len(seen)} pages and {size} bytes")
    return entries, rest, complaints


def _key(entry: Raw, kind: ListKind) -> str | None:
    try:
        return wire.text(wire.members(entry).get(kind.key)) or None
    except wire.Malformed:
        return None


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s|\n\n", text.strip(), maxsplit=1)[0].removesuffix(".")
