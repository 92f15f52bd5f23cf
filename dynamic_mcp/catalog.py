"""What a group offers, read once from its lists and kept as the bytes that arrived.

An entry that cannot be used is left out by itself; the others stay, in the upstream's order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from msgspec import Raw

from dynamic_mcp import wire

MAX_PAGES = 100
MAX_BYTES = 64 << 20
MAX_DESCRIPTION = 80

Ask = Callable[[str, Mapping[str, Raw]], Awaitable[dict[str, Raw]]]

_SHOWN = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


@dataclass(frozen=True)
class Catalog:
    """The tools of a group, by name and in the upstream's order, and what the upstream says of itself."""

    tools: Mapping[str, Raw]
    instructions: str = ""
    title: str = ""

    @cached_property
    def tools_text(self) -> str:
        """The tools as one compact JSON array, with the members that a model can use."""
        return "[" + ",".join(_shown(tool) for tool in self.tools.values()) + "]"

    @cached_property
    def summary(self) -> str:
        """One line on what this group is, from the upstream's title or instructions; may be empty."""
        return one_line(self.title) or one_line(_first_sentence(self.instructions))


async def read_catalog(ask: Ask, catalog: Catalog, allows: Callable[[str], bool]) -> tuple[Catalog, list[str]]:
    """Return `catalog` with the tools that the upstream lists now, and what was wrong with its list.

    `ask` sends one request and returns its result's members; what it raises passes.
    """
    entries, complaints = await _all_pages(ask, "tools/list", "tools")
    tools: dict[str, Raw] = {}
    for entry in entries:
        name = _name(entry)
        if name is None:
            complaints.append("a tool without a name was left out")
        elif name in tools:
            complaints.append(f"a second tool named `{name}` was left out")
        elif allows(name):
            tools[name] = entry
    return replace(catalog, tools=tools), complaints


async def _all_pages(ask: Ask, method: str, member: str) -> tuple[list[Raw], list[str]]:
    """Fetch a list within bounds on pages and bytes; a cursor that comes again ends it."""
    entries: list[Raw] = []
    complaints: list[str] = []
    seen, size = set[bytes](), 0
    params: dict[str, Raw] = {}
    while len(seen) < MAX_PAGES and size <= MAX_BYTES:
        page = await ask(method, params)
        try:
            entries += wire.elements(page.get(member, Raw(b"[]")))
        except wire.Malformed:
            complaints.append(f"`{member}` in the answer to {method} is not a list")
        size += sum(len(value) for value in page.values())
        cursor = bytes(page.get("nextCursor", wire.NULL))
        if cursor == b"null":
            return entries, complaints
        if cursor in seen:
            break
        seen.add(cursor)
        params = {"cursor": Raw(cursor)}
    complaints.append(f"{method} does not end: stopped after {len(seen)} pages and {size} bytes")
    return entries, complaints


def _name(entry: Raw) -> str | None:
    try:
        return wire.text(wire.members(entry).get("name")) or None
    except wire.Malformed:
        return None


def one_line(text: str) -> str:
    """Make foreign text fit into one line of a list: no control characters, no line ends, bounded."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: MAX_DESCRIPTION * 10]).split())
    return line if len(line) <= MAX_DESCRIPTION else line[: MAX_DESCRIPTION - 1].rstrip() + "…"


def _first_sentence(text: str) -> str:
    head = text.strip().split("\n\n", 1)[0]
    return head.split(". ", 1)[0].rstrip(".")


def _shown(tool: Raw) -> str:
    found = wire.members(tool)
    parts = {key: wire.compact(found[key]) for key in _SHOWN if key in found}
    if not parts.get("inputSchema", b"").startswith(b"{"):
        parts["inputSchema"] = b'{"type":"object"}'  # what the specification asks for at least
    return (b"{" + b",".join(b'"%s":%s' % (key.encode(), value) for key, value in parts.items()) + b"}").decode()
