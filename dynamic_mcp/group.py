"""One configured server and its whole life: connect when needed, retry, close when idle. Every state change is here.

Decisions are synchronous and awaiting comes after them. One supervisor task opens, keeps and closes the
link; callers only wait for it, and nine of them share one attempt. A call is never sent twice.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Protocol

from msgspec import Raw

from dynamic_mcp.backoff import Attempts, Clock, LoopClock
from dynamic_mcp.catalog import CHANGED_BY, Catalog, Kind, Listing, one_line, read_list, read_lists
from dynamic_mcp.config.resolved import GroupConfig
from dynamic_mcp.errors import DynamicMcpError, LinkLost, NotSent, Unreachable, UpstreamError
from dynamic_mcp.states import DOWN, TRANSITIONS, State
from dynamic_mcp.upstream.link import Caller, Link
from dynamic_mcp.upstream.open import Greeting, Welcome, open_link, result_of
from dynamic_mcp.wire import Frame

log = logging.getLogger(__name__)

# A storm of list_changed makes one reading of the lists a second.
REREAD_S = 1.0
LONGEST_REASON = 500


class Observer(Protocol):
    """Whoever shows the groups to clients."""

    def changed(self, group: Group) -> None:
        """Learn that a group's state or catalog is another one now."""
        ...

    def opened(self, group: Group) -> None:
        """Learn that a group has a new link, whose upstream knows nothing yet of what sessions have asked for."""
        ...

    def heard(self, group: Group, frame: Frame) -> None:
        """Take a notification of the upstream that belongs to no call."""
        ...


OpenLink = Callable[[GroupConfig, "Group", Greeting], Awaitable[tuple[Link, Welcome]]]


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
    ) -> None:
        self.config = config
        self.name = config.name
        self.state = State.COLD
        self.error: DynamicMcpError | None = None
        self.known: Catalog | None = None
        self.in_flight = 0
        self.is_subscribed = False
        self._observer = observer
        self._open = opener
        self._clock = clock or LoopClock()
        self._attempts = Attempts(config.attempts, jitter)
        self._greeting = Greeting()
        self._link: Link | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._attempt_over = asyncio.Event()
        self._read_over = asyncio.Event()
        self._wanted = False
        self._stale: frozenset[Kind] = frozenset()
        self._served = False
        self._last_used = 0.0
        self._read_at = float("-inf")

    def __repr__(self) -> str:
        parts = [f"{self.name} {self.state.name}"]
        if self.state is State.READY:
            parts.append(f"{self.in_flight} calls")
            if self.config.idle_after_s is not None:
                parts.append(f"idle in {self._idle_left_s():.0f} s")
        elif self.error is not None and self.state in DOWN:
            parts.append(_reason(self.error))
        return f"<Group {', '.join(parts)}>"

    # --- questions -------------------------------------------------------------------------------------

    @property
    def description(self) -> str:
        """One line for a model: the config's, else from the upstream's own words, else from how it is started."""
        if self.config.description:
            return " ".join(self.config.description.split())
        derived = self.known.summary if self.known else ""
        return derived or f"Tools from `{one_line(self.config.label)}`"

    @property
    def reason(self) -> str:
        """Why the group is down, in one line; empty while it is not."""
        return _reason(self.error) if self.error is not None and self.state in DOWN else ""

    # --- use -------------------------------------------------------------------------------------------

    def start(self, greeting: Greeting) -> None:
        """Begin the group's life; one whose catalog is not known connects in the background to learn it."""
        self._greeting = greeting
        if self._supervisor is None and self.state is not State.CLOSED:
            self._wanted = self.known is None or self.config.eager
            self._supervisor = asyncio.create_task(self._live(), name=f"group {self.name}")

    async def close(self) -> None:
        """End the group's life and its link, for good."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
        if self.state is not State.CLOSED:  # never started, or cancelled before its first step
            self._enter(State.CLOSED)
            self._end_attempt()

    async def request(
        self,
        method: str,
        params: Mapping[str, Raw] | None,
        *,
        timeout_s: float,
        caller: Caller | None = None,
        what: str = "",
    ) -> Frame:
        """Send a request, connecting first if need be, and return the answer.

        A link that is found dead before anything was written is replaced once. Raises UpstreamError.
        """
        try:
            return await self._send(method, params, timeout_s, caller, what)
        except NotSent:
            return await self._send(method, params, timeout_s, caller, what)

    async def _send(
        self, method: str, params: Mapping[str, Raw] | None, timeout_s: float, caller: Caller | None, what: str
    ) -> Frame:
        link = self._link or await self._connected()
        self.in_flight += 1
        try:
            answer = await link.request(method, params, timeout_s=timeout_s, caller=caller, what=what)
            self._served = True
            return answer
        except NotSent as exc:
            self.lost(link, exc)
            raise
        finally:
            self.in_flight -= 1
            self._last_used = self._clock.now()

    def notify(self, method: str, params: Raw) -> None:
        """Send a notification to the upstream, if it is connected."""
        if self._link is not None:
            self._link.notify(method, params)

    async def catalog(self, kinds: Iterable[Kind] = (Kind.TOOLS,)) -> Catalog:
        """Return what the group offers, connecting to learn these lists only if they are not known.

        Raises UpstreamError.
        """
        while self.known is None or not self.known.knows(kinds):
            read_over = self._read_over
            if self._link is None:
                await self._connected()
            else:
                await read_over.wait()
        return self.known

    async def reread(self, kinds: Iterable[Kind] = (Kind.TOOLS,)) -> Catalog:
        """Read these lists of a connected upstream again, for a name that is not among them."""
        if self._link is not None:
            read_over = self._read_over
            self._lists_changed(kinds)
            await read_over.wait()
        return await self.catalog(kinds)

    def complaint(self, kinds: Iterable[Kind]) -> str:
        """Say what is missing from these lists and why; empty when they are whole."""
        known = self.known.complaint(kinds) if self.known else None
        return (self.reason or "not connected yet") if known is None else known

    async def _connected(self) -> Link:
        """Wait for the attempt in flight or start one; a group that has just failed is left alone for a moment."""
        self.start(self._greeting)  # a client may call before it initializes
        cooling_down = self._is_final() or self._attempts.are_cooling_down(self._clock.now())
        if self.state is State.CLOSED or (self.state in DOWN and cooling_down):
            raise self._failure()
        attempt_over = self._attempt_over
        if self.state is not State.CONNECTING:
            self._wanted = True
            self._wake.set()
        await attempt_over.wait()
        if self._link is None:
            raise self._failure()
        return self._link

    def _failure(self) -> DynamicMcpError:
        """Say why there is no link; a new error each time, since each caller raises its own."""
        match self.error:
            case None:
                return Unreachable(self.name, "was removed from the config or is shutting down")
            case UpstreamError() as error:
                return Unreachable(self.name, error.reason, hint=error.hint)
            case error:
                return error

    # --- Listener: what the link says ------------------------------------------------------------------

    def heard(self, frame: Frame) -> None:
        """Take a notification that belongs to no call."""
        if frame.method in CHANGED_BY:
            self._lists_changed(CHANGED_BY[frame.method])
        else:
            self._observer.heard(self, frame)

    def lost(self, link: Link, error: LinkLost) -> None:
        """Learn that a link is over; the supervisor closes it."""
        if link is self._link:
            self._link_failed(error)
            self._wake.set()

    def _lists_changed(self, kinds: Iterable[Kind]) -> None:
        self._stale |= frozenset(kinds)
        self._wake.set()

    def _offered(self, catalog: Catalog) -> frozenset[Kind]:
        """Which lists the upstream has and the config lets through."""
        return frozenset(
            kind for kind in Kind if catalog.may(kind.capability) and self.config.features.allows(kind.capability)
        )

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
        finally:
            self._link = self.error = None
            self._enter(State.CLOSED)
            self._end_attempt()
            if link is not None:
                await asyncio.shield(link.close())

    async def _until_wanted(self) -> None:
        """Wait for a use; between attempts also for the delay to pass."""
        pause_s = self._attempts.pause_s() if self.state in DOWN and not self._is_final() else math.inf
        wake_at = self._clock.now() + pause_s
        while not self._wanted and self._clock.now() < wake_at:
            await self._wait(wake_at - self._clock.now())

    async def _connect(self) -> Link | None:
        self._wanted = False
        self._stale = frozenset()
        self._enter(State.CONNECTING)
        began = self._clock.now()
        try:
            link, catalog = await self._opened()
        except DynamicMcpError as exc:
            self._attempt_failed(exc)
            return None
        self._link, self.known, self.error = link, catalog, None
        self._stale |= self._offered(catalog) - {Kind.TOOLS}
        self._served = False
        self._read_at = float("-inf")
        self._last_used = self._clock.now()
        self._enter(State.READY, f"{len(catalog.tools)} tools, after {self._last_used - began:.1f} s")
        self._end_attempt()
        self._observer.opened(self)
        return link

    async def _opened(self) -> tuple[Link, Catalog]:
        """Open a link and read the tools; the other lists are read once the group is in use."""
        link, welcome = await self._open(self.config, self, self._greeting)
        try:
            catalog = Catalog({}, welcome.capabilities, welcome.instructions, welcome.title)
            offered = self._offered(catalog)
            known = self.known.lists if self.known else {}
            lists = {kind: known[kind] for kind in offered if kind in known}
            lists |= {kind: Listing() for kind in Kind if kind not in offered}
            if Kind.TOOLS in offered:
                tools = await read_list(partial(self._ask, link), Kind.TOOLS, self.config.tools.allows)
                lists |= self._complained({Kind.TOOLS: tools})
            if link.loss is not None:
                raise link.loss
        except BaseException:
            await asyncio.shield(link.close())
            raise
        return link, catalog.with_lists(lists)

    async def _keep(self) -> None:
        """Watch over the link until it is lost or idle, and read its lists again when they change."""
        while self._link is not None:
            reread_left_s = self._read_at + REREAD_S - self._clock.now() if self._stale else math.inf
            if reread_left_s <= 0:
                await self._reread(self._link)
            elif self._idle_left_s() <= 0:
                self._went_idle()
            else:
                await self._wait(min(reread_left_s, self._idle_left_s()))

    async def _reread(self, link: Link) -> None:
        assert self.known is not None, "a link is not ready before its tools are read"
        kinds, self._stale = self._stale & self._offered(self.known), frozenset()
        lists = await read_lists(partial(self._ask, link), kinds, self.known, self.config.tools.allows)
        self.known = self.known.with_lists(self._complained(lists))
        self._read_at = self._clock.now()
        self._end_reading()
        self._observer.changed(self)

    async def _ask(self, link: Link, method: str, params: Mapping[str, Raw]) -> dict[str, Raw]:
        answer = await link.request(method, params or None, timeout_s=self.config.timeouts.connect_s)
        return result_of(answer, self.name, method)

    def _complained(self, lists: dict[Kind, Listing]) -> dict[Kind, Listing]:
        for complaint in (complaint for listing in lists.values() for complaint in listing.complaints):
            log.warning("group %s: %s", self.name, complaint)
        return lists

    async def _wait(self, seconds: float) -> None:
        """Wait to be woken, for so many seconds at most."""
        if seconds == math.inf:
            await self._wake.wait()
        else:
            woken = asyncio.create_task(self._wake.wait())
            slept = asyncio.create_task(self._clock.sleep(seconds))
            try:
                await asyncio.wait({woken, slept}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                woken.cancel()
                slept.cancel()
        self._wake.clear()

    # --- state changes: no await below this line ---------------------------------------------------------

    def _enter(self, state: State, why: str = "") -> None:
        assert state in TRANSITIONS[self.state], f"{self.state.name} does not lead to {state.name}"
        self.state = state
        level = logging.WARNING if state in DOWN else logging.DEBUG if state is State.CONNECTING else logging.INFO
        log.log(level, "group %s %s", self.name, f"{state.value}: {why}" if why else state.value)
        self._observer.changed(self)

    def _attempt_failed(self, error: DynamicMcpError) -> None:
        self.error = error
        self._attempts.failed(self._clock.now())
        spent = self._is_final() or self._attempts.are_spent()
        self._enter(State.FAILED if spent else State.WAITING, _reason(error))
        self._end_attempt()

    def _went_idle(self) -> None:
        self._link = None
        if self._served:
            self._attempts.forget()
        self._end_reading()
        self._enter(State.COLD, "idle")

    def _link_failed(self, error: LinkLost) -> None:
        """Leave READY: a link that has served may be replaced at once, one that never did counts as a failure."""
        self._link = None
        self.error = error
        if self._served:
            self._attempts.forget()
        else:
            self._attempts.failed(self._clock.now())
        self._end_reading()
        self._enter(State.WAITING, _reason(error))

    def _end_attempt(self) -> None:
        self._attempt_over.set()
        self._attempt_over = asyncio.Event()
        self._end_reading()

    def _end_reading(self) -> None:
        self._read_over.set()
        self._read_over = asyncio.Event()

    def _is_final(self) -> bool:
        return isinstance(self.error, Unreachable) and self.error.final

    def _idle_left_s(self) -> float:
        after_s = math.inf if self.config.idle_after_s is None else self.config.idle_after_s
        return after_s if self.in_flight or self.is_subscribed else self._last_used + after_s - self._clock.now()


def _reason(error: DynamicMcpError) -> str:
    return one_line(error.reason if isinstance(error, UpstreamError) else error.message, LONGEST_REASON)
