"""The running proxies of this user and their status. Each proxy keeps one small private file up to date.

A reader recognises files of dead proxies by their age and process id, and removes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from dynamic_mcp import __version__
from dynamic_mcp.system import paths
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.file_reader import read_bytes

log = logging.getLogger(__name__)

# The interval of the checks for a new status, and the maximum interval of writes.
CHECK_EVERY_S = 2.0
HEARTBEAT_S = 10.0
# The delay of a check after a change, and the minimum time between two checks.
_CHECK_AFTER_S = 0.1
_CHECK_APART_S = 0.5
# A proxy that has been silent for this long is suspended or dead.
SILENT_S = 3 * HEARTBEAT_S


# The state of a group that cannot start before a session exists, whose environment it gets.
NO_SESSION = "starts with a session"

# Proxies of other versions write these files too: unknown fields are ignored, and missing ones have a default.


class SessionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A connected client: its start (seconds since 1970), its number of calls to servers, and its directory if known.

    `title` is what the client calls itself for people, if it does. `subject` is the authenticated user, and `issuer`
    the issuer of that name; both are empty for the local user. `only` is the single visible group; empty if all
    are visible. `profile` is the chosen profile; empty if none. The `transport` is `stdio`, `socket`, `http` or
    `sse`.
    """

    client: str = ""
    title: str = ""
    subject: str = ""
    issuer: str = ""
    version: str = ""
    since: float = 0.0
    calls: int = 0
    directory: str = ""
    only: str = ""
    profile: str = ""
    transport: str = "stdio"


TRANSPORT_NAMES = {"stdio": "stdio", "socket": "window", "http": "HTTP", "sse": "HTTP+SSE"}


class InstanceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A running copy of a group's server, the clients of its sessions, and percentiles of its call durations.

    `shared_by` is the audience: `everybody`, `user`, or clients with this name and version; one session has it alone
    if it `is_exclusive`. `pid` is None if no local process runs for it.
    """

    shared_by: str = ""
    is_exclusive: bool = False
    clients: list[str] = []
    pid: int | None = None
    state: str = ""
    reason: str = ""
    in_flight: int = 0
    calls: int = 0
    failures: int = 0
    p50_ms: float | None = None
    p95_ms: float | None = None


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a group; `tools` is None while unknown. `failures` counts calls without a result.

    `missing` gives the lists that could not be read, and the reasons. `person` is the user whose login it uses, if
    each user has one; `person_issuer` is the issuer of that name. Calls and failures include ended instances'.
    `copies` gives the reason for several instances, or for another group of this name. `confined` is what of its
    program is confined.
    """

    name: str = ""
    person: str = ""
    person_issuer: str = ""
    state: str = ""
    reason: str = ""
    copies: str = ""
    confined: str = ""
    missing: str = ""
    tools: int | None = None
    in_flight: int = 0
    calls: int = 0
    failures: int = 0
    instances: list[InstanceStatus] = []


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One of the processes that serve a config together, and how many sessions it has."""

    name: str = ""
    pid: int = 0
    sessions: int = 0


class ProxyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a proxy: its config, its clients and its groups.

    Its `kind` is `stdio`, `daemon` or `http`; a daemon has a socket. Each of them may serve HTTP as well, at its
    `url`, and has its metrics at `metrics`. `clients` are the names in `sessions`.

    The config in use was read at `config_since`. If the file has another version since then that cannot be used,
    `config_error` says why, and `config_error_since` when it was found (seconds since 1970).

    One of several workers is `worker`, started by the process `supervisor`; its `homes` are the groups whose servers
    run in it. In what is read of them all, `workers` are these processes.
    """

    config: str = ""
    kind: str = "stdio"
    socket: str = ""
    url: str = ""
    metrics: str = ""
    config_since: float = 0.0
    config_error: str = ""
    config_error_since: float = 0.0
    clients: list[str] = []
    sessions: list[SessionStatus] = []
    groups: list[GroupStatus] = []
    supervisor: int = 0
    worker: str = ""
    homes: list[GroupStatus] = []
    workers: list[WorkerStatus] = []


class RunningProxy(msgspec.Struct, frozen=True, kw_only=True):
    """One proxy in the registry; times are in seconds since 1970."""

    pid: int
    version: str = ""
    started_at: float = 0.0
    status: ProxyStatus = msgspec.field(name="entry")  # other versions read this name, too
    silent_s: float = 0.0


class StatusPart(msgspec.Struct, frozen=True):
    """A feature's addition to the status of proxies: fields for each, by process id, and a note about all of them."""

    members: Mapping[int, Mapping[str, object]]
    note: str = ""


class ProxyRegistry:
    """The status files in one folder."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._now = now

    async def publish(self, status: Callable[[], ProxyStatus], changed: asyncio.Event | None = None) -> None:
        """Keep the file of this process up to date until cancelled. Warns if it cannot be written, and tries again.

        `changed` is set for changes to publish at once, such as a new session.
        """
        changed = changed or asyncio.Event()
        file = self._folder / f"{os.getpid()}.json"
        started_at, beaten_at, written, has_warned = self._now(), float("-inf"), None, False
        try:
            while True:
                now, current = self._now(), status()
                if current != written or not 0 <= now - beaten_at < HEARTBEAT_S:
                    running = RunningProxy(
                        pid=os.getpid(), version=__version__, started_at=started_at, status=current
                    )
                    try:
                        await asyncio.to_thread(paths.write_private, file, _encode(running), durable=False)
                    except OSError as exc:  # also if no descriptor is free at the moment
                        level = logging.DEBUG if has_warned else logging.WARNING
                        what = "`dynamic-mcp status` does not show this proxy as it is: `%s` cannot be written: %s"
                        log.log(level, what, file, exc.strerror)
                        has_warned = True
                    else:
                        written, beaten_at, has_warned = current, now, False
                await _wait_for_change(changed)
        finally:
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)

    def list_proxies(self) -> list[RunningProxy]:
        """Return the running proxies, the oldest first, and remove the files of dead ones. Workers are one proxy."""
        running = [each for file in self._files() if (each := self._read(file)) is not None]
        by_service: dict[int, list[RunningProxy]] = {}
        for each in running:
            by_service.setdefault(each.status.supervisor or each.pid, []).append(each)
        proxies = [several[0] if several[0].pid == pid else join(pid, several) for pid, several in by_service.items()]
        return sorted(proxies, key=lambda each: each.started_at)

    def list_recent(self) -> list[str]:
        """Return the process ids in files that were written a moment ago, also by processes that cannot be seen here.

        Those may be in another container that has the same state directory, or were killed since.
        """
        now, found = self._now(), list[str]()
        for file in self._files():
            with contextlib.suppress(OSError):
                if now - file.stat().st_mtime < SILENT_S:
                    found.append(file.stem)
        return found

    def _files(self) -> list[Path]:
        try:
            return sorted(self._folder.glob("*.json"))
        except OSError:
            return []

    def _read(self, file: Path) -> RunningProxy | None:
        try:
            silent_s = max(0.0, self._now() - file.stat().st_mtime)
            running = decode_as(read_bytes(file), RunningProxy)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):  # removed meanwhile, or from another version
            return None
        if not is_alive(running.pid, silent_s):
            with contextlib.suppress(OSError):
                file.unlink()
            return None
        return msgspec.structs.replace(running, silent_s=silent_s if silent_s > SILENT_S else 0.0)


def join(supervisor: int, workers: Sequence[RunningProxy]) -> RunningProxy:
    """Return what workers are together: the sessions of all, and each group with the server at its home."""
    workers = sorted(workers, key=lambda each: each.status.worker)
    statuses = [each.status for each in workers]
    first = statuses[0]
    homes = {group.name: group for status in statuses for group in status.homes}
    names = dict.fromkeys((group.name, group.person) for status in statuses for group in status.groups)
    groups = [
        [group for status in statuses for group in status.groups if (group.name, group.person) == name]
        for name in names
    ]
    status = msgspec.structs.replace(
        first,
        clients=[each for status in statuses for each in status.clients],
        sessions=[each for status in statuses for each in status.sessions],
        groups=[_join_group(several, homes.get(several[0].name)) for several in groups],
        homes=[],
        worker="",
        workers=[
            WorkerStatus(name=each.status.worker, pid=each.pid, sessions=len(each.status.sessions))
            for each in workers
        ],
    )
    return RunningProxy(
        pid=supervisor,
        version=workers[0].version,
        started_at=min(each.started_at for each in workers),
        status=status,
        silent_s=max(each.silent_s for each in workers),
    )


def _join_group(several: Sequence[GroupStatus], home: GroupStatus | None) -> GroupStatus:
    """Return a group of several workers, whose server may have a home."""
    shown = home or several[0]
    return msgspec.structs.replace(
        shown,
        tools=next((each.tools for each in (shown, *several) if each.tools is not None), None),
        in_flight=sum(each.in_flight for each in several),
        calls=sum(each.calls for each in several),
        failures=sum(each.failures for each in several),
        instances=[each for group in ([home] if home else several) for each in group.instances],
    )


async def _wait_for_change(changed: asyncio.Event) -> None:
    """Wait until a new status is due: shortly after a change, or else after the interval."""
    loop = asyncio.get_running_loop()
    earliest = loop.time() + _CHECK_APART_S
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CHECK_EVERY_S):
            await changed.wait()
        await asyncio.sleep(max(_CHECK_AFTER_S, earliest - loop.time()))
    changed.clear()


def is_alive(pid: int, silent_s: float) -> bool:
    """Return whether this process is a running one of this user, given the time since it last wrote its file."""
    bound_s = SILENT_S
    if sys.platform != "win32":  # signal 0 would end the process on Windows
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # the pid now belongs to another user
            return False
        bound_s = 100 * SILENT_S  # the pid may have been reused
    return silent_s < bound_s


def _encode(running: RunningProxy) -> bytes:
    try:
        return msgspec.json.encode(running)
    except UnicodeEncodeError:  # a path is not UTF-8; show its invalid bytes as escapes
        return msgspec.json.encode(_with_escapes(msgspec.to_builtins(running)))


def _with_escapes(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case list():
            return [_with_escapes(each) for each in value]
        case dict():
            return {name: _with_escapes(each) for name, each in value.items()}
        case _:
            return value
