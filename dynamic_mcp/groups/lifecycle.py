"""The states of a group, the allowed transitions, and the one place where they change."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from enum import Enum
from itertools import chain, islice

from msgspec import Struct

from dynamic_mcp.errors import DynamicMcpError, LoginNeeded, Unreachable, UpstreamError
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.system.clock import Clock, delays
from dynamic_mcp.system.text import one_line

log = logging.getLogger(__name__)

LONGEST_REASON = 500
# The interval between checks for a login that another process may have completed.
LOGIN_POLL_S = 2.0
_FIRST_RETRY_S, _LONGEST_RETRY_S = 2.0, 8.0
_FIRST_REVIVAL_S, _LONGEST_REVIVAL_S = 30.0, 300.0
# What has just failed is not tried again by every use that comes along.
_COOL_DOWN_S = 1.0


class State(Enum):
    """The state of a group."""

    COLD = "not connected"
    CONNECTING = "connecting"
    READY = "connected"
    WAITING = "waiting to retry"
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


class Lifecycle:
    """The state of one group and its causes; every change is logged once, and `changed` is called."""

    def __init__(
        self,
        name: str,
        attempts: Attempts,
        clock: Clock,
        changed: Callable[[], None],
        counts: LinkCounts | None = None,
    ) -> None:
        self.state = State.COLD
        self.error: DynamicMcpError | None = None
        self.attempts = attempts
        self.advice = ""
        self._logger = group_logger(log, name)
        self._name = name
        self._clock = clock
        self._changed = changed
        self._counts = counts or LinkCounts()
        self._was_opened = self._was_lost = False
        self._may_try_anyway = False

    def enter(self, state: State, why: str = "") -> None:
        """Enter another state, which the table must allow."""
        assert state in TRANSITIONS[self.state], f"{self.state.name} does not lead to {state.name}"
        self.state = state
        self._may_try_anyway = False
        self._was_opened |= state is State.CONNECTING
        if state is State.READY:
            self._note_opened()
        if state is State.CLOSED and not self._was_opened:
            self._changed()  # a group that never began logs no end
            return
        level = logging.WARNING if state in DOWN else logging.DEBUG if state is State.CONNECTING else logging.INFO
        self._logger.log(level, "group %s %s", self._name, f"{state.value}: {why}" if why else state.value)
        self._changed()

    def fail_attempt(self, error: DynamicMcpError) -> None:
        """Leave CONNECTING without a link."""
        self.error = error
        self._counts.failed += 1
        if self.advice and self.advice not in error.hint:
            error.hint = "; ".join(filter(None, (self.advice, error.hint)))
        self.attempts.note_failure(self._clock.now())
        if isinstance(error, LoginNeeded):
            self.enter(State.NEEDS_LOGIN, error.hint)
            return
        is_over = self.is_final() or self.attempts.are_spent()
        self.enter(State.FAILED if is_over else State.WAITING, self.reason_of(error))

    def fail_link(self, error: DynamicMcpError, *, has_served: bool) -> None:
        """Leave READY: a link that has served may be replaced at once, one that never did counts as a failure."""
        self.error = error
        self._counts.lost += 1
        self._was_lost = True
        if has_served:
            self.attempts.reset()
        else:
            self.attempts.note_failure(self._clock.now())
        self.enter(State.WAITING, self.reason_of(error))

    def _note_opened(self) -> None:
        self._counts.opened += 1
        self._counts.restarts += self._was_lost
        self._was_lost = False

    def close(self, error: DynamicMcpError | None = None) -> None:
        """Enter the final state; callers get this error, or else that the group was removed."""
        self.error = error
        if self.state is not State.CLOSED:
            self.enter(State.CLOSED)

    def is_final(self) -> bool:
        """Return whether every further attempt would fail in the same way."""
        return isinstance(self.error, Unreachable) and self.error.final

    def may_connect(self) -> bool:
        """Return whether a use may start an attempt now, or join the one in flight."""
        if self.state is State.CLOSED:
            return False
        if self.state not in DOWN or self.is_logged_in():
            return True
        return self._may_try_anyway or not (self.is_final() or self.attempts.are_cooling_down(self._clock.now()))

    def try_anyway(self) -> None:
        """Let the next use start an attempt at once, whatever the last one has come to: a person asks for it."""
        self._may_try_anyway = self.state in DOWN
        self.attempts.reset()

    def is_logged_in(self) -> bool:
        """Return whether a login has completed since the group needed it."""
        return self.state in DOWN and isinstance(self.error, LoginNeeded) and self.error.is_done()

    def next_pause_s(self) -> float:
        """Return the delay before the next attempt if no client uses the group, and count that attempt.

        Infinity means that there is no next attempt without a use.
        """
        may_retry = self.state in DOWN and self.state is not State.NEEDS_LOGIN and not self.is_final()
        return self.attempts.next_pause_s() if may_retry else math.inf

    def look_again_s(self) -> float:
        """Return the delay before the next check for a completed login."""
        return LOGIN_POLL_S if self.state is State.NEEDS_LOGIN else math.inf

    def reason(self) -> str:
        """Return why the group is down, in one line; empty otherwise."""
        return self.reason_of(self.error) if self.error is not None and self.state in DOWN else ""

    def reason_of(self, error: DynamicMcpError) -> str:
        """Return the meaning of an error for the group, in one line, with advice."""
        message = _in_one_line(error)
        return f"{message}; {self.advice}" if self.advice and self.advice not in message else message

    def gone(self) -> DynamicMcpError:
        """Return the error that the group was removed."""
        return Unreachable(self._name, "was removed from the config or is shutting down")

    def failure(self) -> DynamicMcpError:
        """Return why there is no link; a new error each time, since each caller raises its own."""
        match self.error:
            case None:
                return self.gone()
            case UpstreamError() as error:
                return Unreachable(self._name, error.reason, hint=error.hint)
            case error:
                return error


def _in_one_line(error: DynamicMcpError) -> str:
    match error:
        case UpstreamError():
            text = error.reason
        case LoginNeeded():  # the user needs the whole command
            text = f"{error.reason}: {error.hint}"
        case _:
            text = error.message
    return one_line(text, LONGEST_REASON)


class Attempts:
    """Consecutive failures: a few are retried soon, later ones after growing delays."""

    def __init__(self, retries: int, jitter: Callable[[], float]) -> None:
        self._retries = retries
        self._jitter = jitter
        self._failed_at = float("-inf")
        self.reset()

    def reset(self) -> None:
        self._failures = 0
        soon = islice(delays(_FIRST_RETRY_S, _LONGEST_RETRY_S, self._jitter), self._retries)
        self._delays = chain(soon, delays(_FIRST_REVIVAL_S, _LONGEST_REVIVAL_S, self._jitter))

    def note_failure(self, now: float) -> None:
        self._failures += 1
        self._failed_at = now

    def are_spent(self) -> bool:
        """Return whether there were more failures than are retried soon."""
        return self._failures > self._retries

    def are_cooling_down(self, now: float) -> bool:
        """Return whether the last failure was just now."""
        return now - self._failed_at < _COOL_DOWN_S

    def next_pause_s(self) -> float:
        """Return the delay before the next attempt, and advance to the one after it."""
        return next(self._delays)


class LinkCounts(Struct):
    """Counts of all instances of the groups of one name, over reloads too: they only grow.

    `restarts` are links that were opened in place of one that was lost.
    """

    opened: int = 0
    failed: int = 0
    lost: int = 0
    restarts: int = 0
