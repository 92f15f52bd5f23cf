"""One configured server and its whole life: connect when needed, retry, close when idle. Every state change is here.

Decisions are synchronous and awaiting comes after them. One supervisor task opens, keeps and closes the
link; callers only wait for it, and nine of them share one attempt. A call is never sent twice.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from enum import Enum
from itertools import chain, islice
from typing import Protocol

from msgspec import Raw

from dynamic_mcp.backoff import Clock, LoopClock, delays
from dynamic_mcp.catalog import Catalog, one_line, read_catalog
from dynamic_mcp.config.resolved import GroupConfig
from dynamic_mcp.errors import DynamicMcpError, LinkLost, NotSent, Unreachable, UpstreamError
from dynamic_mcp.upstream.link import Caller, Link
from dynamic_mcp.upstream.open import Greeting, Welcome, open_link, result_of
from dynamic_mcp.wire import Frame

log = logging.getLogger(__name__)

FIRST_RETRY_S, LONGEST_RETRY_S = 2.0, 8.0
FIRST_REVIVAL_S, LONGEST_REVIVAL_S = 30.0, 300.0
# A group that has just failed is not tried again by every call that comes along.
COOL_DOWN_S = 1.0
# A storm of list_changed makes one reading of the lists a second.
REREAD_S = 1.0


class State(Enum):
    """Where a group is in its life."""

    COLD = "not connected"
    CONNECTING = "connecting"
    READY = "connected"
    WAITING = "waiting to try again"
    NEEDS_LOGIN = "needs a login"
    FAILED = "failed"
    CLOSED = "closed"


# From each state to those that may follow; an absent entry is a bug.
TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.COLD: frozenset({State.CONNECTING, State.CLOSED}),
    State.CONNECTING: frozenset({State.READY, State.WAITING, State.NEEDS_LOGIN, State.FAILED, State.CLOSED}),
    State.READY: frozenset({State.COLD, State.WAITING, State.CLOSED}),
    State.WAITING: frozenset({State.CONNECTING, State.CLOSED}),
    State.NEEDS_LOGIN: frozenset({State.CONNECTING, State.CLOSED}),
    State.FAILED: frozenset({State.CONNECTING, State.CLOSED}),
    State.CLOSED: frozenset(),
}
DOWN = frozenset({State.WAITING, State.NEEDS_LOGIN, State.FAILED})


class Observer(Protocol):
    """Whoever shows the groups to clients."""

    def changed(self, group: Group) -> None:
        """Learn that a group's state or catalog is another one now."""
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
        self._observer = observer
        self._open = opener
        self._clock = clock or LoopClock()
        self._jitter = jitter
        self._greeting = Greeting()
        self._link: Link | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._attempt_over = asyncio.Event()
        self._read_over = asyncio.Event()
        self._wanted = False
        self._stale = False
        self._served = False
        self._last_used = 0.0
        self._read_at = float("-inf")
        self._failed_at = float("-inf")
        self._retries = 0
        self._delays = self._fresh_delays()

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
        if self._supervisor is None:
            self._greeting = greeting
            self._wanted = self.known is None or self.config.eager
            self._supervisor = asyncio.create_task(self._live(), name=f"group {self.name}")

    async def close(self) -> None:
        """End the group's life and its link, for good."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
        elif self.state is not State.CLOSED:
            self._enter(State.CLOSED)

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

    async def catalog(self) -> Catalog:
        """Return what the group offers, connecting to learn it only if that is not known. Raises UpstreamError."""
        if self.known is None:
            await self._connected()
        assert self.known is not None, "a link is not ready before its catalog is read"
        return self.known

    async def reread(self) -> Catalog:
        """Read the lists of a connected upstream again, for a name that is not among them."""
        if self._link is not None:
            read_over = self._read_over
            self._heard_list_changed()
            await read_over.wait()
        return await self.catalog()

    async def _connected(self) -> Link:
        """Wait for the attempt in flight or start one; a group that has just failed is left alone for a moment."""
        if self.state is State.CLOSED or (self.state in DOWN and self._is_cooling_down()):
            raise self._failure()
        attempt_over = self._attempt_over
        self._wanted = True
        self._wake.set()
        await attempt_over.wait()
        if self._link is None:
            raise self._failure()
        return self._link

    def _is_cooling_down(self) -> bool:
        return self._is_final() or self._clock.now() - self._failed_at < COOL_DOWN_S

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
        if frame.method == "notifications/tools/list_changed":
            self._heard_list_changed()
        else:
            self._observer.heard(self, frame)

    def lost(self, link: Link, error: LinkLost) -> None:
        """Learn that a link is over; the supervisor closes it."""
        if link is self._link:
            self._link_failed(error)
            self._wake.set()

    def _heard_list_changed(self) -> None:
        self._stale = True
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
        finally:
            self._link = self.error = None
            self._enter(State.CLOSED)
            self._end_attempt()
            if link is not None:
                await asyncio.shield(link.close())

    async def _until_wanted(self) -> None:
        """Wait for a use; between attempts also for the delay to pass."""
        pause_s = next(self._delays) if self.state in DOWN and not self._is_final() else math.inf
        wake_at = self._clock.now() + pause_s
        while not self._wanted and self._clock.now() < wake_at:
            await self._wait(wake_at - self._clock.now())

    async def _connect(self) -> Link | None:
        self._wanted = False
        self._enter(State.CONNECTING)
        began = self._clock.now()
        try:
            link, catalog = await self._opened()
        except DynamicMcpError as exc:
            self._attempt_failed(exc)
            return None
        self._link, self.known, self.error = link, catalog, None
        self._stale = self._served = False
        self._read_at = float("-inf")
        self._last_used = self._clock.now()
        self._enter(State.READY, f"{len(catalog.tools)} tools, after {self._last_used - began:.1f} s")
        self._end_attempt()
        return link

    async def _opened(self) -> tuple[Link, Catalog]:
        link, welcome = await self._open(self.config, self, self._greeting)
        try:
            catalog = Catalog({}, instructions=welcome.instructions, title=welcome.title)
            if self.config.features.tools and "tools" in welcome.capabilities:
                catalog = await self._read(link, catalog)
            if link.loss is not None:
                raise link.loss
        except BaseException:
            await asyncio.shield(link.close())
            raise
        return link, catalog

    async def _keep(self) -> None:
        """Watch over the link until it is lost or idle, and read its lists again when they change."""
        while self._link is not None:
            reread_left_s = self._read_at + REREAD_S - self._clock.now() if self._stale else math.inf
            if reread_left_s <= 0:
                await self._reread(self._link)
            elif self._idle_left_s() <= 0:
                self._link = None
                self._enter(State.COLD, "idle")
            else:
                await self._wait(min(reread_left_s, self._idle_left_s()))

    async def _reread(self, link: Link) -> None:
        self._stale = False
        try:
            self.known = await self._read(link, self.known or Catalog({}))
        except DynamicMcpError as exc:
            log.warning("group %s keeps the tools it had: %s", self.name, exc.message)
        self._read_at = self._clock.now()
        self._end_reading()
        self._observer.changed(self)

    async def _read(self, link: Link, catalog: Catalog) -> Catalog:
        async def ask(method: str, params: Mapping[str, Raw]) -> dict[str, Raw]:
            answer = await link.request(method, params or None, timeout_s=self.config.timeouts.connect_s)
            return result_of(answer, self.name, method)

        catalog, complaints = await read_catalog(ask, catalog, self.config.tools.allows)
        for complaint in complaints:
            log.warning("group %s: %s", self.name, complaint)
        return catalog

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
        self._failed_at = self._clock.now()
        self._retries += 1
        spent = self._is_final() or self._retries > self.config.attempts
        self._enter(State.FAILED if spent else State.WAITING, _reason(error))
        self._end_attempt()

    def _link_failed(self, error: LinkLost) -> None:
        """Leave READY: a link that has served may be replaced at once, one that never did counts as a failure."""
        self._link = None
        self.error = error
        if self._served:
            self._delays = self._fresh_delays()
        else:
            self._failed_at = self._clock.now()
            self._retries += 1
        self._enter(State.WAITING, error.reason)

    def _end_attempt(self) -> None:
        self._attempt_over.set()
        self._attempt_over = asyncio.Event()
        self._end_reading()

    def _end_reading(self) -> None:
        self._read_over.set()
        self._read_over = asyncio.Event()

    def _fresh_delays(self) -> Iterator[float]:
        self._retries = 0
        retries = islice(delays(FIRST_RETRY_S, LONGEST_RETRY_S, self._jitter), self.config.attempts)
        return chain(retries, delays(FIRST_REVIVAL_S, LONGEST_REVIVAL_S, self._jitter))

    def _is_final(self) -> bool:
        return isinstance(self.error, Unreachable) and self.error.final

    def _idle_left_s(self) -> float:
        after_s = math.inf if self.config.idle_after_s is None else self.config.idle_after_s
        return after_s if self.in_flight else self._last_used + after_s - self._clock.now()


def _reason(error: DynamicMcpError) -> str:
    return error.reason if isinstance(error, UpstreamError) else error.message
