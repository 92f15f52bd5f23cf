"""Which environment a program inherits: a person's choice first, else the tool's, else the wider of two tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dynamic_mcp.importer.convert.plan import Item
from dynamic_mcp.importer.formats.tree import NOTHING
from dynamic_mcp.importer.model import ForeignServer

FIELD = "inherit_env"
Entry = Mapping[str, object]


def with_environment(server: ForeignServer) -> ForeignServer:
    """Return the server with what its tool passes on, if that is more than the default."""
    match server.inherits:
        case None | "safe":
            return server
        case "all":
            return server.with_fields({FIELD: "all"})
        case names:
            return server.with_fields({FIELD: list(names)})


def without_environment(entry: Entry) -> dict[str, object]:
    """Return the entry without its choice of an environment."""
    return {key: value for key, value in entry.items() if key != FIELD}


def with_choice_of(entry: Entry, other: Entry) -> dict[str, object]:
    """Return the entry with the other one's choice of an environment, or without any if it has none."""
    kept = {FIELD: other[FIELD]} if FIELD in other else {}
    return without_environment(entry) | kept


def is_wider(one: Entry, other: Entry) -> bool:
    """Tell whether an entry passes on more of the environment than the other; only the kinds are compared."""
    return _width(one.get(FIELD, NOTHING)) > _width(other.get(FIELD, NOTHING))


def describe_wider(items: Sequence[Item]) -> list[str]:
    """Return one remark for all servers that get more than the safe environment; none if there are none."""
    wider = [item for item in items if item.entry is not None and _has_become_wider(item)]
    if not wider:
        return []
    tools = " and ".join(dict.fromkeys(item.server.source.tool for item in wider))
    names = {item.name for item in wider}
    servers = f"{len(names)} servers get" if len(names) > 1 else "1 server gets"
    change = f"{servers} your environment as {tools} passed it on (`{FIELD}`), because a variable in it may be needed"
    return [f"{change}; to pass on less, set a server's `{FIELD}` to `safe` or to a list of names"]


def _has_become_wider(item: Item) -> bool:
    assert item.entry is not None
    before = item.before or {}
    return FIELD in item.entry and item.entry[FIELD] != before.get(FIELD)


def _width(choice: object) -> int:
    match choice:
        case "all":
            return 3
        case list() if "*" in choice:
            return 2
        case list() if choice:
            return 1
    return 0
