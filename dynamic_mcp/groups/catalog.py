"""The catalog of a group: its lists, kept as the bytes that arrived.

An entry that cannot be used is left out by itself; the others stay, in the upstream's order.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Raw, Struct
from msgspec.structs import replace

from dynamic_mcp.errors import DynamicMcpError, ErrorAnswer, UpstreamError
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.envelope import CACHE_SCOPE, TTL_MS
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.system.text import one_line

if TYPE_CHECKING:  # loaded with the first call, and the first server whose tools name headers or have a UI
    from dynamic_mcp.mcp.apps import AppTool
    from dynamic_mcp.mcp.mirrored_headers import HeaderParameters
    from dynamic_mcp.tools.schema import InputSchema

MAX_PAGES = 100
MAX_BYTES = 64 << 20
MAX_ENTRIES = 50_000
# The most complaints about one list; a server may have any number of invalid entries.
_MAX_COMPLAINTS = 10
_LONGEST_KEY_SHOWN = 60
# How many entries are looked at before others have their turn.
_ENTRIES_AT_ONCE = 500
# Input schemas that are kept compiled; a model uses few tools at a time.
MAX_COMPILED = 128

Ask = Callable[[str, Mapping[str, Raw]], Awaitable[dict[str, Raw]]]


class ListKind(Enum):
    """A list of an upstream: its method, the result's member, what tells its entries apart, and the capability.

    `longest` is how many characters that may have. MCP allows the name of a tool 128; longer templates match nothing.
    The list of an `extension` is read from upstreams that declare it; its capability is the feature that it belongs
    to (https://github.com/modelcontextprotocol/ext-skills, specification/stable/skills.mdx).
    """

    __hash__ = object.__hash__  # that of an Enum takes a call of Python, and kinds are keys on the way of each call
    TOOLS = ("tools/list", "tools", "name", "tools", 128)
    RESOURCES = ("resources/list", "resources", "uri", "resources", 8192)
    TEMPLATES = ("resources/templates/list", "resourceTemplates", "uriTemplate", "resources", 2000)
    PROMPTS = ("prompts/list", "prompts", "name", "prompts", 256)
    SKILLS = ("skills/list", "skills", "uri", "resources", 8192, "io.modelcontextprotocol/skills")

    def __init__(
        self, method: str, member: str, key: str, capability: str, longest: int, extension: str = ""
    ) -> None:
        self.method = method
        self.member = member
        self.key = key
        self.capability = capability
        self.longest = longest
        self.extension = extension

    @property
    def noun(self) -> str:
        return self.member.removesuffix("s").replace("resourceT", "resource t")


# Which lists a `notifications/<capability>/list_changed` is about. The extension defines none of its own for skills,
# which are resources, but a server may send one.
CHANGED_BY = {
    **{
        f"notifications/{name}/list_changed": frozenset(kind for kind in ListKind if kind.capability == name)
        for name in ("tools", "resources", "prompts")
    },
    "notifications/skills/list_changed": frozenset((ListKind.SKILLS,)),
}


class ListHint(Struct, frozen=True):
    """A modern upstream's cache hint for a list: seconds that it is fresh, and whether it is for one client only.

    `read_at` is the time of the clock when it was asked for.
    """

    ttl_s: float
    is_private: bool
    read_at: float


class ListRules(Struct, frozen=True):
    """Rules for reading the lists of a link: whether they have hints, and tools whose parameters become headers."""

    has_hints: bool = False
    mirrors_headers: bool = False


LEGACY_RULES = ListRules()


class Listing(Struct, frozen=True, eq=False, dict=True):
    """One list, all pages of it: entries by key, and the result's other members. `complaints` is what was wrong.

    `is_unknown`: the upstream does not know this list, though it has the capability. `hint` is of modern upstreams.
    `error` is the JSON-RPC error because of which the entries are those of an earlier reading, if there was one.

    Two are equal if the upstream has said the same, however it was read.
    """

    entries: Mapping[str, Raw] = {}
    rest: Mapping[str, Raw] = {}
    complaints: tuple[str, ...] = ()
    is_unknown: bool = False
    hint: ListHint | None = None
    error: Raw = wire.ABSENT

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Listing):
            return NotImplemented
        return (self.entries, self.rest, self.is_unknown) == (other.entries, other.rest, other.is_unknown)

    __hash__ = None  # type: ignore[assignment]  # as of all that compares by its content

    @property
    def has_failed(self) -> bool:
        return len(self.error) > 0

    @cached_property
    def app_tools(self) -> Mapping[str, AppTool]:
        """What the tools of this list say of a UI, by name; without those that say nothing of one."""
        candidates = {name: tool for name, tool in self.entries.items() if may_have_ui(bytes(tool))}
        if not candidates:
            return {}
        from dynamic_mcp.mcp.apps import read_app_tools

        return read_app_tools(candidates)

    @cached_property
    def for_model(self) -> Mapping[str, Raw]:
        """The tools of this list without those that only an app may call."""
        hidden = {name for name, app in self.app_tools.items() if not app.is_for_model}
        return {name: tool for name, tool in self.entries.items() if name not in hidden} if hidden else self.entries


UNKNOWN = Listing(is_unknown=True)


class Catalog(Struct, frozen=True, dict=True):
    """Everything that a group offers, as far as it is known, and the upstream's description of itself.

    `hello` has the members of its `initialize` result but for the revision; None is not known.
    """

    lists: Mapping[ListKind, Listing] = {}
    capabilities: Mapping[str, Raw] = {}
    instructions: str = ""
    title: str = ""
    hello: Mapping[str, Raw] | None = None

    @cached_property
    def tools(self) -> Mapping[str, Raw]:
        return self.entries(ListKind.TOOLS)

    @cached_property
    def model_tools(self) -> Mapping[str, Raw]:
        """The tools that a model may know and call: all but those that only an app may call."""
        listing = self.lists.get(ListKind.TOOLS)
        return listing.for_model if listing else {}

    @property
    def app_tools(self) -> Mapping[str, AppTool]:
        """What tools say of a UI, by name; without those that say nothing of one."""
        listing = self.lists.get(ListKind.TOOLS)
        return listing.app_tools if listing else {}

    @cached_property
    def mirrored(self) -> Mapping[str, HeaderParameters]:
        """The parameters that calls over HTTP repeat in headers, by the names of the tools that have any."""
        from dynamic_mcp.mcp.mirrored_headers import find_mirrored

        return find_mirrored(self.tools)

    def entries(self, kind: ListKind) -> Mapping[str, Raw]:
        """Return the entries of a list by key; none while it is not known."""
        listing = self.lists.get(kind)
        return listing.entries if listing else {}

    def knows(self, kinds: Iterable[ListKind]) -> bool:
        return all(kind in self.lists for kind in kinds)

    def may_have_more(self, kind: ListKind) -> bool:
        """Return whether the upstream may have unknown entries, because its list is not read or cannot be."""
        listing = self.lists.get(kind)
        return self.declares(kind) and (listing is None or listing.has_failed or listing.is_unknown)

    def complaint(self, kinds: Iterable[ListKind]) -> str | None:
        """Return which of these lists are incomplete and why; None when they are not known."""
        if not self.knows(kinds):
            return None
        return "; ".join(line for kind in kinds for line in self.lists[kind].complaints)

    @property
    def failures(self) -> str:
        """The lists that could not be read, and why, in one line; empty if all could."""
        return "; ".join(line for each in self.lists.values() if each.has_failed for line in each.complaints)

    def with_lists(self, lists: Mapping[ListKind, Listing]) -> Catalog:
        """Return the catalog with these lists replaced."""
        return replace(self, lists={**self.lists, **lists})

    def declares(self, kind: ListKind) -> bool:
        """Return whether the upstream declared the capability, or the extension, that a list belongs to."""
        return self.may("extensions", kind.extension) if kind.extension else self.may(kind.capability)

    def announces(self, kind: ListKind) -> bool:
        """Return whether the upstream reports changes of a list."""
        return not kind.extension and self.may(kind.capability, "listChanged")

    def has_skill_file(self, uri: str) -> bool:
        """Return whether a URI is in the directory of a listed skill, or is that directory."""
        roots = self._skill_roots
        if not roots:
            return False
        below = f"{uri}/"
        at = bisect_right(roots, below)
        return at > 0 and below.startswith(roots[at - 1])

    @cached_property
    def _skill_roots(self) -> Sequence[str]:
        """The directories of the listed skills as URIs that end with a slash, sorted; none is in another one.

        So only the last one that is not after a URI can be its beginning, however many segments it has.
        """
        roots: list[str] = []
        for root in sorted(uri.removesuffix("SKILL.md") for uri in self.entries(ListKind.SKILLS)):
            if _is_directory(root) and not (roots and root.startswith(roots[-1])):
                roots.append(root)
        return roots

    def may(self, capability: str, *part: str) -> bool:
        """Return whether the upstream declared a capability, or a part of one such as `subscribe` of `resources`."""
        if not part:
            return capability in self.capabilities
        declared = wire.member(self.capabilities.get(capability, wire.EMPTY_OBJECT), *part)
        return bytes(declared) not in (b"", b"null", b"false")

    def input_schema(self, tool: str) -> InputSchema:
        """Return a tool's compiled input schema; a tool without one accepts every object."""
        found = self._compiled.get(tool)
        if found is None:
            from dynamic_mcp.tools.schema import InputSchema

            raw = wire.member(self.tools.get(tool, wire.EMPTY_OBJECT), "inputSchema")
            found = self._compiled[tool] = InputSchema(raw if len(raw) else wire.EMPTY_OBJECT)
        return found

    @cached_property
    def _compiled(self) -> BoundedDict[str, InputSchema]:
        return BoundedDict(MAX_COMPILED)

    @cached_property
    def summary(self) -> str:
        """One line that describes this group, from the upstream's title or instructions; may be empty."""
        return one_line(self.title) or one_line(_first_sentence(self.instructions))


def may_have_ui(tool: bytes) -> bool:
    """Return whether a tool may have one of the keys of a UI; escapes can write any key."""
    return b'"ui' in tool or b'"openai' in tool or b"\\u" in tool


def keep_list(kind: ListKind, catalog: Catalog, reason: DynamicMcpError, now: float) -> Listing:
    """Return the earlier version of a list that could not be read, marked with the reason."""
    why = reason.reason if isinstance(reason, UpstreamError) else reason.message
    complaint = f"{kind.method} could not be read: {why}"
    before = catalog.lists.get(kind, Listing())
    hint = before.hint and ListHint(before.hint.ttl_s, before.hint.is_private, now)  # it is not asked for at once
    error = reason.error if isinstance(reason, ErrorAnswer) else b""
    error = error or wire.encode({"code": reason.rpc_code, "message": reason.message})
    return replace(before, complaints=(complaint,), hint=hint, error=Raw(error))


async def read_list(ask: Ask, kind: ListKind, *, rules: ListRules = LEGACY_RULES, now: float = 0.0) -> Listing:
    """Read all pages of a list, and collect what is wrong with it.

    `ask` sends one request and returns its result's members; what it raises passes.
    """
    found, rest, complaints, hints = await _all_pages(ask, kind, rules)
    entries: dict[str, Raw] = {}
    for number, entry in enumerate(found[:MAX_ENTRIES], 1):
        if number % _ENTRIES_AT_ONCE == 0:
            await asyncio.sleep(0)
        key = _key(entry, kind)
        if fault := _fault_of(entry, key, kind, entries, rules):
            complaints.append(fault)
        elif key is not None:
            entries[key] = entry
    if len(found) > MAX_ENTRIES:
        complaints.append(f"{kind.method} has {len(found)} entries: those after {MAX_ENTRIES} were left out")
    return Listing(entries, rest, _shorten(complaints), hint=_combine(hints, now))


def _fault_of(entry: Raw, key: str | None, kind: ListKind, keys: Container[str], rules: ListRules) -> str:
    """Return which entry was left out and why; empty if it can be used."""
    if key is None:
        return f"a {kind.noun} without a {kind.key} was left out"
    if len(key) > kind.longest:
        start = one_line(key[:_LONGEST_KEY_SHOWN], _LONGEST_KEY_SHOWN)
        return (
            f"the {kind.noun} `{start}…` was left out: its {kind.key} has {len(key)} characters, "
            f"of which {kind.longest} are allowed"
        )
    if key in keys:
        return f"a second {kind.noun} with the {kind.key} `{key}` was left out"
    if rules.mirrors_headers and kind is ListKind.TOOLS and (fault := _fault_in_headers(entry)):
        return f"the tool `{key}` was left out: {fault}"
    return ""


def _shorten(complaints: Sequence[str]) -> tuple[str, ...]:
    more = len(complaints) - _MAX_COMPLAINTS
    return (*complaints[:_MAX_COMPLAINTS], f"{more} more were left out") if more > 0 else tuple(complaints)


def _fault_in_headers(tool: Raw) -> str:
    """Return why a tool cannot be called over HTTP; empty if it can (MCP 2026-07-28, streamable HTTP)."""
    from dynamic_mcp.mcp.mirrored_headers import HeaderParameters, InvalidAnnotation

    try:
        HeaderParameters.of(wire.member(tool, "inputSchema"))
    except InvalidAnnotation as exc:
        return str(exc)
    return ""


def _combine(hints: list[tuple[Raw, Raw]], now: float) -> ListHint | None:
    """Return the hint for all pages of a list: the shortest time, and private if any page is."""
    if not any(len(ttl) for ttl, _ in hints):
        return None
    ttl_ms = min(_milliseconds(ttl) for ttl, _ in hints)
    return ListHint(ttl_ms / 1000, any(wire.text(scope) != "public" for _, scope in hints), now)


def _milliseconds(ttl: Raw) -> float:
    value = wire.value(ttl) if len(ttl) else 0
    return max(0.0, value) if isinstance(value, int | float) else 0.0


async def _all_pages(
    ask: Ask, kind: ListKind, rules: ListRules
) -> tuple[list[Raw], dict[str, Raw], list[str], list[tuple[Raw, Raw]]]:
    """Fetch a list within bounds on pages and bytes; a repeated cursor ends it.

    Returns its entries, the other members, complaints, and the hint of each page as it came.
    """
    entries: list[Raw] = []
    rest: dict[str, Raw] = {}
    complaints: list[str] = []
    hints: list[tuple[Raw, Raw]] = []
    cursors, size = set[bytes](), 0
    params: dict[str, Raw] = {}
    while len(cursors) < MAX_PAGES and size <= MAX_BYTES:
        page = await ask(kind.method, params)
        size += sum(len(value) for value in page.values())
        cursor = bytes(page.pop("nextCursor", wire.NULL))
        try:
            entries += wire.elements(page.pop(kind.member, wire.EMPTY_ARRAY))
        except wire.Malformed:
            complaints.append(f"`{kind.member}` in the answer to {kind.method} is not a list")
        if rules.has_hints or kind.extension:  # those of extensions have hints in both eras
            hints.append((page.pop(TTL_MS, wire.ABSENT), page.pop(CACHE_SCOPE, wire.ABSENT)))
        rest |= page
        if cursor == b"null":
            return entries, rest, complaints, hints
        if cursor in cursors:
            break
        cursors.add(cursor)
        params = {"cursor": Raw(cursor)}
    complaints.append(f"{kind.method} does not end: stopped after {len(cursors)} pages and {size} bytes")
    return entries, rest, complaints, hints


def _key(entry: Raw, kind: ListKind) -> str | None:
    try:
        return wire.text(wire.members(entry).get(kind.key)) or None
    except wire.Malformed:
        return None


def _is_directory(root: str) -> bool:
    """Return whether a URI is one of a directory, and not the beginning of all URIs of a scheme."""
    return root.endswith("/") and root != "/" and not root.endswith((":/", "//"))


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s|\n\n", text.strip(), maxsplit=1)[0].removesuffix(".")


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
    """Decode a catalog that `encode_catalog` has encoded. Raises ValueError and KeyError for anything else."""
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
