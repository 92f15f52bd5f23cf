"""Gauges of a proxy and its process, read at each scrape."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from dynamic_mcp import __version__
from dynamic_mcp.features.metrics import definitions
from dynamic_mcp.features.metrics.families import Definition, Family, Values
from dynamic_mcp.groups.group import Group
from dynamic_mcp.groups.lifecycle import DOWN, State
from dynamic_mcp.proxy.proxy import Proxy

_STATES = tuple(state for state in State if state is not State.CLOSED)
_PROC = Path("/proc/self")
# The positions of `starttime`, `vsize` and `rss` in `stat`, counted after the name of the program (proc(5)).
_START, _VIRTUAL, _RESIDENT = 19, 20, 21


def read_gauges(proxy: Proxy) -> Iterator[Family]:
    """Yield the metrics that are read at a scrape instead of counted.

    Groups of one name, which differ in how clients start the server, are added up.
    """
    groups = [*proxy.groups]
    yield _sessions(proxy)
    yield _upstream_up(groups)
    yield _instances(groups)
    yield from _links(proxy)
    yield from _loads(groups)
    yield _tools(groups)
    yield from _stored_results(proxy)
    yield from _approvals(proxy)
    yield from _replicas(proxy)
    yield from _shared_store(proxy)
    python = ".".join(map(str, sys.version_info[:3]))
    yield _single(definitions.BUILD, 1, (__version__, python))


def _sessions(proxy: Proxy) -> Values:
    clients = Counter(
        (each.transport, "modern" if each.hello.revision.is_stateless else "legacy") for each in proxy.clients
    )
    family = Values(definitions.SESSIONS)
    for labels, count in clients.items():
        family.set(count, labels)
    return family


def _upstream_up(groups: list[Group]) -> Values:
    usable = {group.name for group in groups if group.state not in DOWN}
    family = Values(definitions.UPSTREAM_UP)
    for group in groups:
        family.set(int(group.name in usable), (group.name,))
    return family


def _instances(groups: list[Group]) -> Values:
    family = Values(definitions.INSTANCES)
    for group in groups:
        states = Counter(each.state for each in group.instances.values())
        for state in _STATES:
            family.add((group.name, state.name.lower()), states[state])
    return family


def _links(proxy: Proxy) -> Iterator[Values]:
    opened, failed = Values(definitions.CONNECTS), Values(definitions.CONNECT_FAILURES)
    lost, restarts = Values(definitions.LOSSES), Values(definitions.RESTARTS)
    for name, counts in proxy.groups.link_counts.items():
        opened.add((name,), counts.opened)
        failed.add((name,), counts.failed)
        lost.add((name,), counts.lost)
        restarts.add((name,), counts.restarts)
    yield from (opened, failed, lost, restarts)


def _loads(groups: list[Group]) -> Iterator[Values]:
    in_flight, queued = Values(definitions.IN_FLIGHT), Values(definitions.QUEUED)
    for group in groups:
        in_flight.add((group.name,), group.in_flight)
        queued.add((group.name,), sum(each.activity.queued for each in group.instances.values()))
    yield from (in_flight, queued)


def _tools(groups: list[Group]) -> Values:
    family = Values(definitions.TOOLS)
    for group in groups:
        if group.catalog is not None:
            family.set(len(group.catalog.tools), (group.name,))
    return family


def _stored_results(proxy: Proxy) -> Iterator[Values]:
    size = proxy.result_store.measure()
    yield _single(definitions.STORED_RESULTS, size.results)
    yield _single(definitions.STORED_CHARACTERS, size.characters)


def _approvals(proxy: Proxy) -> Iterator[Values]:
    if proxy.approvals is not None:
        yield _single(definitions.APPROVALS_PENDING, proxy.approvals.pending)
        outcomes = Values(definitions.APPROVALS)
        for outcome, count in proxy.approvals.outcomes.items():
            outcomes.set(count, (outcome,))
        yield outcomes


def _replicas(proxy: Proxy) -> Iterator[Values]:
    if proxy.replicas is not None:
        status = proxy.replicas.describe()
        replicas, forwarded = Values(definitions.REPLICAS), Values(definitions.FORWARDED)
        replicas.set(len(set(status.replicas) - {status.name}), ("known",))
        replicas.set(status.unreachable, ("unreachable",))
        outcomes = (("passed_on", status.forwarded), ("lost", status.lost), ("turned_away", status.turned_away))
        for outcome, count in outcomes:
            forwarded.set(count, (outcome,))
        yield from (replicas, forwarded)
        yield _single(definitions.FORWARDED_IN_FLIGHT, status.in_flight)
        yield _single(definitions.REFUSED_PEERS, status.refused)


def _shared_store(proxy: Proxy) -> Iterator[Values]:
    if proxy.shared_store is not None:
        status = proxy.shared_store.describe()
        yield _single(definitions.STORE_UP, int(not status.failure))
        operations = Values(definitions.STORE_OPERATIONS)
        outcomes = (("sent", status.operations), ("failed", status.failed), ("refused", status.refused))
        for outcome, count in outcomes:
            operations.set(count, (outcome,))
        yield operations


def _single(definition: Definition, value: float, labels: tuple[str, ...] = ()) -> Values:
    family = Values(definition)
    family.set(value, labels)
    return family


def process_families() -> Iterator[Values]:
    """Yield the metrics of this process. Memory and descriptors are read on Linux only."""
    yield _family(definitions.CPU, time.process_time())
    if sys.platform != "win32":
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (_PROC / "stat").read_text(errors="replace").rpartition(")")[2].split()
            yield _family(definitions.RESIDENT_MEMORY, int(fields[_RESIDENT]) * os.sysconf("SC_PAGE_SIZE"))
            yield _family(definitions.VIRTUAL_MEMORY, int(fields[_VIRTUAL]))
            yield _family(definitions.START_TIME, _boot_time() + int(fields[_START]) / os.sysconf("SC_CLK_TCK"))
            yield _family(definitions.OPEN_DESCRIPTORS, len(os.listdir(_PROC / "fd")))  # noqa: PTH208
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        yield _family(definitions.MAX_DESCRIPTORS, float("inf") if limit == resource.RLIM_INFINITY else limit)


def _boot_time() -> float:
    lines = Path("/proc/stat").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("btime ")))


def _family(definition: Definition, value: float) -> Values:
    family = Values(definition)
    family.set(value)
    return family
