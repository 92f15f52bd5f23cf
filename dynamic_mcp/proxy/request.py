"""One request of a client with its context, what is sent because of it, and what observers hear of it.

Every use case takes a request, and what it causes goes back through it. An `Observation` is begun with each request
if there are observers, goes with it, and is filled on the way. Observers hear of it at four points.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw, Struct, structs

from dynamic_mcp.client import Caller, Client
from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.identity import Principal
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.revisions import Revision
from dynamic_mcp.mcp.wire import ABSENT, Frame
from dynamic_mcp.proxy.outcomes import TOOL_ERROR, WELL, Outcome, blame_server, outcome_of, upstream_outcome_of
from dynamic_mcp.proxy.view import GroupView, View

if TYPE_CHECKING:
    from dynamic_mcp.groups.group import Group
    from dynamic_mcp.policy.access import Decision


class Channel(Caller, Protocol):
    """The channel on which a request is answered, with its source address and port; empty and 0 if it has none."""

    @property
    def address(self) -> str:
        """The address of the client that has sent the request."""
        ...

    @property
    def port(self) -> int:
        """The port that the client has sent it from."""
        ...


class PlannedCall(Struct, frozen=True):
    """A tool of a group, by the server's name, about each call of which `decision` has a person asked.

    It is called `most` times at most.
    """

    group: GroupView
    tool: str
    decision: Decision
    most: int


class CallPlan:
    """What a call of one of our own tools, `name`, is going to call, for a person who is asked once about all of it.

    The arguments of the `calls` are not known. `script` and its `data` are what makes them. `grants` are what the
    step that asks has been allowed: they end with the plan.
    """

    def __init__(self, name: str, calls: Sequence[PlannedCall], *, script: str, data: Raw) -> None:
        self.name = name
        self.calls = calls
        self.script = script
        self.data = data
        self.grants: dict[Any, Any] = {}  # Any: only that step knows them


class Request(Struct, frozen=True, gc=False):
    """A request or notification of a client: its method and params, who it is from, and what that client may see.

    `id` is that of the JSON-RPC request; a notification has none. `observation` is set if there are observers.

    A request that one of our own tools makes, while it answers a call, has that call as its `parent`, and may be part
    of a `plan`.

    `notify` and `ask` reach the client where this request is answered: over its `channel`, if it has one. It is the
    caller of all that is sent to upstreams because of it.
    """

    method: str
    params: Raw
    client: Client
    view: View
    channel: Channel | None = None
    id: Raw = ABSENT
    observation: Observation | None = None
    parent: Request | None = None
    plan: CallPlan | None = None

    @property
    def principal(self) -> Principal:
        """The principal that the client acts for."""
        return self.client.principal

    @property
    def address(self) -> str:
        """The address that this very request came from; empty where there is none, as over stdio."""
        return (self.channel or self.client).address

    @property
    def port(self) -> int:
        """The port that it came from; 0 where there is none, or a reverse proxy has another."""
        return 0 if self.channel is None else self.channel.port

    @property
    def recipient(self) -> Caller:
        """The client that gets the upstream's messages while this request is in flight."""
        return (self.channel or self.client).recipient

    @property
    def stream(self) -> Hashable:
        """What the messages of this request go over."""
        return (self.channel or self.client).stream

    @property
    def log_level(self) -> str:
        """The level of the log messages that this request asks for; empty if it says nothing of them."""
        return (self.channel or self.client).log_level

    @property
    def is_parked(self) -> bool:
        """True if the request goes on without its client, which is to come back."""
        return (self.channel or self.client).is_parked

    @property
    def revision(self) -> Revision:
        """The revision of the protocol that the client speaks."""
        return self.client.hello.revision

    def notify(self, frame: Frame) -> None:
        """Send the client a notification that this request has caused."""
        (self.channel or self.client).notify(frame)

    async def ask(self, frame: Frame, on_status: Callable[[Frame], None]) -> Frame:
        """Send the client a request that this request has caused, and return its answer."""
        return await (self.channel or self.client).ask(frame, on_status)


class OwnQuestion(Frame, gc=False):
    """A question of ours about a request, which is not sent before there is an answer."""


class ForwardingChannel(Channel):
    """A channel that passes everything on to the client of a request; a subclass overrides what it changes."""

    def __init__(self, request: Request) -> None:
        self._request = request

    @property
    def address(self) -> str:
        return self._request.address

    @property
    def port(self) -> int:
        return self._request.port

    @property
    def client(self) -> Hashable:
        return self._request.client

    @property
    def recipient(self) -> Caller:
        return self._request.recipient

    @property
    def stream(self) -> Hashable:
        return self._request.stream

    @property
    def log_level(self) -> str:
        return self._request.log_level

    @property
    def is_parked(self) -> bool:
        return self._request.is_parked

    def notify(self, frame: Frame) -> None:
        self._request.notify(frame)

    async def ask(self, frame: Frame, on_status: Callable[[Frame], None]) -> Frame:
        return await self._request.ask(frame, on_status)


class UpstreamRequest(Struct, frozen=True, gc=False):
    """A request on its way to a group's upstream; `label` names it in messages.

    `notes` say what was done to the arguments so that they fit. `tool` is the server's name of the tool that is
    called, where the group has steps; None for any other request. `decision` is that of the access rules and guards
    so far, and `redacted` the params that are redacted already.
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
    decision: Decision | None = None
    redacted: Mapping[str, Raw] | None = None

    @property
    def is_about_skill(self) -> bool:
        """Return whether a request is about a skill, or a file of one, whose digests are of the server's bytes."""
        if self.method == "skills/get":
            return True
        catalog, uri = self.group.group.catalog, wire.text((self.params or {}).get("uri"))
        return self.method == "resources/read" and bool(uri) and bool(catalog and catalog.has_skill_file(uri or ""))


Next = Callable[[UpstreamRequest], Awaitable[Frame]]
# Runs the steps before a step that decide about arguments again, and then what it is given.
Restart = Callable[[UpstreamRequest, Next], Awaitable[Frame]]


# --- what observers hear ------------------------------------------------------------------------------


class AccessDenial(Struct, frozen=True):
    """The hidden target: its group, and the rule that hides it."""

    group: str
    rule: str


class ApprovalNote(Struct, frozen=True):
    """A user's decision on a call: `id` of the question, by whom, over which channel, and after how many seconds.

    `original` are the client's arguments, if the user has changed them. `reason` is why it was not
    allowed; without an `id`, no question was asked.
    """

    id: str
    outcome: str
    by: str = ""
    channel: str = ""
    waited_s: float = 0.0
    original: Raw | None = None
    reason: str = ""


class IdSigner(Protocol):
    """Signs the ids of what clients of several processes are given, with the process that has it."""

    def sign(self, id: str, client: Client) -> str:
        """Return what a client is given for an id."""
        ...

    def open(self, id: str, client: Client) -> str | None:
        """Return the id that was signed; None for one that this client was not given."""
        ...


class ReplicaStatus(Struct, frozen=True):
    """What a replica says of the others: its own name, those it knows, and how many addresses do not answer.

    `forwarded` is how many requests it has passed on, of which `in_flight` have no answer yet, and `lost` never got
    one. `turned_away` were not passed on, since too much was waiting. `refused` came from somebody who is no replica.
    """

    name: str
    replicas: tuple[str, ...]
    unreachable: int
    forwarded: int
    in_flight: int
    lost: int
    turned_away: int
    refused: int


class Replicas(Protocol):
    """The processes that serve the same clients, of which this one is one."""

    @property
    def task_ids(self) -> IdSigner:
        """Signs the ids of tasks that modern clients are given."""
        ...

    @property
    def link_mark(self) -> str:
        """What names in links begin with that a browser may open at another process, which passes that on to this."""
        ...

    @property
    def result_ids(self) -> IdSigner:
        """Signs the ids of results that are kept."""
        ...

    async def find_opened_apps(self, key: str) -> list[str]:
        """Return the groups of which a client without a session has read a page elsewhere; `key` says who it is."""
        ...

    def derive_key(self, purpose: bytes) -> bytes:
        """Return a key of 32 bytes that all of these processes have, and that is for this purpose alone."""
        ...

    def describe(self) -> ReplicaStatus: ...


class ApprovalCounts:
    """The number of open approval questions, and of those with each outcome."""

    def __init__(self) -> None:
        self.pending = 0
        self.outcomes: Counter[str] = Counter()


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
    denial: AccessDenial | None = None
    hidden: Mapping[str, int] | None = None
    sent: tuple[str, Frame | None, BaseException | None] | None = None
    outcome: Outcome = WELL

    @property
    def sent_outcome(self) -> Outcome:
        """The outcome of the current, or else the last, request to an upstream."""
        return WELL if self.sent is None else upstream_outcome_of(*self.sent)

    def note_target(self, group: GroupView, method: str, params: Mapping[str, Raw] | None) -> None:
        """Record the target of the request: its group, name and params."""
        self.group, self.params = group, params
        self.name = wire.text((params or {}).get("uri" if method.startswith("resources/") else "name")) or ""

    def note_decision(self, decision: Decision) -> None:
        """Record the decision of the access rules or guards."""
        self.decision, self.rule = decision.effect.value, decision.rule

    def note_refusal(self, rule: str) -> None:
        """Record the rule that refuses it."""
        self.decision, self.rule = "deny", rule


class Event(Struct, frozen=True):
    """Something that is worth recording and is no call: `approval.decided`, `auth.denied`, `config.reload`."""

    name: str
    members: Mapping[str, object] = {}
    client: Client | None = None


class Observer:
    """Records or measures requests. The methods are called in the event loop and must not block."""

    def begin(self, observation: Observation) -> None:
        """A client has made a request."""

    def send(self, observation: Observation, message: UpstreamRequest) -> UpstreamRequest:
        """A request is about to be sent to an upstream: return the request to send.

        A DynamicMcpError that is raised here keeps it from being sent.
        """
        return message

    def receive(self, observation: Observation, answer: Frame | None, error: BaseException | None) -> None:
        """The upstream has answered, or its answer will not come."""

    def end(self, observation: Observation, answer: Frame | None, error: BaseException | None) -> None:
        """The client's request has been answered, has failed, or was cancelled."""

    def note(self, event: Event) -> None:
        """Something else has happened."""

    def link_opened(self, group: Group, instance: Instance) -> None:
        """A group's instance has connected to its upstream."""

    def group_changed(self, group: Group) -> None:
        """The state of a group's instance, or the group's catalog, is another one."""


class Observers:
    """All observers; the first begins first and ends last."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)
        # only those that an observer has: each call asks for all of them
        self._begin = [each.begin for each in observers if type(each).begin is not Observer.begin]
        self._send = [each.send for each in observers if type(each).send is not Observer.send]
        self._receive = [each.receive for each in reversed(observers) if type(each).receive is not Observer.receive]
        self._end = [each.end for each in reversed(observers) if type(each).end is not Observer.end]

    async def answer(self, answer: Callable[[Request], Awaitable[Frame]], request: Request) -> Frame:
        """Have a request answered, and observe it."""
        observation = Observation(self, request, time.time(), time.perf_counter())
        # the observation keeps the request without itself: a cycle of those two would never be freed
        request = structs.replace(request, observation=observation)
        for begin in self._begin:
            begin(observation)
        try:
            frame = await answer(request)
        except BaseException as exc:
            self._finish(observation, None, exc)
            raise
        self._finish(observation, frame, None)
        return frame

    def _finish(self, observation: Observation, answer: Frame | None, error: BaseException | None) -> None:
        observation.outcome = outcome_of(observation.request.method, answer, error)
        if observation.outcome.error_type == TOOL_ERROR:
            observation.outcome = blame_server(observation.outcome, observation.sent_outcome)
        for end in self._end:
            end(observation, answer, error)

    async def send(self, message: UpstreamRequest, send: Callable[[UpstreamRequest], Awaitable[Frame]]) -> Frame:
        """Have a request sent to an upstream, and observe it. Raises what keeps it from being sent."""
        observation = message.request.observation
        assert observation is not None
        for prepare in self._send:
            message = prepare(observation, message)
        observation.sent = message.method, None, None
        try:
            frame = await send(message)
        except BaseException as exc:
            self._record_sent(observation, message.method, None, exc)
            raise
        self._record_sent(observation, message.method, frame, None)
        return frame

    def _record_sent(
        self, observation: Observation, method: str, answer: Frame | None, error: BaseException | None
    ) -> None:
        observation.sent = method, answer, error
        for receive in self._receive:
            receive(observation, answer, error)

    def note(self, event: Event) -> None:
        for each in self._observers:
            each.note(event)

    def __iter__(self) -> Iterator[Observer]:
        return iter(self._observers)


def link_opened(observers: Observers | None, group: Group, instance: Instance) -> None:
    """Notify the observers, if any, that a group's instance has connected."""
    for each in observers or ():
        each.link_opened(group, instance)


def group_changed(observers: Observers | None, group: Group) -> None:
    """Notify the observers that a group has changed."""
    for each in observers or ():
        each.group_changed(group)
