"""What happens to one request of a client, told to whoever records or measures it. Nothing here is done without them.

An `Observation` is begun with each request, goes with it, and is filled on the way: by the chain with the target,
the decision and the final arguments, by the approval with what a person said. Observers hear of it at four points.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Raw, Struct, structs

from dynamic_mcp.client import Client
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.outcomes import TOOL_ERROR, WELL, Outcome, blame_server, outcome_of, upstream_outcome_of

if TYPE_CHECKING:
    from dynamic_mcp.groups.group import Group
    from dynamic_mcp.groups.instance import Instance
    from dynamic_mcp.policy.access import Decision
    from dynamic_mcp.proxy.chain import UpstreamRequest
    from dynamic_mcp.proxy.denials import Denial
    from dynamic_mcp.proxy.request import Request
    from dynamic_mcp.proxy.view import GroupView


class ApprovalNote(Struct, frozen=True):
    """What a person said of a call: `id` of the question, by whom, over which channel, and after how many seconds.

    `original` are the arguments as the client gave them, if the person has changed them. `reason` is why it was not
    allowed; without an `id`, nobody was asked.
    """

    id: str
    outcome: str
    by: str = ""
    channel: str = ""
    waited_s: float = 0.0
    original: Raw | None = None
    reason: str = ""


class Observation(Struct):
    """One request of a client. What is not known yet, or does not apply, is empty or None.

    `started` is a reading of `time.perf_counter`, `at` is seconds since 1970. `asked` is the tool as the client
    wrote it. `group` is the view of the group that the request goes to, and `name` the server's own name, or the URI.
    `decision` is `allow`, `ask` or `deny`, and `rule` the rule behind it. `is_cached` says that a kept result was the
    answer. `trace` is the id of the trace that the request is part of, if it is traced. `denial` says by which rule
    the client is told that there is no such thing, and `hidden` how much a search does not show. `sent` is the
    request to an upstream that observers are just told of, or were last: its method, answer and error. `outcome` is
    what came of the client's request.
    """

    observers: Observers
    request: Request
    at: float
    started: float
    asked: str = ""
    group: GroupView | None = None
    name: str = ""
    params: Mapping[str, Raw] | None = None
    decision: str = ""
    rule: str = ""
    is_cached: bool = False
    approval: ApprovalNote | None = None
    trace: str = ""
    denial: Denial | None = None
    hidden: Mapping[str, int] | None = None
    sent: tuple[str, Frame | None, BaseException | None] | None = None
    outcome: Outcome = WELL

    @property
    def sent_outcome(self) -> Outcome:
        """What came of the request to an upstream that observers are just told of, or were last."""
        return WELL if self.sent is None else upstream_outcome_of(*self.sent)

    def note_target(self, group: GroupView, method: str, params: Mapping[str, Raw] | None) -> None:
        """Note where the request goes, under which name and with which params."""
        self.group, self.params = group, params
        self.name = wire.text((params or {}).get("uri" if method.startswith("resources/") else "name")) or ""

    def note_decision(self, decision: Decision) -> None:
        """Note what the access rules or guards say of it."""
        self.decision, self.rule = decision.effect.value, decision.rule

    def note_refusal(self, rule: str) -> None:
        """Note the rule that does not let it pass."""
        self.decision, self.rule = "deny", rule


class Event(Struct, frozen=True):
    """Something that is worth recording and is no call: `approval.decided`, `auth.denied`, `config.reload`."""

    name: str
    members: Mapping[str, object] = {}
    client: Client | None = None


class Observer:
    """Records or measures requests. The methods are called in the event loop and must not block."""

    def begin(self, seen: Observation) -> None:
        """A client has made a request."""

    def send(self, seen: Observation, message: UpstreamRequest) -> UpstreamRequest:
        """A request is about to be sent to an upstream: return it as it is to be sent.

        A DynamicMcpError that is raised here keeps it from being sent.
        """
        return message

    def receive(self, seen: Observation, answer: Frame | None, error: BaseException | None) -> None:
        """The upstream has answered, or its answer will not come."""

    def end(self, seen: Observation, answer: Frame | None, error: BaseException | None) -> None:
        """The client's request has been answered, has failed, or was cancelled."""

    def note(self, event: Event) -> None:
        """Something else has happened."""

    def link_opened(self, group: Group, instance: Instance) -> None:
        """A group's instance has connected to its upstream."""

    def group_changed(self, group: Group) -> None:
        """The state of a group's instance, or the group's catalog, is another one."""


class Observers:
    """All who observe; the first begins first and ends last."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)
        self._reversed = tuple(reversed(self._observers))

    async def answer(self, answer: Callable[[Request], Awaitable[Frame]], request: Request) -> Frame:
        """Have a request answered, and observe it."""
        seen = Observation(self, request, time.time(), time.perf_counter())
        seen.request = request = structs.replace(request, observation=seen)
        for each in self._observers:
            each.begin(seen)
        try:
            frame = await answer(request)
        except BaseException as exc:
            self._end(seen, None, exc)
            raise
        self._end(seen, frame, None)
        return frame

    def _end(self, seen: Observation, answer: Frame | None, error: BaseException | None) -> None:
        seen.outcome = outcome_of(seen.request.method, answer, error)
        if seen.outcome.error_type == TOOL_ERROR:
            seen.outcome = blame_server(seen.outcome, seen.sent_outcome)
        for each in self._reversed:
            each.end(seen, answer, error)

    async def send(self, message: UpstreamRequest, send: Callable[[UpstreamRequest], Awaitable[Frame]]) -> Frame:
        """Have a request sent to an upstream, and observe it. Raises what keeps it from being sent."""
        seen = message.request.observation
        assert seen is not None
        for each in self._observers:
            message = each.send(seen, message)
        seen.sent = message.method, None, None
        try:
            frame = await send(message)
        except BaseException as exc:
            self._receive(seen, message.method, None, exc)
            raise
        self._receive(seen, message.method, frame, None)
        return frame

    def _receive(self, seen: Observation, method: str, answer: Frame | None, error: BaseException | None) -> None:
        seen.sent = method, answer, error
        for each in self._reversed:
            each.receive(seen, answer, error)

    def note(self, event: Event) -> None:
        """Tell everybody of something else that has happened."""
        for each in self._observers:
            each.note(event)

    def __iter__(self) -> Iterator[Observer]:
        return iter(self._observers)


def link_opened(observers: Observers | None, group: Group, instance: Instance) -> None:
    """Tell those who observe, if somebody does, that a group's instance has connected."""
    for each in observers or ():
        each.link_opened(group, instance)


def group_changed(observers: Observers | None, group: Group) -> None:
    """Tell them that something of a group has changed."""
    for each in observers or ():
        each.group_changed(group)
