"""Chooses the use case for a request by its method; unknown methods go to the group that they are for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from dynamic_mcp.client import Client
from dynamic_mcp.errors import METHOD_NOT_FOUND, URL_ELICITATION_REQUIRED, LoginNeeded
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.own_meta import GROUP
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.capabilities import has_own_methods
from dynamic_mcp.proxy.chain import Chains
from dynamic_mcp.proxy.log_levels import LogLevels
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.tools import Tools
from dynamic_mcp.proxy.view import GroupView, View

if TYPE_CHECKING:  # loaded with the first request that needs them
    from dynamic_mcp.proxy.completion import Completion
    from dynamic_mcp.proxy.direct_listing import DirectListing
    from dynamic_mcp.proxy.elicitations import Elicitations
    from dynamic_mcp.proxy.logins import LoginOffers
    from dynamic_mcp.proxy.prompts import Prompts
    from dynamic_mcp.proxy.resources import Resources
    from dynamic_mcp.proxy.skills import Skills
    from dynamic_mcp.proxy.tasks import Tasks

# For one request: a server may want a login, and then one with more scope, or at another authorization server.
MAX_LOGINS = 2
_ELICITATION_REQUIRED = b"%d" % URL_ELICITATION_REQUIRED

UseCase = Callable[[Request], Awaitable[Frame]]
"""Answers one method of MCP."""


class Router:
    """Answers requests by their method; `pass_on` is for methods that the protocol does not know."""

    def __init__(
        self,
        use_cases: Mapping[str, UseCase],
        logins: Callable[[], LoginOffers],
        elicitations: Callable[[], Elicitations],
        pass_on: UseCase,
    ) -> None:
        self._use_cases = use_cases
        self._logins = logins
        self._elicitations = elicitations
        self._pass_on = pass_on

    async def answer(self, request: Request) -> Frame:
        """Answer a request; one that was refused for want of a login is repeated after it."""
        use_case = self._use_cases.get(request.method, self._pass_on)
        try:
            answer = await use_case(request)
        except LoginNeeded as exc:
            answer = await self._answer_after_logins(use_case, request, exc)
        if len(answer.error) and _ELICITATION_REQUIRED in bytes(answer.error):
            answer = self._elicitations().check_error(request.client, answer)
        return answer

    async def _answer_after_logins(self, use_case: UseCase, request: Request, needed: LoginNeeded) -> Frame:
        for _ in range(MAX_LOGINS):
            if not await self._logins().offer(request, needed.group):
                break
            try:
                return await use_case(request)
            except LoginNeeded as exc:
                needed = exc
        raise self._logins().explain(request.client, request.view[needed.group], needed) from None

    def notify(self, request: Request) -> None:
        """Pass a client's notification on to the servers that it uses, or to the one that `_meta` names."""
        name = wire.text(wire.member(request.params, "_meta", GROUP))
        for group in request.view:
            if request.method == "notifications/roots/list_changed" or group.name == name:
                group.group.notify(request.client, request.method, request.params)


class Extensions:
    """Answers what the protocol does not know, or passes it on; `direct_listing` returns what a client is listed."""

    def __init__(self, chains: Chains, direct_listing: Callable[[View, Client], DirectListing]) -> None:
        self._chains = chains
        self._direct_listing = direct_listing

    async def answer(self, request: Request) -> Frame:
        """Answer by the feature whose method it is, or by the group that it is for."""
        for feature in request.view.scope.extensions:
            if request.method in feature.methods:
                direct = self._direct_listing(request.view, request.client)
                answer: Frame = await feature.find(feature.methods[request.method])(request, direct)
                return answer
        group = _find_extended(request)
        if group is None:
            why = f"method not found: `{request.method}`; `_meta` may name a group for it, as `{GROUP}`"
            return wire.error_frame(METHOD_NOT_FOUND, why)
        return await self._chains.send(
            request,
            group,
            request.method,
            wire.members(request.params) if len(request.params) else None,
            timeout_s=group.config.timeouts.tools_s,
        )


def list_use_cases(
    chains: Chains,
    tools: Tools,
    log_levels: LogLevels,
    *,
    resources: Callable[[], Resources],
    skills: Callable[[], Skills],
    tasks: Callable[[], Tasks],
) -> Mapping[str, UseCase]:
    """Return what answers each method for a client that sees all groups as one server."""

    @cache
    def prompts() -> Prompts:
        from dynamic_mcp.proxy.prompts import Prompts

        return Prompts(chains)

    @cache
    def completion() -> Completion:
        from dynamic_mcp.proxy.completion import Completion

        return Completion(chains)

    return {
        "tools/list": tools.list_tools,
        "tools/call": tools.call,
        "resources/list": lambda request: resources().list_resources(request),
        "resources/templates/list": lambda request: resources().list_templates(request),
        "resources/read": lambda request: resources().read(request),
        "resources/directory/read": lambda request: skills().read_directory(request),
        "resources/subscribe": lambda request: resources().subscribe(request),
        "resources/unsubscribe": lambda request: resources().unsubscribe(request),
        "skills/list": lambda request: skills().list_skills(request),
        "skills/get": lambda request: skills().get(request),
        "prompts/list": lambda request: prompts().list_prompts(request),
        "prompts/get": lambda request: prompts().get(request),
        "completion/complete": lambda request: completion().complete(request),
        "logging/setLevel": log_levels.set,
        "tasks/get": lambda request: tasks().get(request),
        "tasks/cancel": lambda request: tasks().get(request),
        "tasks/update": lambda request: tasks().update(request),
        "tasks/result": lambda request: tasks().result(request),
        "tasks/list": lambda request: tasks().list_tasks(request),
    }


def _find_extended(request: Request) -> GroupView | None:
    """Return the group for a method that the protocol does not know: the one named, else the only one able."""
    name = wire.text(wire.member(request.params, "_meta", GROUP))
    if name is not None:
        return request.view[name]
    if not request.client.is_initialized:  # a newer client probes for the protocol, with us and no upstream
        return None
    able = [group for group in request.view if group.catalog and has_own_methods(group.catalog)]
    return able[0] if len(able) == 1 else None
