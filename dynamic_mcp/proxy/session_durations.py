"""Measures how long clients and servers were connected, reported at the end of each connection."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Generic, TypeVar

from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.proxy.client_events import SESSION_CLOSED
from dynamic_mcp.proxy.request import Event

Labels = TypeVar("Labels")


class OpenLinks(Generic[Labels]):
    """The connections to servers, each with the labels that it has from its beginning."""

    def __init__(self) -> None:
        self._links: dict[Instance, tuple[float, Labels]] = {}

    def add(self, instance: Instance, labels: Labels) -> None:
        """Add an instance that has just connected."""
        self._links[instance] = time.perf_counter(), labels

    def pop_ended(self) -> Iterator[tuple[float, Labels]]:
        """Yield for how many seconds each one was connected that is so no longer, and its labels."""
        for instance in [each for each in self._links if not each.is_connected]:
            began, labels = self._links.pop(instance)
            yield time.perf_counter() - began, labels


def session_seconds(event: Event) -> float | None:
    """Return for how long the client was connected whose session has ended; None of every other event.

    Clients of stateless revisions have no sessions.
    """
    client = event.client
    if event.name != SESSION_CLOSED or client is None or client.hello.revision.is_stateless:
        return None
    return max(0.0, time.time() - client.since)
