"""One configured server and its whole life: connect when needed, retry, close when idle. Every state change is here.

Decisions are synchronous and awaiting comes after them. One supervisor task opens, keeps and closes the
link; callers only wait for it, and nine of them share one attempt. A call is never sent twice.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Protocol

from msgspec import Raw

from dynamic_mcp.config.resolved import GroupConfig
from dynamic_mcp.errors import DynamicMcpError, LinkLost, LoginNeeded, NotSent, TimedOut, Unreachable
from dynamic_mcp.groups.activity import Activity
from dynamic_mcp.groups.catalog import CHANGED_BY, Catalog, ListKind
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.groups.lifecycle import Lifecycle, State
from dynamic_mcp.groups.live_catalog import LiveCatalog
from dynamic_mcp.groups.retry import Attempts
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.system.clock import Clock, LoopClock, set_or_passed
from dynamic_mcp.system.text import counted
from dynamic_mcp.upstream.call import Caller
from dynamic_mcp.upstream.link import Link
from dynamic_mcp.upstream.open import ClientHello, ServerHello, open_link, result_of

log = logging.getLogger(__name__)

# So long has a server to answer whether it lives.
PING_S = 5.0
# An idle link whose server waits for a person is looked at again after this.
_LOOK_AGAIN_S = 1.0


class Observer(Protocol):
    """Whoever shows the groups to clients."""

    def changed(self, group: Group) -> None:
        """Learn that a group's state or catalog is another one now."""

    def opened(self, group: Group) -> None:
        """Learn that a group has a new link, whose upstream knows nothing yet of what sessions have asked for."""

    def named(self, group: Group, frame: Frame) -> Frame:
        """Return what the upstream says about a task with the name that the task has for clients."""

    def heard(self, group: Group, frame: Frame) -> None:
        """Take a notification of the upstream that belongs to no call."""


OpenLink = Callable[[GroupConfig, "Group", ClientHello], Awaitable[tuple[Link, ServerHello]]]


class Group:
    """A server by its name in the config. `start` it, use it by `request` and `catalog`, `close` it."""

    def __init__(
        self,
        config: GroupConfig,
        observer: Observer,
        *,
        opener: OpenLink = open_link,
        clock: Clock | None = None,
        jitter: Callable[[], float] = random.random,
        catalog_store: CatalogStore | None = None,
    ) -> None:
        self.config = config
        self.name = config.name
        self.successor: Group | None = None
        self._observer = observer
        self._changed = partial(observer.changed, self)
        self._open = opener
        self._clock = clock or LoopClock()
        self._jitter = jitter
        self.use = Activity(config, self._clock)
        self._lifecycle = Lifecycle(self.name, Attempts(config.attempts, jitter), self._clock, self._changed)
        self._live_catalog = LiveCatalog(config, self._clock, catalog_store)
        self._hello = ClientHello()
        self._link: Link | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._attempt_over = asyncio.Event()
        self._is_retired = False
        self._is_closing = False
        self._wanted = False

    def __repr__(self) -> str:
        parts = [f"{self.name} {self.state.name}"]
        if self.state is State.READY:
            parts.append(f"{self.in_flight} calls")
            if self.config.idle_after_s is not None:
                parts.append(f"idle in {self.use.idle_left_s():.0f} s")
        elif self.reason:
            parts.append(self.reason)
        return f"<Group {', '.join(parts)}>"

    # --- questions -------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """Where the group is in its life."""
        return self._lifecycle.state

    @property
    def description(self) -> str:
        """One line for a model: the config's, else from the upstream's own words, else from how it is started."""
        return self._live_catalog.description()

    @property
    def known(self) -> Catalog | None:
        """What the group offers, as far as it is known."""
        return self._live_catalog.known

    @property
    def in_flight(self) -> int:
        """How many calls have a place."""
        return self.use.in_flight

    @property
    def reason(self) -> str:
        """Why the group is down, in one line; empty while it is not."""
        return self._lifecycle.reason()

    @property
    def advice(self) -> str:
        """What a person may have to do before the upstream can work, as setting a variable; mostly empty."""
        return self._lifecycle.advice

    # --- use -------------------------------------------------------------------------------------------

    def start(self, hello: ClientHello) -> None:
        """Begin the group's life; one whose catalog is not known connects in the background to learn it."""
        self._hello = hello
        if self._supervisor is None and self.state is not State.CLOSED:
            self._lifecycle.advise(hello.advice(self.config))
            self._wanted = not self._live_catalog.load() or self.config.eager
            self._supervisor = asyncio.create_task(self._live(), name=f"group {self.name}")

    async def close(self) -> None:
        """End the group's life and its link, for good."""
        if self._supervisor is not None:
            if not self._is_closing:  # a second cancellation would cut the closing of the link short
                self._is_closing = True
                self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
        if self.state is not State.CLOSED:  # never started, or cancelled before its first step
            self._lifecycle.close()
            self._end_attempt()

    def reconfigure(self, config: GroupConfig) -> None:
        """Go on with another config that has the same upstream; filters and features count at once."""
        before, self.config = self.config, config
        self.use.reconfigure(config)
        if config.attempts != before.attempts:
            self._lifecycle.attempts = Attempts(config.attempts, self._jitter)
        self._wanted |= config.eager and not before.eager and self._link is None
        self._wanted |= self._live_catalog.reconfigure(config) and self.state is State.COLD
        self._wake.set()
        self._observer.changed(self)

    def retire(self, successor: Group | None) -> None:
        """Take no more calls: those that come go to the successor, or fail when there is none."""
        self._is_retired = True
        self.successor = successor

    async def drain(self, within_s: float) -> bool:
        """Wait until no call of a retired group is under way, for so many seconds at most; tell whether none is."""
        return self._link is None or await self.use.is_over_within(within_s)

    async def request(
        self,
        method: str,
        params: Mapping[str, Raw] | None,
        *,
        timeout_s: float,
        caller: Caller | None = None,
        what: str = "",
    ) -> Frame:
        """Send a request, over a new link where there is none or it is found dead. Raises UpstreamError."""
        try:
            try:
                return await self._send(method, params, timeout_s, caller, what)
            except NotSent:
                return await self._send(method, params, timeout_s, caller, what)
        except Unreachable:  # nothing was sent
            if self.successor is None:
                raise
            return await self.successor.request(method, params, timeout_s=timeout_s, caller=caller, what=what)

    async def _send(
        self, method: str, params: Mapping[str, Raw] | None, timeout_s: float, caller: Caller | None, what: str
    ) -> Frame:
        await self.use.begin_call()
        link = None if self._is_retired else self._link
        try:
            link = link or await self._connected()
            answer = await link.request(method, params, timeout_s=timeout_s, caller=caller, what=what)
            self.use.answered(with_error=len(answer.error) > 0)
            return answer
        except DynamicMcpError as exc:
            self._failed(exc, link)
            raise
        finally:
            self.use.end_call()

    def notify(self, method: str, params: Raw) -> None:
        """Send a notification to the upstream, if it is connected."""
        if self._link is not None:
            self._link.notify(method, params)

    async def catalog(self, kinds: Iterable[ListKind] = (ListKind.TOOLS,)) -> Catalog:
        """Return what the group offers, connecting to learn it only if need be. Raises UpstreamError."""
        while self.known is None or not self._live_catalog.knows(kinds):
            if self._link is not None:
                await self._live_catalog.settles()
                continue
            try:
                await self._connected()
            except Unreachable:
                if self.successor is None:
                    raise
                return await self.successor.catalog(kinds)
        return self.known

    async def reread(self, kinds: Iterable[ListKind] = (ListKind.TOOLS,)) -> Catalog:
        """Read these lists of a connected upstream again, for a name that is not among them."""
        if self._link is None:
            await self._connected()
        else:
            self._lists_changed(kinds)
            while self._link is not None and self._live_catalog.is_due(kinds):
                await self._live_catalog.settles()
        return await self.catalog(kinds)

    def complaint(self, kinds: Iterable[ListKind]) -> str:
        """Say what is missing from these lists and why; empty when they are whole."""
        complaint = self._live_catalog.complaint(kinds)
        if complaint is not None:
            return complaint
        return self.reason or ("not read yet" if self.state is State.READY else "not connected yet")

    def wanted_for_s(self) -> float:
        """Return how long the lists that are missing have been asked of the upstream; 0 while they are not."""
        return self._live_catalog.wanted_for_s() if self.state in (State.CONNECTING, State.READY) else 0.0

    async def _connected(self) -> Link:
        """Wait for the attempt in flight or start one; a group that has just failed is left alone for a moment."""
        if self._is_retired:
            raise self._lifecycle.gone()
        self.start(self._hello)  # a client may call before it initializes
        if not self._lifecycle.may_be_tried():
            raise self._lifecycle.failure()
        attempt_over = self._attempt_over
        if self.state is not State.CONNECTING:
            self._wanted = True
            self._wake.set()
        await attempt_over.wait()
        if self._link is None or self._is_retired:
            raise self._lifecycle.failure()
        return self._link

    # --- Listener: what the link says ------------------------------------------------------------------

    def named(self, frame: Frame) -> Frame:
        """Return what the upstream says about a task with the name that the task has for clients."""
        return self._observer.named(self, frame)

    def heard(self, frame: Frame) -> None:
        """Take a notification that belongs to no call."""
        if frame.method in CHANGED_BY:
            self._lists_changed(CHANGED_BY[frame.method])
        else:
            self._observer.heard(self, frame)

    def lost(self, link: Link, error: LinkLost | LoginNeeded) -> None:
        """Learn that a link is over; the supervisor closes it."""
        if link is self._link:
            self._link = None
            self._live_catalog.settle()
            # a session that a server has forgotten in the meantime may be begun anew at once
            self._lifecycle.link_failed(error, has_served=self.use.has_served or isinstance(error, NotSent))
            self._wake.set()

    def _lists_changed(self, kinds: Iterable[ListKind]) -> None:
        self._live_catalog.changed(kinds)
        self._wake.set()

    # --- the supervisor --------------------------------------------------------------------------------

    async def _live(self) -> None:
        link: Link | None = None
        try:
            while True:
                await self._until_wanted()
                link = await self._connect()
                if link is not None:
                    await self._keep()
                    await link.close()
                    link = None
        except Exception:
            log.exception("a bug: group %s ends", self.name, extra={"group": self.name})
        finally:
            self._link = None
            self._lifecycle.close()
            self._end_attempt()
            if link is not None:
                await asyncio.shield(link.close())

    async def _until_wanted(self) -> None:
        """Wait for a use; between attempts also for the delay to pass."""
        wake_at = self._clock.now() + self._lifecycle.pause_s()
        while not self._wanted and self._clock.now() < wake_at and not self._lifecycle.is_logged_in():
            await self._woken_within(min(wake_at - self._clock.now(), self._lifecycle.look_again_s()))

    async def _connect(self) -> Link | None:
        self._wanted = False
        self._live_catalog.forget_changes()
        self._lifecycle.enter(State.CONNECTING)
        began = self._clock.now()
        try:
            link, catalog = await self._opened()
        except DynamicMcpError as exc:
            self._lifecycle.attempt_failed(exc)
            self._end_attempt()
            return None
        self._live_catalog.adopt(catalog)
        self._link, self._lifecycle.error = link, None
        self.use.begin()
        took = f"after {self._clock.now() - began:.1f} s"
        self._lifecycle.enter(State.READY, f"{counted(len(catalog.tools), 'tool')}, {took}")
        self._observer.opened(self)  # before those who wait for the link send over it
        self._end_attempt()
        return link

    async def _opened(self) -> tuple[Link, Catalog]:
        """Open a link and read the tools; the other lists are read once the group is in use."""
        link, welcome = await self._open(self.config, self, self._hello)
        try:
            said = Catalog({}, welcome.capabilities, welcome.instructions, welcome.title)
            catalog = await self._live_catalog.learn(partial(self._ask, link), said)
            if link.loss is not None:
                raise link.loss
        except BaseException:
            await asyncio.shield(link.close())
            raise
        return link, catalog

    async def _keep(self) -> None:
        """Watch over the link until it is lost or idle, and read its lists again when they change."""
        while self._link is not None:
            reread_left_s = self._live_catalog.due_in_s()
            if self.use.is_suspicious():
                if not await self._link.is_alive(PING_S):
                    self.lost(self._link, LinkLost(self.name, "the server has stopped answering, and was ended"))
            elif reread_left_s <= 0:
                await self._live_catalog.reread(partial(self._ask, self._link), self._changed)
            elif self._live_catalog.is_unsaved():
                await self._live_catalog.save()
            elif self.use.idle_left_s() <= 0 and not self._link.is_asking():
                self._went_idle()
            else:
                await self._woken_within(min(reread_left_s, max(self.use.idle_left_s(), _LOOK_AGAIN_S)))

    async def _ask(self, link: Link, method: str, params: Mapping[str, Raw]) -> dict[str, Raw]:
        answer = await link.request(method, params or None, timeout_s=self.config.timeouts.for_list(method))
        return result_of(answer, self.config, method)

    async def _woken_within(self, seconds: float) -> None:
        await set_or_passed(self._wake, seconds, self._clock)
        self._wake.clear()

    # --- state changes: no await below this line ---------------------------------------------------------

    def _went_idle(self) -> None:
        self._link = None
        if self.use.has_served:
            self._lifecycle.attempts.forget()
        self._live_catalog.settle()
        self._lifecycle.enter(State.COLD, "idle")

    def _failed(self, error: DynamicMcpError, link: Link | None) -> None:
        self.use.failed(has_timed_out=isinstance(error, TimedOut))
        match error:
            case NotSent() if link is not None:
                self.lost(link, error)
            case LoginNeeded(scope=None) if link is not None and self.in_flight == 1:  # no call will do without it
                self.lost(link, error)
            case TimedOut():
                self._wake.set()

    def _end_attempt(self) -> None:
        self._attempt_over.set()
        self._attempt_over = asyncio.Event()
        self._live_catalog.settle()
