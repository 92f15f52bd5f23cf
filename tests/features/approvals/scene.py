"""A proxy whose rules want a person asked, and the person: with a clock, a queue and ids of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dynamic_mcp.config.access import LOCAL_NAME, Access
from dynamic_mcp.config.resolved import Config, Rules
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.features.approvals.config import Approval
from dynamic_mcp.features.approvals.human import HumanApproval
from dynamic_mcp.features.approvals.notices import ApprovalNotices
from dynamic_mcp.features.approvals.queue import ApprovalServer, Receive
from dynamic_mcp.features.approvals.step import AskForApproval
from dynamic_mcp.features.approvals.store import ApprovalDecision, QueuedApproval, Scope
from dynamic_mcp.identity import LOCAL_USER
from dynamic_mcp.proxy.chain import MakeStep, Services
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import ApprovalNote, Event, Observation, Observer, Observers
from dynamic_mcp.system.clock import Clock
from dynamic_mcp.upstream.open import OpenLink
from tests.fakes import (
    BOUND_S,
    Client,
    FakeClock,
    FakeUpstream,
    Opener,
    PresentedGroup,
    config_of,
    group_config,
    tool,
)
from tests.modern_client import ModernClient
from tests.policy.rules import access_of, person

Json = Any  # whatever JSON a test writes down

READ_S = 3.0  # how long the persons of these tests read
ONE = {"path": "/one"}
DONE = {"content": [{"type": "text", "text": "done"}]}
CAN_ASK: Json = {"elicitation": {"form": {}}}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
RULES: tuple[Json, ...] = (
    {},
    {"tools": ["delete_*"], "prompts": ["secret"], "resources": ["x://*"], "effect": "ask"},
)
ANSWERS: dict[str, Json] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": True}, "prompts": {}, "resources": {}},
        "serverInfo": {"name": "fake", "version": "1"},
    },
    "tools/list": {
        "tools": [
            tool("get_file"),
            tool("delete_file", description="Deletes\na file.", inputSchema=SCHEMA),
            tool("delete_all"),
        ]
    },
    "tools/call": DONE,
    "prompts/list": {"prompts": [{"name": "secret", "description": "Tells a secret."}]},
    "prompts/get": {"messages": []},
    "resources/list": {"resources": [{"uri": "x://one", "name": "One"}]},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": []},
}


class FakeQueue(ApprovalServer):
    """The queue without a folder, and the person who sees it."""

    def __init__(self, receive: Receive) -> None:
        super().__init__(Path(os.devnull), receive)
        self.pending: dict[str, QueuedApproval] = {}
        self.put_count = 0
        self.is_broken = False
        self.is_closed = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def put(self, pending: QueuedApproval) -> None:
        if self.is_broken:
            raise OSError("read-only")
        await self.gate.wait()
        self.pending[pending.id] = pending
        self.put_count += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def remove(self, id: str, why: str = "") -> None:
        self.pending.pop(id, None)

    async def close(self) -> None:
        self.is_closed = True

    async def waits(self, count: int = 1) -> QueuedApproval:
        """Wait until so many calls wait, and return the latest."""
        async with asyncio.timeout(BOUND_S):
            while len(self.pending) < count:
                await self._changed.wait()
        return [*self.pending.values()][-1]

    def allow(self, id: str, scope: Scope = "once", arguments: Json = None) -> str:
        """Allow a call; returns why that does not count, if it does not."""
        edited = b"" if arguments is None else json.dumps(arguments).encode()
        return self._send(ApprovalDecision(id=id, verdict="allow", scope=scope, by="eve", arguments=edited))

    def deny(self, id: str, reason: str = "") -> str:
        """Deny a call."""
        return self._send(ApprovalDecision(id=id, verdict="deny", by="eve", reason=reason))

    def _send(self, decision: ApprovalDecision) -> str:
        try:
            self._receive(decision)
        except DynamicMcpError as exc:
            return str(exc)
        self.pending.pop(decision.id, None)
        return ""


class NotedNotices(ApprovalNotices):
    """Keeps the ids of what a person would be told of."""

    def __init__(self, notified: list[str]) -> None:
        super().__init__()
        self.notified = notified

    def notify(self, settings: Approval, pending: QueuedApproval) -> None:
        self.notified.append(pending.id)


class Notes(Observer):
    """An observer that keeps what it is told of approvals, and each request once it has ended."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ended: list[Observation] = []

    def end(self, seen: Observation, answer: object, error: BaseException | None) -> None:
        self.ended.append(seen)

    def note(self, event: Event) -> None:
        if event.name.startswith("approval."):
            self.events.append(event)

    @property
    def approvals(self) -> list[ApprovalNote]:
        """What was noted of requests that a person was asked about, or would have been."""
        return [seen.approval for seen in self.ended if seen.approval is not None]

    @property
    def names(self) -> list[str]:
        """The names of the events, in their order."""
        return [event.name for event in self.events]


class Scene:
    """A proxy with one server, `up`, whose tools `delete_*` want a person asked."""

    def __init__(
        self,
        rules: tuple[Json, ...] | None,
        approval: Approval,
        opener: OpenLink,
        group: PresentedGroup,
        *,
        has_queue: bool,
    ) -> None:
        self.clock = FakeClock()
        self.notes = Notes()
        self.notified: list[str] = []
        self.access: Access | None = None
        if rules is not None:
            self.access = access_of(roles={"dev": list(rules), "admin": [{}]}, people={LOCAL_NAME: ["dev"]})
        self.settings = approval
        self.groups = [group]
        self._ids = (f"Q{number}" for number in itertools.count(1))
        self._has_queue = has_queue
        self._queue: FakeQueue | None = None
        self._is_open = asyncio.Event()
        steps = {"approval": partial(AskForApproval, make=self._make_approval)}
        self.proxy = Proxy(self._config(), opener=opener, steps=steps)
        self.proxy.observers = Observers([self.notes])

    @property
    def queue(self) -> FakeQueue:
        """The queue, which is opened with the first rule that asks."""
        assert self._queue is not None
        return self._queue

    @property
    def is_queue_open(self) -> bool:
        """Whether a call has come to the queue."""
        return self._queue is not None and self._queue.put_count > 0

    async def waits(self, count: int = 1) -> QueuedApproval:
        """Wait until so many calls wait in the queue, and return the latest."""
        async with asyncio.timeout(BOUND_S):
            await self._is_open.wait()
        return await self.queue.waits(count)

    async def join(
        self,
        *,
        can: Json = None,
        subject: str = "ann",
        only: str | None = None,
        roles: tuple[str, ...] = ("dev",),
        is_local: bool = False,
    ) -> Client:
        """Return a legacy client of a developer, or of the local user."""
        authentication = LOCAL_USER if is_local else person(subject, *roles)
        client = Client(self.proxy, only=only, authentication=authentication)
        await client.initialize(capabilities=can or {})
        return client

    def join_modern(self, *, can: Json = None, subject: str = "ann", only: str | None = None) -> ModernClient:
        """Return a modern client of a developer."""
        return ModernClient(self.proxy, capabilities=can or {}, authentication=person(subject, "dev"), only=only)

    def change(self, *, access: Access | None = None, approval: Approval | None = None) -> None:
        """Reload the config with other rules or settings, or as it was."""
        self.access, self.settings = access or self.access, approval or self.settings
        self.proxy.apply(self._config())

    def add_group(self, name: str) -> None:
        """Reload the config with one more server."""
        self.groups.append(group_config(name))
        self.change()

    def _config(self) -> Config:
        return config_of(*self.groups, access=self.access, approval=self.settings)

    def _make_approval(self, services: Services) -> HumanApproval:
        return HumanApproval(
            services.config,
            services.note,
            make_id=lambda: next(self._ids),
            open_server=self._open_server if self._has_queue else None,
            notices=NotedNotices(self.notified),
            clock=self.clock,
        )

    def _open_server(self, receive: Receive) -> FakeQueue:
        self._queue = FakeQueue(receive)
        self._is_open.set()
        return self._queue


@contextlib.asynccontextmanager
async def approving(
    upstream: FakeUpstream | None = None,
    *,
    rules: tuple[Json, ...] | None = RULES,
    approval: Approval | None = None,
    has_queue: bool = True,
    opener: OpenLink | None = None,
    call_rules: Rules | None = None,
    **changes: Json,
) -> AsyncIterator[Scene]:
    """Run the proxy; `rules` None is without access rules."""
    opener = opener or Opener(up=[upstream or FakeUpstream(ANSWERS) for _ in range(3)])
    group = group_config(rules=call_rules or {}, **changes)
    scene = Scene(rules, approval or Approval(), opener, group, has_queue=has_queue)
    try:
        yield scene
    finally:
        await scene.proxy.close()


def begin(client: Client, name: str = "delete_file", args: Json = None) -> asyncio.Task[dict[str, Json]]:
    """Begin a call."""
    return asyncio.create_task(client.call("up", name, ONE if args is None else args))


def accept(decision: Json) -> Json:
    """Return the answer to a form."""
    return {"action": "accept", "content": {"decision": decision}}


async def answer(on: Scene, client: Client, answer: Json, *, times: int = 1, after_s: float = READ_S) -> Json:
    """Answer the form once it was read; returns what it showed."""
    question = await client.hears("elicitation/create", times)
    await on.clock.pass_(after_s)
    client.reply(question, answer)
    return question["params"]


def asking_with(clock: Clock) -> Mapping[str, MakeStep]:
    """Return the step that asks in forms alone, whose time is this clock's."""

    def make(services: Services) -> HumanApproval:
        return HumanApproval(services.config, services.note, clock=clock)

    return {"approval": partial(AskForApproval, make=make)}


async def wait_in_vain(on: Scene, client: Client, args: Json = None) -> dict[str, Json]:
    """Return what a call is answered whose time is up."""
    calling = begin(client, args=args)
    await on.waits()
    await on.clock.pass_(50)
    return await calling


def status_of(result: Mapping[str, Json]) -> dict[str, Json]:
    """Return what a result says of the approval."""
    found: dict[str, Json] = result["_meta"]["dynamic-mcp/approval"]
    return found
