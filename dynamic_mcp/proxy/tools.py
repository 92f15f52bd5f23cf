"""`tools/list` and `tools/call`: our two tools, and a tool's own name where it can only mean one."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw

from dynamic_mcp import meta_tools, wire
from dynamic_mcp.errors import Disabled, InvalidArguments, NotFound, ProtocolViolation
from dynamic_mcp.group import Group
from dynamic_mcp.groups import Groups, closest
from dynamic_mcp.meta_tools import CALL, GET, Row
from dynamic_mcp.proxy.finding import Finding
from dynamic_mcp.proxy.tasks import Tasks
from dynamic_mcp.session import Session
from dynamic_mcp.wire import EMPTY_OBJECT, Frame

# JSON-RPC codes of upstreams that are more than words for the model.
_INVALID_PARAMS = -32602
_URL_ELICITATION_REQUIRED = -32042  # MCP 2025-11-25: the client itself must act on it
_BRACE = ord("{")


class Tools:
    """The tools of all groups behind two."""

    def __init__(self, groups: Groups, tasks: Tasks, finding: Finding) -> None:
        self._groups = groups
        self._tasks = tasks
        self._finding = finding

    def rows(self) -> list[Row]:
        """Return the groups as a model sees them."""
        return [
            Row(group.name, group.description, group.reason) for group in self._groups if group.config.features.tools
        ]

    def listed(self) -> bytes:
        """Return the result of `tools/list`."""
        with_tasks = any(
            group.known and group.known.may("tasks", "requests", "tools", "call") for group in self._groups
        )
        return wire.encode(meta_tools.tools(self.rows(), with_tasks=with_tasks))

    async def call(self, session: Session, frame: Frame) -> Frame:
        """Answer `tools/call`."""
        params = wire.members(frame.params)
        match wire.text(params.get("name")):
            case meta_tools.CALL:
                return await self._call_dynamic(session, params)
            case meta_tools.GET:
                return await self._finding.answer(params)
            case None:
                raise wire.Malformed("`name` of the tool is missing")
            case name:
                group = self._only_group_with(name)
                return await self._run(session, group, name, params.get("arguments", EMPTY_OBJECT), params)

    # --- the two tools ---------------------------------------------------------------------------------

    async def _call_dynamic(self, session: Session, params: Mapping[str, Raw]) -> Frame:
        arguments = _arguments(params)
        group = self._group(arguments)
        name = wire.text(arguments.get("name"))
        if not name:
            raise InvalidArguments(f"`name` of the tool is missing; `{GET}` shows the tools of `{group.name}`")
        args = arguments.get("args", EMPTY_OBJECT)
        return await self._run(session, group, name, args, params)

    def _group(self, arguments: Mapping[str, Raw]) -> Group:
        name = wire.text(arguments.get("group"))
        if not name:
            raise InvalidArguments("`group` is missing", hint=self._groups.all_named())
        group = self._groups[name]
        if not group.config.features.tools:
            raise Disabled("tools", name)
        return group

    # --- a tool of a group -----------------------------------------------------------------------------

    async def _run(self, session: Session, group: Group, name: str, args: Raw, params: Mapping[str, Raw]) -> Frame:
        """Send the call on as it came, with the tool's own name and arguments in it."""
        catalog = group.known or await group.catalog()
        if name not in catalog.tools:
            await self._look_again(group, name)
        if memoryview(args)[0] != _BRACE:
            args = _object(args)
        answer = await group.request(
            "tools/call",
            {**params, "name": Raw(wire.encode(name)), "arguments": args},
            timeout_s=group.config.timeouts.tools_s,
            caller=session,
            what=f"`{name}`",
        )
        if len(answer.error):
            return _refusal(answer, group, name)
        if memoryview(answer.result)[0] != _BRACE:
            raise ProtocolViolation(group.name, f"answered `{name}` with a result that is not an object")
        return self._tasks.began(session, group, answer) if "task" in params else answer

    async def _look_again(self, group: Group, name: str) -> None:
        """Read the group's list once more before a name is called wrong. Raises NotFound."""
        tools = (await group.reread()).tools
        if name in tools:
            return
        elsewhere = [f"`{other.name}`" for other in self._groups_with(name) if other is not group]
        hint = f"group {' and '.join(elsewhere)} has one" if elsewhere else f"`{GET}` shows what there is"
        raise NotFound(f"tool of group `{group.name}`", name, closest(name, list(tools)), hint=hint)

    def _only_group_with(self, name: str) -> Group:
        """Return the one group that has this tool. Raises NotFound and InvalidArguments."""
        found = self._groups_with(name)
        if len(found) == 1:
            return found[0]
        if found:
            groups = ", ".join(f"`{group.name}`" for group in found)
            raise InvalidArguments(
                f"more than one group has a tool named `{name}`: {groups}", hint=f"name one in `{CALL}`"
            )
        names = [tool for group in self._groups if group.known for tool in group.known.tools]
        raise NotFound("tool", name, closest(name, [GET, CALL, *names]), hint=f"`{GET}` shows the tools of a group")

    def _groups_with(self, name: str) -> list[Group]:
        return [group for group in self._groups if group.known is not None and name in group.known.tools]


def _arguments(params: Mapping[str, Raw]) -> dict[str, Raw]:
    try:
        return wire.members(params.get("arguments", EMPTY_OBJECT))
    except wire.Malformed:
        raise InvalidArguments("`arguments` is not an object") from None


def _object(args: Raw) -> Raw:
    if bytes(args) == b"null":
        return EMPTY_OBJECT
    raise InvalidArguments("`args` is not an object", hint='pass the arguments by name, as in {"path": "a.txt"}')


def _refusal(answer: Frame, group: Group, name: str) -> Frame:
    """Show a model the JSON-RPC error of an upstream: code, message, data, and the schema it may have missed."""
    try:
        error = wire.members(answer.error)
    except wire.Malformed:
        error = {"message": answer.error}
    code = bytes(error.get("code", wire.NULL)).decode()
    if code == str(_URL_ELICITATION_REQUIRED):
        return answer
    message = wire.text(error.get("message")) or bytes(error.get("message", wire.NULL)).decode()
    lines = [f"`{name}` of group `{group.name}` answered with error {code}: {message}"]
    if "data" in error:
        lines.append(f"data: {bytes(error['data']).decode()}")
    if code == str(_INVALID_PARAMS) and group.known and name in group.known.tools:
        schema = wire.members(group.known.tools[name]).get("inputSchema", EMPTY_OBJECT)
        lines.append(f"its input schema: {wire.compact(schema).decode()}")
    return wire.result_frame({"content": [{"type": "text", "text": "\n".join(lines)}], "isError": True})
