"""The states of a group, and which may follow which."""

from collections.abc import Mapping
from enum import Enum


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
