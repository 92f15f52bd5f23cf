"""How many tokens of tool definitions dynamic-mcp keeps out of each conversation: estimated, 4 characters a token."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Raw, Struct

from dynamic_mcp.mcp import wire
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
    """Measures the tools of groups, each list once."""

    def __init__(self) -> None:
        self._measured: dict[str, tuple[Mapping[str, Raw], int]] = {}

    async def measure(self, client: UiClient) -> Savings:
        """Return the figures for what this person may see."""
        catalogs = [(group.name, group.catalog) for group in client.groups]
        direct = sum(self._measure(name, catalog.tools) for name, catalog in catalogs if catalog is not None)
        listed = wire.elements(wire.member(await client.ask("tools/list", {}), "tools"))
        return Savings(direct // _BYTES_PER_TOKEN, _size(listed) // _BYTES_PER_TOKEN)

    def _measure(self, name: str, tools: Mapping[str, Raw]) -> int:
        known = self._measured.get(name)
        if known is None or known[0] is not tools:
            known = self._measured[name] = (tools, _size(tools.values()))
        return known[1]


def _size(tools: Iterable[Raw]) -> int:
    members = (wire.members(tool) for tool in tools)
    return sum(len(each[key]) for each in members for key in _MEMBERS if key in each)
