"""Observes a proxy for a test: keeps what each request is when it begins, and every event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Event, Observation, Observer, Observers


class Seen(Struct):
    """A request: its method, and where it came from."""

    method: str
    address: str
    client: str


class Recorder(Observer):
    """Keeps what it hears of."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.events: list[Event] = []
        self.searches: list[Mapping[str, int]] = []  # what each has left out

    def begin(self, seen: Observation) -> None:
        request = seen.request
        self.seen.append(Seen(request.method, request.address, request.client.id))

    def end(self, seen: Observation, answer: Frame | None, error: BaseException | None) -> None:
        if seen.hidden is not None:
            self.searches.append(seen.hidden)

    def note(self, event: Event) -> None:
        self.events.append(event)

    def named(self, name: str) -> list[dict[str, Any]]:  # Any: whatever is in an event
        """Return the members of the events of this name."""
        return [dict(event.members) for event in self.events if event.name == name]

    @property
    def names(self) -> list[str]:
        """The names of all events, in their order."""
        return [event.name for event in self.events]


def observe(proxy: Proxy, recorder: Recorder | None = None) -> Recorder:
    """Observe a proxy from now on."""
    recorder = recorder or Recorder()
    proxy.observers = Observers([recorder])
    return recorder
