"""How many tokens of tool definitions dynamic-mcp keeps out of each conversation: estimated, 4 characters a token."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from weakref import WeakKeyDictionary

from msgspec import Raw, Struct

from dynamic_mcp.mcp import wire
from dynamic_mcp.ui.memo import are_same
from dynamic_mcp.ui.page_turns import PageTurns
from dynamic_mcp.ui.section import UiClient

_BYTES_PER_TOKEN = 4
# The members of a tool that every client passes to its model.
_MEMBERS = ("name", "description", "inputSchema")


class Savings(Struct, frozen=True):
    """The tokens of all known tools, and of those that are listed to a client."""

    direct: int
    listed: int

    @property
    def saved(self) -> int:
        return max(self.direct - self.listed, 0)


class SavingsMeter:
    """Measures the tools of groups, each list once, and what is listed to a person once while nothing changes."""

    def __init__(self, turns: PageTurns) -> None:
        self._turns = turns
        self._listed: WeakKeyDictionary[UiClient, tuple[Sequence[object], int]] = WeakKeyDictionary()
        self._measured: dict[str, tuple[Mapping[str, Raw], int]] = {}

    async def measure(self, client: UiClient) -> Savings:
        """Return the figures for what this person may see."""
        direct, seen = 0, list[object]()
        async for group in self._turns.split(client.groups):
            catalog = group.catalog
            direct += 0 if catalog is None else self._measure(group.name, catalog.tools)
            seen += (group.config, catalog)
        before, listed = self._listed.get(client, ((), 0))
        if not are_same(before, seen):
            listed = _size(wire.elements(wire.member(await client.ask("tools/list", {}), "tools")))
            self._listed[client] = seen, listed
        return Savings(direct // _BYTES_PER_TOKEN, listed // _BYTES_PER_TOKEN)

    def _measure(self, name: str, tools: Mapping[str, Raw]) -> int:
        known = self._measured.get(name)
        if known is None or known[0] is not tools:
            known = self._measured[name] = (tools, _size(tools.values()))
        return known[1]


def _size(tools: Iterable[Raw]) -> int:
    members = (wire.members(tool) for tool in tools)
    return sum(len(each[key]) for each in members for key in _MEMBERS if key in each)
