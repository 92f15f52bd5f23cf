"""The one way from a use case to an upstream: whatever looks at requests on their way has its place here.

A request enters once its target is resolved and its arguments are repaired, and before it takes a place and its
timeout starts, so that waiting for a person costs no upstream anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Raw, Struct, structs

from dynamic_mcp.client import Client
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ApprovalNeeded
from dynamic_mcp.groups.group import Group
from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.mcp import envelope, wire
from dynamic_mcp.mcp.envelope import INPUT_REQUIRED, RETRY_MEMBERS
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.observation import Event
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.request_state import StateRefused
from dynamic_mcp.proxy.turns import Turns
from dynamic_mcp.proxy.view import GroupView, View
from dynamic_mcp.system.clock import Clock

if TYPE_CHECKING:  # loaded with the first access rule
    from dynamic_mcp.policy.access import Decision
    from dynamic_mcp.proxy.authorization import Authorization, Right
    from dynamic_mcp.proxy.plugins.plugins import Plugins
    from dynamic_mcp.proxy.ruled_calls import RuledCalls


class UpstreamRequest(Struct, frozen=True, gc=False):
    """What is to be sent to a group's upstream because of a client's request; `label` names it in messages.

    `notes` say what was done to the arguments so that they fit. `tool` is the server's name of the tool that is
    called, where there are rules or plug-ins; None for any other request.
    """

    request: Request
    group: GroupView
    method: str
    params: Mapping[str, Raw] | None
    timeout_s: float
    label: str = ""
    instance: Instance | None = None
    notes: tuple[str, ...] = ()
    tool: str | None = None


Next = Callable[[UpstreamRequest], Awaitable[Frame]]


# In `_meta` of a result: what a person has said of the call, or that nobody has yet.
APPROVAL = "dynamic-mcp/approval"


class Approval(Protocol):
    """Asks a person whether requests may be sent."""

    @property
    def pending(self) -> int:
        """How many questions are open."""
        ...

    @property
    def outcomes(self) -> Mapping[str, int]:
        """How many questions have come to which end."""
        ...

    async def send(self, message: UpstreamRequest, decision: Decision, right: Right | None, following: Next) -> Frame:
        """Have a request sent once a person has allowed it, perhaps with arguments that the person has changed.

        `right` says why the client may do it at all, where there are access rules. Raises ApprovalDenied,
        ApprovalNeeded and ApprovalPending.
        """
        ...

    def apply(self, config: Config) -> None:
        """Ask as this config says from now on; what was asked or allowed by other rules is denied."""
        ...

    def release(self, client: Client) -> None:
        """Forget what holds for the session of a client that has gone."""
        ...

    async def close(self) -> None:
        """Deny all that waits."""
        ...


OpenApproval = Callable[[Config, Callable[[Event], None]], Approval]


def open_approval(config: Config, note: Callable[[Event], None]) -> Approval:
    """Return what asks persons in their clients only; `note` takes events."""
    from dynamic_mcp.observe.approvals import make_id
    from dynamic_mcp.proxy.approval.human import HumanApproval

    return HumanApproval(config, note, make_id=make_id)


class Pipeline:
    """What requests pass on their way to upstreams; nothing until something is configured.

    `authorization` decides, where there are access rules; `plugins` come after it; `approval` asks a person where a
    rule says so. What rules of servers count and keep goes by the time of `clock`; marks in `clearing_folder` have
    what is kept dropped.
    """

    def __init__(
        self,
        open_approval: OpenApproval = open_approval,
        clock: Clock | None = None,
        clearing_folder: Path | None = None,
    ) -> None:
        self.authorization: Authorization | None = None
        self.approval: Approval | None = None
        self.plugins: Plugins | None = None
        self._ruled: RuledCalls | None = None
        self._open_approval = open_approval
        self._turns = Turns()
        self._clock, self._clearing_folder = clock, clearing_folder

    def decide_by(self, view_for: Callable[[Client], View] | None) -> None:
        """Have requests decided by what clients may see from now on; None decides nothing, and costs nothing."""
        if view_for is None:
            self.authorization = None
        elif self.authorization is None:
            from dynamic_mcp.proxy.authorization import Authorization

            self.authorization = Authorization(view_for)

    def ask_by(self, config: Config, note: Callable[[Event], None]) -> None:
        """Have a person asked where a rule of this config says so; without one, nothing is loaded for that."""
        if self.approval is not None:
            self.approval.apply(config)
        elif config.asks:
            self.approval = self._open_approval(config, note)

    def keep_for(self, configs: Iterable[Config]) -> None:
        """Drop the kept results that no rule of these configs keeps any more."""
        if self._ruled is not None:
            self._ruled.cache.retain(configs)

    def note_update(self, group: Group, frame: Frame) -> None:
        """Learn from a notification that a resource has changed, so that no result of it is kept."""
        if self._ruled is not None:
            self._ruled.cache.note_update(group, wire.text(wire.member(frame.params, "uri")) or "")

    def check(self, request: Request, group: GroupView, method: str, params: Mapping[str, Raw] | None) -> None:
        """Let what is about to be sent, or done without sending it, pass the access rules.

        Raises AccessDenied and ApprovalNeeded.
        """
        if self.authorization is not None:
            self.authorization.check(request, group, method, params)

    def release(self, client: Client) -> None:
        """Forget what a person has allowed for the session of a client that has gone."""
        if self.approval is not None:
            self.approval.release(client)

    async def close(self) -> None:
        """Deny all that waits for a person."""
        if self.approval is not None:
            await self.approval.close()

    def note_task(self, group: GroupView, id: str, tool: str) -> None:
        """Note which tool a task is of; who may not use the tool may not ask about its tasks either."""
        if self.authorization is not None:
            self.authorization.note_task(group.name, id, tool)

    def send(
        self,
        request: Request,
        group: GroupView,
        method: str,
        params: Mapping[str, Raw] | None,
        *,
        timeout_s: float,
        label: str = "",
        instance: Instance | None = None,
        notes: tuple[str, ...] = (),
    ) -> Awaitable[Frame]:
        """Send a request to a group's upstream, for the client of `request`.

        It goes to the client's instance, unless another `instance` has what it is about. Raises UpstreamError, and
        AccessDenied, ApprovalDenied, ApprovalNeeded and ApprovalPending, where nothing was sent.
        """
        if group.call_rules is not None or (self.plugins is not None and self.plugins.are_for(group.name, method)):
            tool = wire.text(params.get("name")) if params is not None and method == "tools/call" else None
            message = UpstreamRequest(request, group, method, params, timeout_s, label, instance, notes, tool)
            return self._by_rules(message)
        if request.observation is not None:
            request.observation.note_target(group, method, params)
        must_ask = None
        if self.authorization is not None:
            decision = self.authorization.decide(request, group, method, params)
            must_ask = decision if decision is not None and decision.must_ask else None
        is_plain = request.observation is None and not request.revision.is_stateless
        if must_ask is None and is_plain:
            target = group.group if instance is None else instance
            return target.request(method, params, timeout_s=timeout_s, caller=request, label=label)
        message = UpstreamRequest(request, group, method, params, timeout_s, label, instance, notes)
        return self._send(message) if must_ask is None else self._ask(message, must_ask, self._send_allowed)

    def _by_rules(self, message: UpstreamRequest) -> Awaitable[Frame]:
        if self._ruled is None:
            from dynamic_mcp.proxy.ruled_calls import RuledCalls

            self._ruled = RuledCalls(self._decide, self._ask, self._send, self._clock, self._clearing_folder)
        self._ruled.plugins = self.plugins
        return self._ruled.send(message)

    async def _ask(self, message: UpstreamRequest, decision: Decision, following: Next) -> Frame:
        if self.approval is None:
            raise ApprovalNeeded(f"{message.label or message.method} of group `{message.group.name}`")
        right = None
        if self.authorization is not None:
            right = self.authorization.find_right(message.request, message.group, message.params, decision)
        return await self.approval.send(message, decision, right, following)

    async def _send_allowed(self, message: UpstreamRequest) -> Frame:
        self._decide(message)  # the person may have changed arguments, and the config may be another
        return await self._send(message)

    def _decide(self, message: UpstreamRequest) -> Decision | None:
        if self.authorization is None:
            return None
        return self.authorization.decide(message.request, message.group, message.method, message.params)

    def _send(self, message: UpstreamRequest) -> Awaitable[Frame]:
        if message.request.revision.is_stateless:
            return self._send_stateless(message)
        return _request(message, message.params, message.request)

    async def _send_stateless(self, message: UpstreamRequest) -> Frame:
        """Send a request of a modern client, whose answer may ask for input. Raises UnsafeQuestion."""
        if message.params is not None and not RETRY_MEMBERS.isdisjoint(message.params):
            answer = await self._send_retry(message)
        else:
            answer = await self._send_first(message)
        if not len(answer.result) or envelope.result_type(answer.result) != INPUT_REQUIRED:
            return answer
        from dynamic_mcp.proxy.asked_questions import prepare_input  # with the first question

        return prepare_input(message.group.name, message.request.client, answer)

    def _send_first(self, message: UpstreamRequest) -> Awaitable[Frame]:
        if self._turns.are_needed(message.group, message.method):
            return self._send_in_turn(message)
        return _request(message, message.params, message.request)

    async def _send_retry(self, message: UpstreamRequest) -> Frame:
        """Send a retry to the upstream that it is for. Raises StateRefused if that has given no such state."""
        params = message.params or {}
        if await _instance(message).is_modern(message.request.client):
            return await _request(message, params, message.request)
        if "requestState" in params:
            raise StateRefused("invalid")
        plain = {name: value for name, value in params.items() if name not in RETRY_MEMBERS}
        return await self._send_first(structs.replace(message, params=plain))

    def _send_in_turn(self, message: UpstreamRequest) -> Awaitable[Frame]:
        send = partial(_request, message, message.params)
        return self._turns.run(message.request, message.group, _instance(message), message.timeout_s, send)


def _request(message: UpstreamRequest, params: Mapping[str, Raw] | None, caller: Request) -> Awaitable[Frame]:
    if caller.observation is not None:
        if caller is not message.request or params is not message.params:
            message = structs.replace(message, request=caller, params=params)
        return caller.observation.observers.send(message, _request_now)
    target = message.group.group if message.instance is None else message.instance
    return target.request(message.method, params, timeout_s=message.timeout_s, caller=caller, label=message.label)


def _request_now(message: UpstreamRequest) -> Awaitable[Frame]:
    target = message.group.group if message.instance is None else message.instance
    return target.request(
        message.method, message.params, timeout_s=message.timeout_s, caller=message.request, label=message.label
    )


def _instance(message: UpstreamRequest) -> Instance:
    return message.instance or message.group.group.instance_for(message.request.client)
