"""One group alone, as if there were no proxy: its own names, words, results and errors, byte for byte.

What the config keeps back stays back: filtered tools, and features that are off, do not exist here either.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Raw

from dynamic_mcp.client import Client
from dynamic_mcp.config.access import AccessKind
from dynamic_mcp.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    InvalidArguments,
    LoginNeeded,
    NotFound,
    ResourceNotFound,
)
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.revisions import Revision
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.chain import Chains
from dynamic_mcp.proxy.lists import offset, page
from dynamic_mcp.proxy.misfits import must_fit
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.resources import Resources
from dynamic_mcp.proxy.router import Router, UseCase
from dynamic_mcp.proxy.subscriptions import LEVELS, Subscriptions
from dynamic_mcp.proxy.tasks import Tasks
from dynamic_mcp.proxy.view import GroupView, View
from dynamic_mcp.tools.arguments import is_valid

if TYPE_CHECKING:  # loaded where a server needs them
    from dynamic_mcp.proxy.elicitations import Elicitations
    from dynamic_mcp.proxy.logins import LoginOffers
    from dynamic_mcp.proxy.skills import Skills

# The link to the upstream has said this already.
_INITIALIZED = "notifications/initialized"
_KINDS = {ListKind.TOOLS: AccessKind.TOOL, ListKind.PROMPTS: AccessKind.PROMPT}
# Which features the methods of extensions belong to.
_FEATURES_OF_EXTENSIONS = {kind.member: kind.capability for kind in ListKind if kind.extension}
_FEATURE_BY_REFERENCE = {"ref/prompt": "prompts", "ref/resource": "resources"}


class Transparent:
    """The use cases of clients that see one group only."""

    def __init__(
        self,
        chains: Chains,
        tasks: Tasks,
        resources: Resources,
        skills: Callable[[], Skills],
        subscriptions: Subscriptions,
        logins: Callable[[], LoginOffers],
        elicitations: Callable[[], Elicitations],
    ) -> None:
        self._chains = chains
        self._tasks = tasks
        self._resources = resources
        self._skills = skills
        self._subscriptions = subscriptions
        self._logins = logins
        self._router = Router(self._use_cases(), logins, elicitations, self._pass_on)

    # --- the session -----------------------------------------------------------------------------------

    async def initialize(self, client: Client, view_for: Callable[[Client], View]) -> dict[str, object]:
        """Return what the upstream answers to `initialize`, connecting to learn it only if need be.

        Raises DynamicMcpError.
        """
        while True:
            group = _only(client, view_for(client))
            try:
                initialize_result = await group.learn_hello(client)
            except LoginNeeded as exc:
                if not await self._logins().wait_for_browser(group.group):
                    raise self._logins().explain(client, group, exc) from None
                continue
            if initialize_result is not None:  # else a reload has just replaced the group
                return _hello(group, initialize_result, client.hello.revision)

    async def answer(self, request: Request) -> Frame:
        """Answer a request. Raises DynamicMcpError and wire.Malformed."""
        if not _group_of(request).offers(_feature(request)):
            return wire.error_frame(METHOD_NOT_FOUND, f"method not found: `{request.method}`")
        return await self._router.answer(request)

    def notify(self, request: Request) -> None:
        """Pass a client's notification on."""
        if request.method != _INITIALIZED:
            for group in request.view:
                group.group.notify(request.client, request.method, request.params)

    # --- use cases -------------------------------------------------------------------------------------

    def _use_cases(self) -> Mapping[str, UseCase]:
        return {
            **{kind.method: partial(self._list, kind) for kind in ListKind},
            "tools/call": self._call,
            "prompts/get": self._get_prompt,
            "resources/read": self._read,
            "resources/directory/read": self._read_directory,
            "skills/get": self._get_skill,
            "completion/complete": self._complete,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "logging/setLevel": self._set_level,
            "tasks/get": partial(self._ask_about_tasks, self._tasks.get),
            "tasks/cancel": partial(self._ask_about_tasks, self._tasks.get),
            "tasks/update": partial(self._ask_about_tasks, self._tasks.update),
            "tasks/result": partial(self._ask_about_tasks, self._tasks.result),
            "tasks/list": partial(self._ask_about_tasks, self._tasks.list_tasks),
        }

    async def _list(self, kind: ListKind, request: Request) -> Frame:
        """Answer a list request with the entries as they came; a list that is not known is waited for."""
        params = wire.members(request.params) if len(request.params) else {}
        group = _group_of(request)
        was_known = group.catalog is not None and group.catalog.knows([kind])
        catalog = await group.learn_catalog(request.client, [kind])
        if was_known and catalog.lists[kind].has_failed:  # it may work again
            catalog = await group.reread(request.client, [kind])
        listing = catalog.lists[kind]
        if listing.has_failed and not listing.entries:
            return Frame(error=listing.error)  # the upstream's own words
        is_missing = listing.is_unknown or not catalog.declares(kind)
        if kind is not ListKind.TOOLS and is_missing:
            return await self._pass_on(request)  # the upstream says best itself that it has none
        if is_missing:
            return wire.error_frame(METHOD_NOT_FOUND, f"method not found: `{request.method}`")
        start = offset(params.get("cursor", wire.NULL))
        return wire.result_frame(page(kind, [*listing.entries.values()], start, listing.rest))

    async def _call(self, request: Request) -> Frame:
        """Answer `tools/call`: the call as it came, and whatever the upstream answers."""
        group, params = _group_of(request), wire.members(request.params)
        name = wire.text(params.get("name"))
        if not _is_presented(group, name or "") or not await _may_exist(request, ListKind.TOOLS, name):
            return wire.error_frame(INVALID_PARAMS, str(NotFound("tool", name or "")))
        if name is None:  # a server that takes it for text could find a tool that the filter keeps back
            raise wire.Malformed("`name` of the tool is missing")
        if (tool := group.find_shown(name)) is not None and tool.changes_arguments and must_fit(group, name):
            await _check_arguments(request, name, params.get("arguments", wire.NULL))
        instance = group.group.instance_for(request.client) if "task" in params else None
        answer = await self._chains.send(
            request,
            group,
            request.method,
            params,
            timeout_s=group.config.timeouts.tools_s,
            label=f"`{name}`",
            instance=instance,
        )
        if request.revision.is_stateless:
            return self._tasks.extension.adopt(request, group, answer, tool=group.own_name(name))
        if instance is None:
            return answer
        return self._tasks.begin(request, group, instance, answer, tool=group.own_name(name))

    async def _get_prompt(self, request: Request) -> Frame:
        name = wire.text(wire.member(request.params, "name"))
        if not await _may_exist(request, ListKind.PROMPTS, name):
            raise NotFound("prompt", name or "")
        return await self._pass_on(request)

    async def _read(self, request: Request) -> Frame:
        params, uri = _with_uri(request)
        group = _group_of(request)
        if uri is None or not group.may_hide:
            return await self._pass_on(request)
        if not group.may_read(uri):
            raise ResourceNotFound(uri)
        return await self._resources.read_from(request, (group, uri), params)

    async def _get_skill(self, request: Request) -> Frame:
        params, uri = _with_uri(request)
        group = _group_of(request)
        if uri is None or not (group.may_hide or group.group.admission.gate):
            return await self._pass_on(request)
        return await self._skills().get_from(request, group, params, uri)

    async def _read_directory(self, request: Request) -> Frame:
        params, uri = _with_uri(request)
        group = _group_of(request)
        if uri is None or not group.may_hide:
            return await self._pass_on(request)
        return await self._skills().read_directory_of(request, group, params, uri)

    async def _complete(self, request: Request) -> Frame:
        name, uri = (wire.text(wire.member(request.params, "ref", key)) for key in ("name", "uri"))
        if name is not None and not await _may_exist(request, ListKind.PROMPTS, name):
            raise NotFound("prompt", name)
        if uri is not None and not await _may_exist(request, ListKind.TEMPLATES, uri):
            raise ResourceNotFound(uri)
        return await self._pass_on(request)

    async def _subscribe(self, request: Request) -> Frame:
        params, uri = _with_uri(request)
        if uri is None:
            return await self._pass_on(request)
        if not _group_of(request).may_read(uri):
            raise ResourceNotFound(uri)
        return await self._resources.subscribe_to(request, (_group_of(request), uri), params, uri)

    async def _unsubscribe(self, request: Request) -> Frame:
        params, uri = _with_uri(request)
        if uri is None:
            return await self._pass_on(request)
        if not _group_of(request).may_read(uri):
            raise ResourceNotFound(uri)
        return await self._resources.unsubscribe_from(request, (_group_of(request), uri), params)

    async def _set_level(self, request: Request) -> Frame:
        """Answer `logging/setLevel`; a shared upstream gets the most verbose level of its clients."""
        level = wire.member(request.params, "level")
        if wire.text(level) not in LEVELS:
            return await self._pass_on(request)
        instance = _group_of(request).group.instance_for(request.client)
        self._subscriptions.set_level(request.client, level)
        wanted = self._subscriptions.level_for(instance)
        self._subscriptions.note_level(instance)
        params = wire.members(request.params)
        if wanted != wire.text(level):
            params["level"] = Raw(wire.encode(wanted))
        return await self._send(request, params)

    async def _ask_about_tasks(self, use_case: UseCase, request: Request) -> Frame:
        catalog = _group_of(request).catalog
        is_foreign = catalog is not None and not catalog.may("tasks") and not request.revision.is_stateless
        return await (self._pass_on if is_foreign else use_case)(request)

    async def _pass_on(self, request: Request) -> Frame:
        """Pass on a request unchanged, whatever its method."""
        if not request.client.is_initialized:  # a newer client probes for the protocol, with us and no upstream
            return wire.error_frame(METHOD_NOT_FOUND, f"method not found: `{request.method}`")
        return await self._send(request, wire.members(request.params) if len(request.params) else None)

    def _send(self, request: Request, params: Mapping[str, Raw] | None) -> Awaitable[Frame]:
        group = _group_of(request)
        timeout_s = _timeout_s(group, request.method)
        return self._chains.send(request, group, request.method, params, timeout_s=timeout_s)


def _is_presented(group: GroupView, tool: str) -> bool:
    """Return whether the filter lets a tool through; of overridden ones, it has let those through that are listed."""
    return group.overridden is not None or group.presentation.tools.allows(tool)


async def _may_exist(request: Request, kind: ListKind, key: str | None) -> bool:
    """Return whether something may be asked for, although it is in no list.

    Where nothing is hidden it may: the upstream says best itself what it does not have. Otherwise its words must not
    tell what does not exist from what is hidden; and of overridden tools, it knows other names.
    """
    group = _group_of(request)
    server_says = not group.may_hide and (kind is not ListKind.TOOLS or group.overridden is None)
    if group.group.admission.gate is not None and not (server_says and kind is ListKind.TOOLS):
        await _refuse_held(request, kind, key or "")
    if server_says:
        return True
    catalog = await group.learn_catalog(request.client, [kind])
    if key in catalog.entries(kind) or group.may_have(kind, key or ""):
        return True
    return key in (await group.reread(request.client, [kind])).entries(kind)


async def _check_arguments(request: Request, tool: str, arguments: Raw) -> None:
    """Check the arguments of an overridden tool, whose server would use names that clients do not know.

    Raises InvalidArguments.
    """
    group, args = _group_of(request), wire.EMPTY_OBJECT if bytes(arguments) == b"null" else arguments
    catalog = group.catalog
    if catalog is None or is_valid(catalog.input_schema(tool), args):
        return
    if group.state is not State.READY:  # the schema is from disk
        catalog = await group.reread(request.client)
        if is_valid(catalog.input_schema(tool), args):
            return
    flaws = catalog.input_schema(tool).describe_flaws(args)
    raise InvalidArguments(f"the arguments do not fit `{tool}`: {flaws or 'they are not an object'}")


async def _refuse_held(request: Request, kind: ListKind, key: str) -> None:
    """Raise DefinitionHeld for what is held back. A list that is not read yet is read and judged first."""
    group = _group_of(request)
    if group.catalog is None or (group.catalog.may(kind.capability) and not group.catalog.knows([kind])):
        await group.learn_catalog(request.client, [kind])
    if kind in _KINDS:
        group.refuse_held(_KINDS[kind], key)


def _group_of(request: Request) -> GroupView:
    return _only(request.client, request.view)


def _only(client: Client, view: View) -> GroupView:
    """Return the one group that a client sees. Raises NotFound once it is no longer in the config."""
    return view[client.only or ""]


def _feature(request: Request) -> str:
    """Return the feature that a request belongs to, which the config may have switched off."""
    if request.method == "completion/complete":
        return _FEATURE_BY_REFERENCE.get(wire.text(wire.member(request.params, "ref", "type")) or "", "")
    feature = request.method.partition("/")[0]
    return _FEATURES_OF_EXTENSIONS.get(feature, feature)


def _timeout_s(group: GroupView, method: str) -> float:
    timeouts = group.config.timeouts
    match method.partition("/")[0]:
        case "resources" | "skills" | "logging":
            return timeouts.resources_s
        case "prompts" | "completion":
            return timeouts.prompts_s
        case _:
            return timeouts.tools_s


def _with_uri(request: Request) -> tuple[dict[str, Raw], str | None]:
    params = wire.members(request.params) if len(request.params) else {}
    return params, wire.text(params.get("uri")) or None


def _hello(group: GroupView, initialize_result: Mapping[str, Raw], revision: Revision) -> dict[str, object]:
    """Return what an upstream says of itself, in the revision that its client speaks with us."""
    hello: dict[str, object] = {"protocolVersion": revision.name, **initialize_result}
    try:
        capabilities = wire.members(initialize_result.get("capabilities", wire.NULL))
    except wire.Malformed:
        return hello
    hidden = group.switched_off if revision.has_tasks else group.switched_off | {"tasks"}
    hidden |= {kind.extension for kind in ListKind if kind.extension and kind.capability in hidden}
    extensions = _without(capabilities.get("extensions", wire.ABSENT), hidden)
    if extensions is not None:
        capabilities["extensions"] = extensions
    if extensions is not None or not hidden.isdisjoint(capabilities):
        hello["capabilities"] = {name: each for name, each in capabilities.items() if name not in hidden}
    return hello


def _without(extensions: Raw, hidden: Collection[str]) -> Raw | None:
    """Return extensions without those that are hidden; None if none of them is."""
    with contextlib.suppress(wire.Malformed):
        members = wire.members(extensions) if hidden and len(extensions) else {}
        if not members.keys().isdisjoint(hidden):
            return Raw(wire.encode({name: each for name, each in members.items() if name not in hidden}))
    return None
