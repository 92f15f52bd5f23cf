"""The way of a request to a server with rules: each rule has its place here, and none costs anything where it is not.

A rule sees the server's own names and the arguments as they are sent. What changes arguments comes before what
decides about them; where they change later, by a plug-in or a person, they are decided about again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Raw, structs

from dynamic_mcp.errors import NotFound, RefusedByGuard
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.authorization import check_form
from dynamic_mcp.proxy.call_limits import CallLimits, Places
from dynamic_mcp.proxy.redaction import MAX_BYTES_IN_LOOP, Redaction, has_redactor
from dynamic_mcp.proxy.result_cache import ResultCache
from dynamic_mcp.system.clock import Clock
from dynamic_mcp.system.workers import Workers

if TYPE_CHECKING:
    from dynamic_mcp.policy.access import Decision
    from dynamic_mcp.proxy.pipeline import Next, UpstreamRequest
    from dynamic_mcp.proxy.plugins.plugins import Plugins

# The steps in their order, and what each does; the documentation shows this table.
ORDER = (
    ("overrides", "Shown names become the server's own; defaults and fixed arguments are put in."),
    ("redact", "What is to be replaced in arguments is replaced."),
    ("access", "The access rules decide."),
    ("plug-ins", "They may change arguments, which are redacted and decided again, or answer by themselves."),
    ("guards", "Arguments are judged."),
    ("limits", "The call is counted."),
    (
        "approval",
        "A person is asked, where an access rule, `approve` or a guard says so. Changed arguments are decided again.",
    ),
    ("cache", "A kept result is the answer."),
    ("concurrent", "The call waits until one of the places of its tool is free."),
    ("audit", "The call is written down, right before it is sent."),
    ("upstream", "The server answers."),
    ("redact", "What is to be replaced in the answer is replaced."),
    ("result limit", "A long text is cut, and kept whole as a resource."),
)

Decide = Callable[["UpstreamRequest"], "Decision | None"]
Ask = Callable[["UpstreamRequest", "Decision", "Next"], Awaitable[Frame]]


class RuledCalls:
    """Sends requests by the rules of their servers.

    `decide` asks the access rules, `ask` a person, and `following` sends to the upstream. `plugins` are those of the
    config, if it has any. Calls are counted, and results kept, by the time of `clock`; marks in `clearing_folder`
    have results dropped.
    """

    def __init__(
        self,
        decide: Decide,
        ask: Ask,
        following: Next,
        clock: Clock | None = None,
        clearing_folder: Path | None = None,
    ) -> None:
        self.limits = CallLimits(clock)
        self.cache = ResultCache(clock, clearing_folder)
        self.plugins: Plugins | None = None
        self._workers = Workers("rules", count=2)
        self._redaction = Redaction(self._workers)
        self._decide = decide
        self._ask = ask
        self._following = following

    async def send(self, message: UpstreamRequest) -> Frame:
        """Send a request. Raises DynamicMcpError and wire.Malformed where a rule is against it; nothing was sent."""
        if message.method == "tools/call":
            check_form(message.params or {})
            message = _restore(message)
        if has_redactor(message):
            message = await self._redaction.redact_arguments(message)
        if message.request.observation is not None:
            message.request.observation.note_target(message.group, message.method, message.params)
        decision = self._decide(message)
        if self.plugins is None or not self.plugins.are_for(message.group.name, message.method):
            return await self._send_decided(message, decision)
        return await self.plugins.send(message, self._recheck, self._send_from_plugins)

    async def _recheck(self, message: UpstreamRequest) -> UpstreamRequest:
        """Return a call whose arguments a plug-in has replaced, once they have passed the steps before it."""
        if has_redactor(message):
            message = await self._redaction.redact_arguments(message)
        self._decide(message)
        return message

    async def _send_from_plugins(self, message: UpstreamRequest) -> Frame:
        if message.request.observation is not None:
            message.request.observation.note_target(message.group, message.method, message.params)
        return await self._send_decided(message, self._decide(message))  # the config may be another by now

    async def _send_decided(self, message: UpstreamRequest, decision: Decision | None) -> Frame:
        if _has_guards(message) and (guarded := await self._guard(message)) is not None:
            decision = guarded if decision is None else _join(decision, guarded)
            if message.request.observation is not None:
                message.request.observation.note_decision(decision)
        if _has_limits(message) and message.tool is not None:
            self.limits.take(message, message.tool)
        if decision is not None and decision.must_ask:
            return await self._ask(message, decision, self._send_approved)
        return await self._send_allowed(message)

    async def _send_approved(self, message: UpstreamRequest) -> Frame:
        """Go on after a person has agreed, who may have changed the arguments; the config may be another, too."""
        if message.method == "tools/call":
            check_form(message.params or {})
        if has_redactor(message):
            message = await self._redaction.redact_arguments(message)
        if message.request.observation is not None:
            message.request.observation.params = message.params
        self._decide(message)
        if _has_guards(message):
            await self._guard(message)
        return await self._send_allowed(message)

    async def _guard(self, message: UpstreamRequest) -> Decision | None:
        """Return a decision that a person must be asked. Raises RefusedByGuard."""
        group, arguments = message.group, (message.params or {}).get("arguments")
        if group.call_rules is None or group.call_rules.guards is None:
            return None
        judge, tool = group.call_rules.guards.judge, message.tool or ""
        try:
            if arguments is None or len(arguments) <= MAX_BYTES_IN_LOOP:
                return judge(tool, arguments, shown_name=group.shown_name)
            shown = group.shown_name(tool)  # here, because views belong to the event loop
            return await self._workers.run(partial(judge, tool, arguments, shown_name=lambda _: shown))
        except RefusedByGuard as exc:
            if message.request.observation is not None:
                message.request.observation.note_refusal(exc.rule)
            raise

    def _send_allowed(self, message: UpstreamRequest) -> Awaitable[Frame]:
        rules = message.group.call_rules
        if rules is not None and rules.cache is not None:
            message.group.refuse_held_request(message.method, message.params)
            return self.cache.send(message, self._send_in_place)
        return self._send_in_place(message)

    def _send_in_place(self, message: UpstreamRequest) -> Awaitable[Frame]:
        if _has_limits(message) and message.tool is not None:
            places = self.limits.places_for(message, message.tool)
            if places is not None:
                return self._send_in(places, message)
        return self._send_redacted(message)

    async def _send_in(self, places: Places, message: UpstreamRequest) -> Frame:
        try:
            if not places.take_free():
                await places.wait()
            return await self._send_redacted(message)
        finally:
            places.give_back()

    def _send_redacted(self, message: UpstreamRequest) -> Awaitable[Frame]:
        return self._redaction.send(message, self._following) if has_redactor(message) else self._following(message)


def _join(decision: Decision, guarded: Decision) -> Decision:
    """Return that a guard asks about what access rules allow; where both ask, neither is approved as the other."""
    rule = f"{decision.rule}, {guarded.rule}" if decision.must_ask else guarded.rule
    return structs.replace(guarded, rule=rule, allowed_by=decision.allowed_by)


def _restore(message: UpstreamRequest) -> UpstreamRequest:
    """Return a call as the server gets it. Raises InvalidArguments and NotFound."""
    shown, params = message.tool, message.params
    if shown is None or params is None or message.group.overridden is None:
        return message
    tool = message.group.find_shown(shown)
    if tool is None:
        raise NotFound(f"tool of group `{message.group.name}`", shown)
    given = params.get("arguments")
    restored = tool.restore(given)
    if restored is not given and restored is not None:
        params = {**params, "name": Raw(wire.encode(tool.own_name)), "arguments": restored}
    elif tool.own_name != shown:
        params = {**params, "name": Raw(wire.encode(tool.own_name))}
    return message if params is message.params else structs.replace(message, params=params, tool=tool.own_name)


def _has_guards(message: UpstreamRequest) -> bool:
    rules = message.group.call_rules
    return rules is not None and rules.guards is not None and message.method == "tools/call"


def _has_limits(message: UpstreamRequest) -> bool:
    rules = message.group.call_rules
    return rules is not None and rules.limits is not None
