"""One call of a tool: which tool is meant, whether its arguments fit, the request, and a result that fits too."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Raw, Struct, structs

from dynamic_mcp.client import Client
from dynamic_mcp.config.access import AccessKind
from dynamic_mcp.errors import (
    INVALID_PARAMS,
    MISSING_CAPABILITY,
    URL_ELICITATION_REQUIRED,
    InvalidArguments,
    NotFound,
    ProtocolViolation,
)
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.groups.instance import FIND_WITHIN_S
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.mcp import envelope, wire
from dynamic_mcp.mcp.wire import EMPTY_OBJECT, Frame
from dynamic_mcp.proxy.chain import Chains
from dynamic_mcp.proxy.direct_listing import DirectListing, ListedTools
from dynamic_mcp.proxy.elicitations import name_asker
from dynamic_mcp.proxy.listed_names import Named, contenders, find_unread, listed_names, reads_as
from dynamic_mcp.proxy.lists import learn
from dynamic_mcp.proxy.misfits import explain, must_fit
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.result_store import ResultStore
from dynamic_mcp.proxy.selections import Selections
from dynamic_mcp.proxy.tasks import Tasks
from dynamic_mcp.proxy.view import GroupView, View
from dynamic_mcp.tools import arguments, results
from dynamic_mcp.tools.meta_tools import CALL, CALL_READ, CALL_WRITE, GET, OWN_ARGUMENTS, own_arguments
from dynamic_mcp.tools.schema import InputSchema

if TYPE_CHECKING:  # loaded with the first call by a name that is not listed
    from dynamic_mcp.proxy.apps import OpenApps
    from dynamic_mcp.proxy.own_tools import FoundTool

# In `_meta` of a result: what was done to the arguments so that they fit.
REPAIRED = "dynamic-mcp/repaired"

# Errors of upstreams that are more than words for the model: the client itself must act on them.
_FOR_CLIENTS = frozenset((str(URL_ELICITATION_REQUIRED), str(MISSING_CAPABILITY)))
_BRACE = ord("{")
_HINTS = ("readOnlyHint", "destructiveHint")
_ANYTHING = InputSchema(EMPTY_OBJECT)
_NOTHING: dict[str, Raw] = {}
# How many meanings of a name are told, and how much of it.
_MOST_CHOICES = 5
_LONGEST_SHOWN = 200


class ToolCall(Struct, frozen=True, gc=False):
    """A client's call: which tool, with what, and which part of the result.

    `may_be_of_app`: the client names the tool itself, as the host of an app does, and not by one of our call tools.
    `is_of_app`: the name is one that only an app has.
    """

    group: GroupView
    name: str
    args: Raw | None
    extra_arguments: Mapping[str, Raw]
    notes: tuple[str, ...] = ()
    select: str = ""
    verb: str = ""
    may_be_of_app: bool = False
    is_of_app: bool = False

    @property
    def is_answered_to_app(self) -> bool:
        """True if no model reads the answer, and an app needs all of it."""
        catalog = self.group.catalog
        is_for_apps = catalog is not None and self.name in catalog.tools and self.name not in catalog.model_tools
        return self.is_of_app or is_for_apps

    @property
    def label(self) -> str:
        """The tool, in words."""
        return f"`{self.name}` of group `{self.group.name}`"


class Calls:
    """The use case of `tools/call` for the tools of groups."""

    def __init__(
        self,
        chains: Chains,
        tasks: Tasks,
        listed_tools: Callable[[View], ListedTools],
        direct_listing: Callable[[View, Client], DirectListing],
        results: ResultStore,
        open_apps: Callable[[], OpenApps],
    ) -> None:
        self._chains = chains
        self._tasks = tasks
        self._listed_tools = listed_tools
        self._direct_listing = direct_listing
        self._results = results
        self._open_apps = open_apps
        self._selections = Selections()

    # --- which tool ------------------------------------------------------------------------------------

    def call_dynamic(self, request: Request, verb: str, params: Mapping[str, Raw]) -> Awaitable[Frame]:
        """Answer a call of one of our own call tools."""
        arguments = own_arguments(params)
        group, name = wire.text(arguments.get("group")), wire.text(arguments.get("name"))
        if request.observation is not None:
            request.observation.asked = name or ""
        if not group:
            return self._call_without_group(request, verb, name, arguments, params)
        found = request.view.group(group, "tools")
        if not name:
            raise InvalidArguments(f"`name` of the tool is missing; `{GET}` shows the tools of `{group}`")
        return self.run(request, _dynamic_call((found, name), verb, arguments, params), params)

    def call_by_name(self, request: Request, name: str, params: Mapping[str, Raw]) -> Awaitable[Frame]:
        """Answer a call of a tool by a single name: the listed one, or where only one group has such a tool."""
        if request.observation is not None:
            request.observation.asked = name
        found = self._listed_tools(request.view).find(name)
        return self._call_by_only_name(request, name, params) if found is None else self._call(request, found, params)

    async def _call_by_only_name(self, request: Request, name: str, params: Mapping[str, Raw]) -> Frame:
        listed = self._listed_tools(request.view)
        if unread := [group for group in listed.groups() if name.startswith(f"{group.name}__") and not _knows(group)]:
            await learn(request.client, unread, [ListKind.TOOLS], FIND_WITHIN_S)
        if (tool := listed.find(name)) is not None or (tool := await _find_contended(request, name)) is not None:
            return await self._call(request, tool, params)
        of_app = self._find_of_apps(request, name)
        if of_app is None and await self._open_apps().learn(request.client):
            of_app = self._find_of_apps(request, name)
        tool = of_app or await _find_owned(request, name) or await self._find_only(request, name)
        is_of_app = of_app is not None
        call = ToolCall(*tool, params.get("arguments"), _NOTHING, may_be_of_app=is_of_app, is_of_app=is_of_app)
        return await self.run(request, call, params)

    def _call(self, request: Request, tool: Named, params: Mapping[str, Raw]) -> Awaitable[Frame]:
        return self.run(request, ToolCall(*tool, params.get("arguments"), _NOTHING, may_be_of_app=True), params)

    def _find_of_apps(self, request: Request, name: str) -> Named | None:
        """Return the tool that an app means: its page has the names of its own server. Raises InvalidArguments.

        A name that may be of a tool of another server is none that only the app can mean.
        """
        begun = [group for group, _ in _split(request.view, name)]
        found = [
            tool
            for tool in self._open_apps().find(request.client, request.view, name)
            if all(group is tool[0] for group in begun)
        ]
        if len(found) > 1:
            raise _ambiguous(name, found)
        return found[0] if found else None

    async def _call_without_group(
        self, request: Request, verb: str, name: str | None, arguments: Mapping[str, Raw], params: Mapping[str, Raw]
    ) -> Frame:
        if not name:
            raise InvalidArguments("`group` is missing", hint=request.view.names_in_words("tools"))
        group, tool = await self._find_only(request, name)
        note = f"`group` was missing; `{name[:100]}` is a tool of `{group.name}` only"
        note = note if tool == name else f"`name` carried the group `{group.name}`"
        return await self.run(request, _dynamic_call((group, tool), verb, arguments, params, (note,)), params)

    async def _find_only(self, request: Request, name: str) -> Named:
        """Return the one tool that a name means without a group. Raises NotFound and InvalidArguments."""
        view = request.view
        if (contended := await _find_contended(request, name)) is not None:
            return contended
        found = _find_by_name(view, name)
        if not found:
            await learn(request.client, view.offering("tools"), [ListKind.TOOLS], FIND_WITHIN_S)
            found = _find_by_name(view, name)
        if len(found) == 1:
            return found[0] if _is_known(*found[0]) else _find_by_listed_name(view, name) or found[0]
        if found:
            raise _ambiguous(name, found)
        for group in view.offering("tools"):
            group.refuse_held(AccessKind.TOOL, name)
        if (unread := find_unread(view.offering("tools"), ListKind.TOOLS, name)) is not None:
            return unread, name
        if (listed := _find_by_listed_name(view, name)) is not None:
            return listed
        tool_names = [tool for group in view if group.catalog for tool in group.catalog.model_tools]
        raise NotFound("tool", name, [GET, CALL, *tool_names], hint=self._where_to_look(request))

    def _where_to_look(self, request: Request) -> str:
        is_listed = self._direct_listing(request.view, request.client).is_all()
        return f"`{'tools/list' if is_listed else GET}` shows what there is"

    async def find_tool(self, request: Request, group: str, name: str, *, fresh: bool = False) -> FoundTool:
        """Implement `FindTool` for the client of a request."""
        from dynamic_mcp.proxy.own_tools import FoundTool

        call = ToolCall(request.view.group(group, "tools"), name, None, _NOTHING)
        catalog = await call.group.reread(request.client) if fresh else call.group.catalog
        if catalog is None or name not in catalog.model_tools:
            call, catalog = await self._find(request, call)
        definition = catalog.tools.get(call.name, EMPTY_OBJECT)
        is_certain = fresh or call.group.state is State.READY
        return FoundTool(call.group.name, call.name, definition, _schema(call, catalog), is_certain)

    # --- the call --------------------------------------------------------------------------------------

    async def run(self, request: Request, call: ToolCall, params: Mapping[str, Raw]) -> Frame:
        """Send the call on as it came, with the tool's own name and arguments in it."""
        group = call.group
        is_stateless = request.client.hello.revision.is_stateless
        catalog = group.catalog
        if catalog is None or call.name not in catalog.model_tools:
            call, catalog = await self._find(request, call)
        if call.verb not in ("", CALL):
            # what a tool was yesterday, on disk, is no leave to call it today
            _check_verb(call, catalog if group.state is State.READY else await group.reread(request.client))
        args, notes, misfit = EMPTY_OBJECT if call.args is None else call.args, call.notes, None
        if call.extra_arguments or not arguments.is_valid(
            catalog.input_schema(call.name) if group.presentation.answers.validate != "off" else _ANYTHING, args
        ):
            reading = await _repair(request, call, catalog)
            args, notes, misfit = reading.args, (*notes, *reading.notes), reading.misfit
        instance = group.group.instance_for(request.client) if "task" in params else None
        answer = await self._chains.send(
            request,
            group,
            "tools/call",
            {**params, "name": Raw(wire.encode(call.name)), "arguments": args},
            timeout_s=group.config.timeouts.tools_s,
            label=f"`{call.name}`",
            instance=instance,
            notes=notes,
        )
        if len(answer.error):
            if is_stateless and not envelope.RETRY_MEMBERS.isdisjoint(params):
                return answer  # of a retry: the client has to act on it
            if request.parent is not None:
                return answer  # read by a program
            answer = _to_result(answer, group, call.name, shows_schema=misfit is None)
            if len(answer.error):
                return name_asker(group.name, request.client, answer)
        if memoryview(answer.result)[0] != _BRACE:
            raise ProtocolViolation(group.name, f"answered `{call.name}` with a result that is not an object")
        if misfit is not None:
            answer = explain(answer, misfit, group, call.name)
        if group.group.has_advice and (advice := request.client.hello.advice(group.config)):
            answer = structs.replace(answer, result=results.add_to_error(answer.result, f"[{advice}]"))
        if instance is not None:
            return self._tasks.begin(request, group, instance, answer, tool=group.own_name(call.name))
        if is_stateless and envelope.result_type(answer.result) != envelope.COMPLETE:
            return self._tasks.extension.adopt(request, group, answer, tool=group.own_name(call.name))
        if call.select or notes or not results.can_pass_unchanged(answer.result, group.presentation.answers):
            answer = await self._fit(request, call, answer, notes)
        return _with_links(request, call, answer) if call.verb and call.name in catalog.app_tools else answer

    async def _find(self, request: Request, call: ToolCall) -> tuple[ToolCall, Catalog]:
        """Find a tool that is not known yet; where the list cannot be read, the server says whether there is one."""
        group, catalog = call.group, await _learn_tools(request, call.group)
        if call.name in catalog.model_tools:
            return call, catalog
        if call.may_be_of_app and await self._may_be_called(request.client, group, call.name):
            return call, catalog
        group.refuse_held(AccessKind.TOOL, call.name)
        if group.may_have(ListKind.TOOLS, call.name):
            return call, catalog
        return await self._look_again(request, call)

    async def _may_be_called(self, client: Client, group: GroupView, tool: str) -> bool:
        """Return whether an app of the client may call a tool, wherever its page was read."""
        apps = self._open_apps()
        return apps.may_call(client, group, tool) or (await apps.learn(client) and apps.may_call(client, group, tool))

    async def _look_again(self, request: Request, call: ToolCall) -> tuple[ToolCall, Catalog]:
        """Find the tool under a name that carries the group, or in the list read once more. Raises NotFound."""
        group, name = call.group, call.name
        catalog = group.catalog
        for fresh in (False, True):
            if fresh or catalog is None:
                catalog = await group.reread(request.client)
            for _, tool in [(group.name, name), *arguments.split_name(name, [group.name])]:
                if tool in catalog.model_tools:
                    note = () if tool == name else (f"`name` carried the group `{group.name}`",)
                    return structs.replace(call, name=tool, notes=(*call.notes, *note)), catalog
                group.refuse_held(AccessKind.TOOL, tool)
        elsewhere = [f"`{other.name}`" for other in _groups_with(request.view, name) if other is not group]
        hint = f"group {' and '.join(elsewhere)} has one" if elsewhere else self._where_to_look(request)
        if catalog is not None and catalog.may_have_more(ListKind.TOOLS):
            hint = "; ".join(filter(None, (group.complaint([ListKind.TOOLS]), hint)))
        assert catalog is not None
        raise NotFound(f"tool of group `{group.name}`", name, catalog.model_tools, hint=hint)

    # --- the result ------------------------------------------------------------------------------------

    async def _fit(self, request: Request, call: ToolCall, answer: Frame, notes: tuple[str, ...]) -> Frame:
        """Return the answer with what was asked for of it, as much as the limit allows, and what is to be said."""
        if request.parent is not None:
            return answer  # no model reads it
        group, answers = call.group, call.group.presentation.answers
        keep = self._results.keeper(request.client, group, group.own_name(call.name))
        result = answer.result
        if call.select:
            result = await self._selections.select(request.client.principal, result, call.select, keep)
        if not results.can_pass_unchanged(result, answers) and not call.is_answered_to_app:
            result = results.shape(
                result,
                answers,
                keep,
                links=request.revision.has_resource_links,
                keeps_structure=not call.verb,
                mark=group.mark_text,
            )
        if notes:
            result = _add_notes(result, notes)
        return answer if result is answer.result else structs.replace(answer, result=result)


def _with_links(request: Request, call: ToolCall, answer: Frame) -> Frame:
    """Return a result with the links to the UI of its tool, which the client was not listed by this name."""
    from dynamic_mcp.mcp.apps import may_render
    from dynamic_mcp.proxy.apps import links_of

    if not may_render(request.client.hello.capabilities):
        return answer
    result = links_of(request.view).add_to_result(call.group, call.name, answer.result)
    return answer if result is answer.result else structs.replace(answer, result=result)


def _knows(group: GroupView) -> bool:
    return group.catalog is not None and group.catalog.knows([ListKind.TOOLS])


async def _learn_tools(request: Request, group: GroupView) -> Catalog:
    """Return what a group offers, with its tools unless the server does not answer for too long."""
    catalog = await group.learn_catalog(request.client, ())
    if not catalog.knows([ListKind.TOOLS]):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIND_WITHIN_S):
                return await group.learn_catalog(request.client)
    return group.catalog or catalog


def _find_by_name(view: View, name: str) -> list[Named]:
    """Return the tools that a name may mean without a group, as far as tools are known.

    Where it begins with one group and is the name of a tool of another one, it may mean either, whether or not the
    first is known to have such a tool: a server must not get the calls of another by the names of its tools.
    """
    plain = [(group, name) for group in _groups_with(view, name)]
    if not plain:
        return _split_prefix(view, name)
    owners = [group for group, _ in plain]
    return [*((group, tool) for group, tool in _split(view, name) if group not in owners), *plain]


def _is_known(group: GroupView, tool: str) -> bool:
    return group.catalog is not None and tool in group.catalog.model_tools


def _find_by_listed_name(view: View, name: str) -> Named | None:
    """Return the tool that is listed with this name where it is listed, which may be a short form."""
    groups = view.offering("tools")
    known = ((group, tool) for group in groups if group.catalog for tool in group.catalog.model_tools)
    return listed_names(known, groups).get(name)


async def _find_contended(request: Request, name: str) -> Named | None:
    """Return the tool that a name means that may be the short form of several groups; None if it is no such name.

    Raises InvalidArguments where no tool is known to be listed by it.
    """
    view = request.view
    groups = contenders(name, view.offering("tools"))
    if not groups:
        return None
    await learn(request.client, groups, [ListKind.TOOLS], FIND_WITHIN_S)
    found = _find_by_listed_name(view, name)
    if found is None or found[0] not in groups or not all(map(_knows, groups)):
        owners = ", ".join(f"`{group.name}`" for group in groups)
        raise InvalidArguments(
            f"`{name[:_LONGEST_SHOWN]}` is not known to be a tool of one of the groups {owners}; nothing was sent",
            hint=f"name the group: `{GET}` shows its tools",
        )
    return found


async def _find_owned(request: Request, name: str) -> Named | None:
    """Return the tool of the group that `<group>__<name>` begins with, where another group has one of this name."""
    view = request.view
    tool = reads_as(name, view.offering("tools")) if _groups_with(view, name) else None
    if tool is None:
        return None
    if not _knows(tool[0]):
        await learn(request.client, [tool[0]], [ListKind.TOOLS], FIND_WITHIN_S)
    return _find_by_listed_name(view, name) if _is_known(*tool) else None


def _split_prefix(view: View, name: str) -> list[Named]:
    """Return what a name that carries a group may mean; of several, those that are not known to be no tools."""
    offered = _split(view, name)
    if len(offered) < 2:
        return offered
    return [
        (group, tool)
        for group, tool in offered
        if group.catalog is None or tool in group.catalog.model_tools or group.may_have(ListKind.TOOLS, tool)
    ]


def _split(view: View, name: str) -> list[Named]:
    split = ((view[group], tool) for group, tool in arguments.split_name(name, view.names))
    return [(group, tool) for group, tool in split if group.offers("tools")]


def _ambiguous(name: str, found: Sequence[Named]) -> InvalidArguments:
    groups = ", ".join(dict.fromkeys(f"`{group.name}`" for group, _ in found))
    choices = (f'`"group": {_quote(group.name)}, "name": {_quote(tool)}`' for group, tool in found[:_MOST_CHOICES])
    return InvalidArguments(
        f"`{name[:_LONGEST_SHOWN]}` can be a tool of more than one group: {groups}; nothing was sent",
        hint=f"say which one: {' or '.join(choices)}",
    )


def _quote(name: str) -> str:
    return wire.encode(name[:_LONGEST_SHOWN]).decode()


def _groups_with(view: View, tool: str) -> list[GroupView]:
    return [group for group in view if group.catalog is not None and tool in group.catalog.model_tools]


def _dynamic_call(
    tool: Named, verb: str, arguments: Mapping[str, Raw], params: Mapping[str, Raw], notes: tuple[str, ...] = ()
) -> ToolCall:
    """Return what the arguments of a call tool of ours ask for. Raises InvalidArguments."""
    select = _select(arguments, params) if "select" in arguments else ""
    extra = _NOTHING if arguments.keys() <= OWN_ARGUMENTS else _extra_arguments(arguments)
    return ToolCall(*tool, arguments.get("args"), extra, notes, select, verb)


def _extra_arguments(arguments: Mapping[str, Raw]) -> dict[str, Raw]:
    return {key: value for key, value in arguments.items() if key not in OWN_ARGUMENTS}


def _select(arguments: Mapping[str, Raw], params: Mapping[str, Raw]) -> str:
    path = wire.text(arguments["select"])
    if path is None and bytes(arguments["select"]) != b"null":
        raise InvalidArguments("`select` is not a string", hint="write a JSONPath, as `$.items[*].name`")
    if path and "task" in params:
        raise InvalidArguments("`select` cannot be used in a call that becomes a task")
    return (path or "").strip()


def _schema(call: ToolCall, catalog: Catalog) -> InputSchema:
    return catalog.input_schema(call.name) if call.group.presentation.answers.validate != "off" else _ANYTHING


async def _repair(request: Request, call: ToolCall, catalog: Catalog) -> arguments.Interpretation:
    """Return the arguments to send. Raises InvalidArguments.

    Before arguments are called wrong by a schema from disk, the upstream's list is read again.
    """
    group = call.group
    try:
        reading = _read_arguments(call, catalog)
        is_certain = reading.misfit is None or group.state is State.READY
    except InvalidArguments:
        if group.state is State.READY:
            raise
        is_certain = False
    if not is_certain:
        reading = _read_arguments(call, await group.reread(request.client))
    if reading.misfit is not None and must_fit(group, call.name):
        raise reading.misfit.refusal(call.label)
    return reading


def _read_arguments(call: ToolCall, catalog: Catalog) -> arguments.Interpretation:
    return arguments.repair(_schema(call, catalog), call.args, call.extra_arguments, call.label)


def _check_verb(call: ToolCall, catalog: Catalog) -> None:
    """Refuse a call tool that is not the one for this tool; what says nothing of itself may write."""
    verb = find_verb(catalog.tools.get(call.name, EMPTY_OBJECT))
    if call.verb != verb:
        why = "only reads" if verb == CALL_READ else "may change something"
        raise InvalidArguments(f"{call.label} was not called: it {why}", hint=f"use `{verb}` with the same arguments")


def find_verb(tool: Raw) -> str:
    """Return which of the two call tools a tool is called by where a config has split calls."""
    says = {hint: bytes(wire.member(tool, "annotations", hint)) == b"true" for hint in _HINTS}
    return CALL_READ if says["readOnlyHint"] and not says["destructiveHint"] else CALL_WRITE


def _add_notes(result: Raw, notes: Sequence[str]) -> Raw:
    try:
        return wire.with_member(result, notes, "_meta", REPAIRED)
    except wire.Malformed:  # a `_meta` that is no object stays unchanged
        return result


def _to_result(answer: Frame, group: GroupView, name: str, *, shows_schema: bool) -> Frame:
    """Show a model the JSON-RPC error of an upstream: code, message, data, and the schema it may have missed."""
    try:
        error = wire.members(answer.error)
    except wire.Malformed:
        error = {"message": answer.error}
    code = bytes(error.get("code", wire.NULL)).decode()
    if code in _FOR_CLIENTS:
        return answer
    message = wire.text(error.get("message")) or bytes(error.get("message", wire.NULL)).decode()
    lines = [f"`{name}` of group `{group.name}` answered with error {code}: {message}"]
    if "data" in error:
        lines.append(f"data: {bytes(error['data']).decode()}")
    if shows_schema and code == str(INVALID_PARAMS) and group.catalog and name in group.catalog.tools:
        schema = wire.members(group.catalog.tools[name]).get("inputSchema", EMPTY_OBJECT)
        lines.append(f"its input schema: {wire.compact(schema).decode()}")
    return wire.result_frame({"content": [{"type": "text", "text": "\n".join(lines)}], "isError": True})
