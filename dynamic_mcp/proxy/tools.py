"""`tools/list` and `tools/call`: our own tools, and beside them or instead of them those that stand by themselves."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw

from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.groups import Groups
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.calls import Calling
from dynamic_mcp.proxy.exposed import ExposedTools
from dynamic_mcp.proxy.lists import MISSING, offset, paged
from dynamic_mcp.proxy.result_store import ResultStore
from dynamic_mcp.proxy.search import ToolSearch
from dynamic_mcp.proxy.tasks import Tasks
from dynamic_mcp.session.legacy import Session
from dynamic_mcp.tools import meta_tools
from dynamic_mcp.tools.meta_tools import CALL, CALL_READ, CALL_WRITE, CALLS, GET, Row


class Tools:
    """The tools of all groups behind ours; `split_calls` is the config's."""

    def __init__(
        self, groups: Groups, tasks: Tasks, finding: ToolSearch, kept: ResultStore, *, split_calls: bool
    ) -> None:
        self.split_calls = split_calls
        self._groups = groups
        self._finding = finding
        self._direct = ExposedTools(groups)
        self._calling = Calling(groups, tasks, self._direct, kept)

    # --- tools/list ------------------------------------------------------------------------------------

    async def list_all(self, session: Session, frame: Frame) -> Frame:
        """Answer `tools/list`."""
        params = wire.members(frame.params) if len(frame.params) else {}
        start = offset(params.get("cursor", wire.NULL))
        await self._direct.learned()
        missing = self._direct.missing()
        rest = {"_meta": {MISSING: missing}} if missing else {}
        return wire.result_frame(paged(ListKind.TOOLS, self.entries(), start, rest))

    def entries(self) -> list[Raw]:
        """Return every tool as it is listed: ours, unless all others are listed by themselves, and then those."""
        if self._direct.is_all():
            return self._direct.entries()
        with_tasks = any(
            group.known and group.known.may("tasks", "requests", "tools", "call") for group in self._groups
        )
        own = meta_tools.build_tools(self._rows(), with_tasks=with_tasks, split=self.split_calls)
        return [*(Raw(wire.encode(tool)) for tool in own), *self._direct.entries()]

    def instructions(self) -> str:
        """Return what a model is told about the tools at the start."""
        said = meta_tools.build_direct_instructions(self._direct.instructions())
        if self._direct.is_all():
            return said
        return "\n\n".join(filter(None, [meta_tools.build_instructions(self._rows(), split=self.split_calls), said]))

    def _rows(self) -> list[Row]:
        """Return the groups as a model sees them, without those whose tools it sees by themselves."""
        return [
            Row(group.name, group.description, group.reason)
            for group in self._groups
            if group.config.features.tools and not group.config.exposure.direct
        ]

    # --- tools/call ------------------------------------------------------------------------------------

    async def call(self, session: Session, frame: Frame) -> Frame:
        """Answer `tools/call`."""
        params = wire.members(frame.params)
        name = wire.text(params.get("name"))
        if name == (CALL if not self.split_calls else None):
            return await self._calling.dynamic(session, CALL, params)
        if name == GET:
            return await self._finding.answer(params)
        if name in CALLS:
            return await self._call_split(session, name, params)
        if name is None:
            raise wire.Malformed("`name` of the tool is missing")
        return await self._calling.by_name(session, name, params)

    async def _call_split(self, session: Session, verb: str, params: Mapping[str, Raw]) -> Frame:
        """Answer a call tool of a config with split calls; the other config has the other tools."""
        if self.split_calls and verb != CALL:
            return await self._calling.dynamic(session, verb, params)
        offered = f"`{CALL_READ}` or `{CALL_WRITE}`" if self.split_calls else f"`{CALL}`"
        raise InvalidArguments(f"`{verb}` is not offered here", hint=f"use {offered} with the same arguments")
