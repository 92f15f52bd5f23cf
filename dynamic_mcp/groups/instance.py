"""One life of a group's server: connect when needed, retry, close when idle. Every state change is here.

Decisions are synchronous and awaiting comes after them. One supervisor task opens, keeps and closes the
link; callers only wait for it, and nine of them share one attempt. A call is never sent twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from msgspec import Raw

from dynamic_mcp.client import Caller, Client, ClientInfo, User
from dynamic_mcp.config.resolved import GroupConfig, Program
from dynamic_mcp.errors import (
    AccessDenied,
    ApprovalNeeded,
    DefinitionHeld,
    DynamicMcpError,
    LinkLost,
    LoginNeeded,
    MethodNotAllowed,
    MissingScope,
    NotFound,
    NotSent,
    TimedOut,
    Unreachable,
)
from dynamic_mcp.groups.activity import Activity
from dynamic_mcp.groups.catalog import CHANGED_BY, Catalog, ListKind, ListRules
from dynamic_mcp.groups.catalog_reader import CatalogReader
from dynamic_mcp.groups.gate import GatedCatalog
from dynamic_mcp.groups.lifecycle import Attempts, Lifecycle, LinkCounts, State
from dynamic_mcp.groups.live_catalog import LiveCatalog
from dynamic_mcp.groups.users import Users
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.system.clock import Clock, LoopClock, wait_for_event
from dynamic_mcp.system.text import pluralize
from dynamic_mcp.upstream.handshake import ServerInfo, result_of
from dynamic_mcp.upstream.open import OpenLink, open_link

if TYPE_CHECKING:  # an interface
    from dynamic_mcp.upstream.any_link import AnyLink

log = logging.getLogger(__name__)

# The timeout of a ping.
PING_S = 5.0
# A call waits this long for the list that says what it calls.
FIND_WITHIN_S = 10.0
# An idle link whose server waits for a person is looked at again after this.
_LOOK_AGAIN_S = 1.0
_TOOLS = ListKind.TOOLS
# What may return a skill, or a file of one.
_OF_SKILLS = ("resources/read", "resources/directory/read", "skills/get")
# What says nothing of the server: the request was not sent.
_REFUSALS = (AccessDenied, ApprovalNeeded, DefinitionHeld, MethodNotAllowed, MissingScope, NotFound)


class InstanceOwner(Protocol):
    """The group that an instance belongs to."""

    @property
    def admission(self) -> GatedCatalog:
        """The checks that clients' requests pass before they are sent."""

    def successor_for(self, client: Client) -> InstanceOwner | None:
        """Return the group that replaces this one for a client after the config has changed."""

    def recheck(self, caller: User, method: str, params: Mapping[str, Raw] | None) -> None:
        """Decide again about a request that has waited, by its client's current rights. Raises DynamicMcpError."""
        ...

    def instance_changed(self, instance: Instance) -> None:
        """Called when an instance's state or the catalog has changed."""

    def link_opened(self, instance: Instance) -> None:
        """Called when an instance has a new link, whose upstream knows nothing of the clients' earlier requests."""

    async def compare_offer(self, instance: Instance, hello: ClientInfo, offer: Catalog) -> None:
        """Called with what the upstream offers over an instance's new link, initialized with this `hello`."""

    def learn_asking(self, client: Client | None) -> None:
        """Called when the upstream has `asked` a client, so that an instance must not be shared."""

    def choose_user(self, instance: Instance, frame: Frame, user: User | None) -> User | None:
        """Return the client that gets a question of the upstream; the calls in flight suggest `user`."""

    def prepare_question(self, instance: Instance, frame: Frame, user: User) -> Frame:
        """Return a request of the upstream in the form that its client receives."""

    def receive_notification(self, instance: Instance, frame: Frame, recipients: Sequence[User]) -> None:
        """Called with a notification of the upstream and its recipients."""

    async def request(
        self,
        method: str,
        params: Mapping[str, Raw] | None,
        timeout_s: float,
        caller: User,
        label: str = "",
    ) -> Frame:
        """Send a request over the instance of the caller's client."""

    async def learn_catalog(self, client: Client, kinds: Iterable[ListKind]) -> Catalog: ...


class Instance:
    """A running copy of a group's server. Use it by `request` and `learn_catalog`, end it with `close`.

    `users` are the clients that it serves. One that `is_retired` takes no more calls.
    """

    def __init__(
        self,
        config: GroupConfig,
        owner: InstanceOwner,
        catalog: LiveCatalog,
        hello: ClientInfo,
        *,
        opener: OpenLink = open_link,
        clock: Clock | None = None,
        jitter: Callable[[], float] = random.random,
        link_counts: LinkCounts | None = None,
    ) -> None:
        self.config, self.hello, self._initialized_as = config, hello, hello
        self.is_retired = self._is_screening = False
        clock = clock or LoopClock()
        self.activity = Activity(config, clock)
        self.users = Users(clock)
        self._owner, self._changed = owner, partial(owner.instance_changed, self)
        self._open, self._clock, self._jitter = opener, clock, jitter
        attempts = Attempts(config.attempts, jitter)
        self._lifecycle = Lifecycle(config.name, attempts, clock, self._changed, link_counts)
        self._lifecycle.advice = hello.advice(config)
        self._catalog = catalog
        self._reader = CatalogReader(catalog, clock, jitter, self._note_list)
        self._wake, self._attempt_over = asyncio.Event(), asyncio.Event()
        self._events = LinkEvents(self, owner, mark_stale=self._note_change, wake=self._wake.set)
        self._link: AnyLink | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._is_closing = self._wanted = False

    def __repr__(self) -> str:
        return f"<Instance {self.status}>"

    @property
    def status(self) -> str:
        """The name, the state and the next step."""
        next_steps = self.activity.status if self.state is State.READY else self.reason
        return ", ".join(filter(None, [f"{self.config.name} {self.state.name}", next_steps]))

    # --- questions -------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self._lifecycle.state

    @property
    def reason(self) -> str:
        """The reason why the instance is down, in one line; empty otherwise."""
        return self._lifecycle.reason()

    @property
    def is_connected(self) -> bool:
        """True if there is a link, also while its tools are still being read."""
        return self._link is not None

    @property
    def era(self) -> str:
        """The protocol generation of the link, `modern` or `legacy`; empty without a link."""
        return "" if self._link is None else "modern" if self._link.is_modern else "legacy"

    @property
    def pid(self) -> int | None:
        """The process of the upstream; None without a link, and for a remote upstream."""
        return None if self._link is None else self._link.pid

    def may_serve(self, client: Client | None) -> bool:
        """Return whether a client's requests go to this instance, and not to the group's successor."""
        return not (self.is_retired or (client is not None and self._owner.successor_for(client)))

    def wanted_for_s(self) -> float:
        """Return the seconds since the missing lists were asked of the upstream; 0 if they were not."""
        return self._reader.wanted_for_s() if self.state in (State.CONNECTING, State.READY) else 0.0

    async def is_modern(self, client: Client) -> bool:
        """Return whether the instance's link is of the modern era, connecting if need be. Raises UpstreamError."""
        return (await self._wait_for_link(client)).is_modern

    # --- use -------------------------------------------------------------------------------------------

    def start(self, *, wanted: bool = False) -> None:
        if self._supervisor is None and self.state is not State.CLOSED and not self.is_retired:
            self._wanted |= wanted
            self._supervisor = asyncio.create_task(self._live(), name=f"group {self.config.name}")

    def stop(self) -> None:
        if self._supervisor is not None and not self._is_closing:
            self._is_closing = True  # a second cancellation would cut the closing of the link short
            self._supervisor.cancel()

    async def close(self) -> None:
        """Close the instance and its link, for good."""
        self.stop()
        if self._supervisor is not None:
            await asyncio.wait([self._supervisor])
        if self.state is not State.CLOSED:  # never started, or cancelled before its first step
            self._lifecycle.close()
            self._end_attempt()

    def reconfigure(self, config: GroupConfig, wanted: frozenset[ListKind]) -> None:
        """Switch to another config with the same upstream, and read the lists that are `wanted` now."""
        before, self.config = self.config, config
        self.activity.reconfigure(config)
        if config.attempts != before.attempts:
            self._lifecycle.attempts = Attempts(config.attempts, self._jitter)
        self._wanted |= config.eager and not before.eager and self._link is None
        if wanted:
            self._reader.want(wanted)
            self._wanted |= self.state is State.COLD
        self._wake.set()

    def retire(self) -> None:
        """Stop accepting calls: new ones go to the group's successor, or fail if there is none."""
        self.is_retired = self._is_screening = True

    def screen(self) -> None:
        """Stop accepting calls of clients for which the group has a successor."""
        self._is_screening = True

    async def drain(self, within_s: float) -> bool:
        """Wait until a retired instance has no calls, at most `within_s`; return whether it has none."""
        return self._link is None or await self.activity.wait_until_idle(within_s)

    async def request(
        self,
        method: str,
        params: Mapping[str, Raw] | None,
        timeout_s: float,
        caller: User | None = None,
        label: str = "",
    ) -> Frame:
        """Send a request, over a new link if there is none or it is found dead. Raises UpstreamError."""
        client, is_repeated = None if caller is None else caller.client, False
        if client is not None:
            self.activity.calls += 1
            client.calls += 1
        while True:
            has_waited = False
            if not self.activity.begin_call_now():
                has_waited = True
                await self.activity.begin_call(client)
            link = None if self._is_screening else self._link
            try:
                if link is None:
                    has_waited = True
                    link = await self._wait_for_link(client)
                if has_waited and caller is not None:
                    self._owner.recheck(caller, method, params)
                if (gate := self._owner.admission.gate) is not None:
                    reader = self._reader
                    if method == "tools/call":
                        if _TOOLS not in reader.read_at and reader.is_new(_TOOLS):
                            await self._learn(_TOOLS)
                    elif method in _OF_SKILLS and reader.is_new(ListKind.SKILLS):
                        await self._learn(ListKind.SKILLS)
                    if not gate.holds_none(self._catalog.current):
                        if gate.is_behind:
                            await gate.catch_up()
                        gate.check(method, params)  # by what the link that it goes over has said
                sent_at = self._clock.now()
                answer = await link.request(method, params, timeout_s=timeout_s, caller=caller, label=label)
                self.activity.note_answer(self._clock.now() - sent_at, answer)
                return answer
            except _REFUSALS:
                raise
            except DynamicMcpError as exc:
                self._note_failure(exc, link)
                if isinstance(exc, NotSent) and not is_repeated:
                    is_repeated = True
                    continue
                if not isinstance(exc, Unreachable) or caller is None:
                    raise
                if (successor := self._owner.successor_for(caller.client)) is None:  # else nothing was sent
                    raise
            finally:
                self.activity.end_call()
                if client is not None and self.users.has_been_shared:
                    self.users.note_call(client)
            self._owner.recheck(caller, method, params)
            return await successor.request(method, params, timeout_s, caller, label)

    def forget(self, client: Client) -> None:
        """Called when a client disconnects."""
        self.users.forget(client)
        if self._link is not None:
            self._link.forget(client)

    def notify(self, method: str, params: Raw) -> None:
        """Send a notification to the upstream, if it is connected."""
        if self._link is not None:
            self._link.notify(method, params)

    async def learn_catalog(self, client: Client, kinds: Iterable[ListKind] = (ListKind.TOOLS,)) -> Catalog:
        """Return the catalog, connecting only if it is not known. Raises UpstreamError."""
        if self._link is not None and (expired := self._catalog.expired(kinds)):
            return await self.reread(client, expired)
        while self._catalog.current is None or not self._catalog.knows(kinds):
            if self._link is not None:
                if not self._reader.is_due(kinds):  # another instance has had this to read
                    self._mark_stale([kind for kind in kinds if not self._catalog.knows([kind])])
                await self._reader.wait()
                continue
            try:
                await self._wait_for_link(client)
            except Unreachable:
                if (successor := self._owner.successor_for(client)) is None:
                    raise
                return await successor.learn_catalog(client, kinds)
        return self._catalog.current

    async def reread(self, client: Client, kinds: Iterable[ListKind] = (ListKind.TOOLS,)) -> Catalog:
        """Read these lists of a connected upstream again, to look for a name that is not among them."""
        kinds = tuple(kinds)
        if self._link is None:
            await self._wait_for_link(client)
        else:
            self._mark_stale([kind for kind in kinds if not self._reader.is_new(kind)])
        while self._link is not None and self._reader.is_due(kinds):
            await self._reader.wait()
        return await self.learn_catalog(client, kinds)

    async def _learn(self, kind: ListKind) -> None:
        """Wait for a list of a new link, but not long if the server does not answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIND_WITHIN_S):
                while self._reader.is_new(kind):
                    await self._reader.wait()

    async def _wait_for_link(self, client: Client | None) -> AnyLink:
        """Return the link, waiting for the attempt in flight or starting one, but not right after one that failed."""
        link = await self._attempt(client)
        if link is None and (self.state is State.CONNECTING or self._lifecycle.is_logged_in()):
            # somebody has logged in since that attempt began, for which the next one may have begun already
            link = await self._attempt(client)
        if link is None:
            raise self._lifecycle.failure()
        return link

    async def _attempt(self, client: Client | None) -> AnyLink | None:
        """Return the link once the attempt in flight or a new one is over; None if it has failed."""
        if not self.may_serve(client):
            raise self._lifecycle.gone()
        if (link := self._link) is not None:
            return link
        self.start()
        if not self._lifecycle.may_connect():
            raise self._lifecycle.failure()
        attempt_over = self._attempt_over
        if self.state is not State.CONNECTING:
            self._wanted = True
            self._wake.set()
        await attempt_over.wait()
        if not self.may_serve(client):
            raise self._lifecycle.gone()
        return self._link

    async def connect_again(self, client: Client) -> None:
        """Connect at once, also right after a failure that would not be retried. Raises DynamicMcpError."""
        self._lifecycle.try_anyway()
        await self._wait_for_link(client)

    # --- what the link says ----------------------------------------------------------------------------

    def link_lost(self, link: AnyLink, error: LinkLost | LoginNeeded) -> None:
        """Called when the link has ended; the supervisor closes it."""
        if link is self._link:
            self._link = None
            self._reader.close()
            if self.state is State.CONNECTING and not self.activity.has_served:
                self._lifecycle.error = error  # the attempt fails
                self._wake.set()
                return
            # a session that the server has forgotten in the meantime may be replaced at once, and so may a home
            has_served = self.activity.has_served or isinstance(error, NotSent) or self._is_at_home
            self._lifecycle.fail_link(error, has_served=has_served)
            self._wake.set()

    def _note_list(self) -> None:
        self._wake.set()
        self._changed()

    def _note_change(self, kinds: Iterable[ListKind]) -> None:
        self._catalog.changes += any(kind is not ListKind.PROMPTS for kind in kinds)
        self._mark_stale(kinds)

    def _mark_stale(self, kinds: Iterable[ListKind]) -> None:
        self._reader.mark_stale(kinds)
        self._wake.set()

    # --- the supervisor --------------------------------------------------------------------------------

    @property
    def _is_at_home(self) -> bool:
        """True if another process runs the server, and starts again when that has ended."""
        return isinstance(self.config.upstream, Program) and self.config.upstream.home is not None

    async def _live(self) -> None:
        link: AnyLink | None = None
        error: DynamicMcpError | None = None
        try:
            while True:
                await self._wait_until_wanted()
                link = await self._connect()
                if link is not None:
                    await self._keep()
                    await link.close()
                    link = None
        except Exception:
            log.exception("a bug: group %s ends", self.config.name, extra={"group": self.config.name})
            error = Unreachable(self.config.name, "ended by an error in dynamic-mcp; its log says more")
        finally:
            self._link = None
            self._reader.close()
            self._lifecycle.close(error)
            self._end_attempt()
            if link is not None:
                await asyncio.shield(link.close())

    async def _wait_until_wanted(self) -> None:
        """Wait for a use; between attempts also for the delay to pass."""
        wake_at = self._clock.now() + self._lifecycle.next_pause_s()
        while not self._wanted and self._clock.now() < wake_at and not self._lifecycle.is_logged_in():
            await self._sleep(min(wake_at - self._clock.now(), self._lifecycle.look_again_s()))

    async def _connect(self) -> AnyLink | None:
        self._wanted = False
        self._reader.want(frozenset())
        self._lifecycle.enter(State.CONNECTING)
        began = self._clock.now()
        try:
            try:
                link = await self._open_and_learn()
            except LinkLost:
                if not self._is_at_home:
                    raise
                link = await self._open_and_learn()  # another process takes its place
        except DynamicMcpError as exc:
            if self.state is State.CONNECTING:  # else it was lost after it had served
                self._lifecycle.fail_attempt(exc)
                self._end_attempt()
            return None
        self._lifecycle.error = None
        took_s = self._clock.now() - began
        tools = pluralize(len(self._catalog.current.tools if self._catalog.current else ()), "tool")
        self._lifecycle.enter(State.READY, f"{tools}, after {took_s:.1f} s")
        return link

    async def _open_and_learn(self) -> AnyLink:
        """Open a link, which serves at once, and wait until its tools are read or could not be."""
        self._initialized_as = self.hello
        link, server = await self._open(self.config, self._events, self.hello, lacks=self._catalog.lacks)
        try:
            if link.loss is not None:
                raise link.loss
            self._use(link, server)
            while self._link is link and self._reader.is_new(ListKind.TOOLS):
                self._reader.read_due()
                await self._sleep(max(0.0, self._reader.due_in_s()))
            if self._link is not link or self._reader.login_needed is not None:
                raise link.loss or self._reader.login_needed or self._lifecycle.failure()
        except BaseException:
            self._link = None
            self._reader.close()
            await asyncio.shield(link.close())
            raise
        return link

    def _use(self, link: AnyLink, server: ServerInfo) -> None:
        """Send over a new link from now on, and begin to read its lists."""
        self._link = link
        self.activity.begin()
        self.users.note_new_link()
        self._reader.rules = ListRules(link.is_modern, link.is_modern and link.has_streams)
        offer = self._catalog.note_hello(server)
        self._reader.open(partial(self._ask, link), offer, is_declared=server.is_declared)
        self._owner.link_opened(self)  # before those who wait for the link send over it
        self._end_attempt()

    async def _keep(self) -> None:
        """Watch over the link until it is lost or idle, and read its lists again when they change."""
        while self._link is not None:
            reread_left_s = self._reader.due_in_s()
            if self.activity.is_suspicious() or self._reader.has_hung:
                self.activity.clear_suspicion()
                self._reader.has_hung = False
                if not await self._link.is_alive(PING_S):
                    reason = "the server has stopped answering, and was ended"
                    self.link_lost(self._link, LinkLost(self.config.name, reason))
            elif reread_left_s <= 0:
                self._reader.read_due()
            elif (offer := self._reader.take_offer()) is not None:
                await self._owner.compare_offer(self, self._initialized_as, offer)
            elif self._reader.is_done() and self._catalog.is_unsaved():
                await self._catalog.save()
            elif self._reader.is_done() and self.activity.idle_left_s() <= 0 and not self._link.is_asking():
                self._went_idle()
            else:
                await self._sleep(min(reread_left_s, max(self.activity.idle_left_s(), _LOOK_AGAIN_S)))

    async def _ask(self, link: AnyLink, method: str, params: Mapping[str, Raw]) -> dict[str, Raw]:
        answer = await link.request(method, params or None, timeout_s=self.config.timeouts.for_list(method))
        return result_of(answer, self.config, method)

    async def _sleep(self, seconds: float) -> None:
        await wait_for_event(self._wake, seconds, self._clock)
        self._wake.clear()

    # --- state changes: no await below this line ---------------------------------------------------------

    def _went_idle(self) -> None:
        self._link = None
        if self.activity.has_served:
            self._lifecycle.attempts.reset()
        self._reader.close()
        self._lifecycle.enter(State.COLD, "idle")

    def _note_failure(self, error: DynamicMcpError, link: AnyLink | None) -> None:
        self.activity.note_failure(has_timed_out=isinstance(error, TimedOut))
        match error:
            case NotSent() if link is not None:
                self.link_lost(link, error)
            case LoginNeeded(scope=None) if (
                link is not None and self.activity.in_flight == 1
            ):  # no call will do without it
                self.link_lost(link, error)
            case TimedOut():
                self._wake.set()

    def _end_attempt(self) -> None:
        self._attempt_over.set()
        self._attempt_over = asyncio.Event()
        self._reader.settle()


class LinkEvents:
    """Receives the events of an instance's links. `wake` makes its supervisor check for work."""

    def __init__(
        self,
        instance: Instance,
        owner: InstanceOwner,
        *,
        mark_stale: Callable[[Iterable[ListKind]], None],
        wake: Callable[[], None],
    ) -> None:
        self._instance = instance
        self._owner = owner
        self._mark_stale = mark_stale
        self._wake = wake

    def prepare_question(self, frame: Frame, caller: Caller) -> Frame:
        return self._owner.prepare_question(self._instance, frame, cast(User, caller))

    def choose_caller(self, frame: Frame, callers: Sequence[Caller]) -> Caller | None:
        """Return the caller that answers a request of the upstream; None if it could be meant for several clients."""
        user = self._owner.choose_user(self._instance, frame, self._instance.users.choose(callers))
        self._owner.learn_asking(None if user is None else user.client)
        self._wake()  # there may be something to store
        return user

    def note_asking(self) -> None:
        self._owner.learn_asking(None)
        self._wake()

    def receive_notification(
        self, frame: Frame, callers: Sequence[Caller] | None, *, may_be_late: bool = False
    ) -> None:
        if frame.method in CHANGED_BY:
            self._mark_stale(CHANGED_BY[frame.method])
        else:
            users = self._instance.users
            recipients = () if callers is None else users.recipients(callers, may_be_late=may_be_late)
            self._owner.receive_notification(self._instance, frame, recipients)

    def link_lost(self, link: AnyLink, error: LinkLost | LoginNeeded) -> None:
        self._instance.link_lost(link, error)
