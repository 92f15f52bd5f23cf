"""Prompts of all groups: listed as `<group>__<name>`, and taken by their own name too while it is unique."""

from __future__ import annotations

from msgspec import Raw

from dynamic_mcp.errors import Disabled, DynamicMcpError, InvalidArguments, NotFound
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.groups import Groups
from dynamic_mcp.groups.instance import Group
from dynamic_mcp.mcp import names, wire
from dynamic_mcp.mcp.names import closest
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.lists import WAIT_S, Item, learned, listed, offering
from dynamic_mcp.session.legacy import Session


class Prompts:
    """The use cases of prompts."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    async def list_all(self, session: Session, frame: Frame) -> Frame:
        """Answer `prompts/list`."""
        return await listed(self._groups, ListKind.PROMPTS, frame, self._listed)

    async def get(self, session: Session, frame: Frame) -> Frame:
        """Answer `prompts/get` with the owner's result as it is."""
        params = wire.members(frame.params)
        name = wire.text(params.get("name"))
        if not name:
            raise wire.Malformed("`name` of the prompt is missing")
        group, own = await self.owner(name)
        return await group.request(
            frame.method,
            params if own == name else {**params, "name": Raw(wire.encode(own))},
            timeout_s=group.config.timeouts.prompts_s,
            caller=session,
            what=f"prompt `{own}`",
        )

    async def owner(self, name: str) -> tuple[Group, str]:
        """Return the group of a prompt and its name there. Raises NotFound, Disabled and InvalidArguments."""
        groups = offering(self._groups, "prompts")
        found = self._find(groups, name)
        if not found:
            await learned(groups, [ListKind.PROMPTS], WAIT_S)
            found = self._find(groups, name)
        if len(found) == 1:
            return found[0]
        if not found:
            raise self._unknown(name, groups)
        candidates = " or ".join(f"`{names.qualified_name(group.name, own)}`" for group, own in found)
        raise InvalidArguments(f"more than one group has a prompt named `{name}`", hint=f"ask for {candidates}")

    def _unknown(self, name: str, groups: list[Group]) -> DynamicMcpError:
        for group in self._groups:
            if group not in groups and name.startswith(f"{group.name}__"):
                return Disabled("prompts", group.name)
        return NotFound("prompt", name, closest(name, list(self._by_listed_name(groups))))

    def _find(self, groups: list[Group], name: str) -> list[tuple[Group, str]]:
        named = self._by_listed_name(groups).get(name)
        if named is not None:
            return [named]
        return [(group, name) for group in groups if group.known and name in group.known.entries(ListKind.PROMPTS)]

    def _by_listed_name(self, groups: list[Group]) -> dict[str, tuple[Group, str]]:
        """Return every prompt by the name that it is listed with; a name that is taken gets its short form."""
        found: dict[str, tuple[Group, str]] = {}
        for group in groups:
            for own in group.known.entries(ListKind.PROMPTS) if group.known else ():
                name = names.qualified_name(group.name, own)
                found[name if name not in found else names.hashed_name(group.name, own)] = (group, own)
        return found

    def _listed(self, items: list[Item]) -> list[Raw]:
        by_name = self._by_listed_name(offering(self._groups, "prompts"))
        names_of = {(group.name, own): name for name, (group, own) in by_name.items()}
        return [wire.with_member(entry, names_of[group.name, own], "name") for group, own, entry in items]
