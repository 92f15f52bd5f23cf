"""Tries all that replicas need of their store, and says what is missing."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from dynamic_mcp.doctor.findings import Finding, Level, config_error, warning
from dynamic_mcp.features.cluster.config import Cluster
from dynamic_mcp.features.cluster.store import open_store
from dynamic_mcp.features.cluster.store_address import StoreAddress, parse_address
from dynamic_mcp.system.shared_store import (
    ABSENT,
    Lease,
    Rate,
    SharedStore,
    StoreFailure,
    StoreSpace,
    StoreUnavailable,
)

_WHERE = "settings.cluster.store"
_SPACE = StoreSpace("check", most_listed=100)
_ENTRY_S = 10.0
_ROUND_TRIPS = 20
_MESSAGE_WITHIN_S = 3.0
_TRIAL_WITHIN_S = 10.0
_TRIES_AFTER_S = (0.5, 1.0, 2.0)
_CLOCKS_DIFFER_S = 10.0
# The oldest version that the tests are run with.
_OLDEST = (7, 0)
# What a store sends, and `dynamic-mcp cluster check` besides.
COMMANDS = (
    *("eval", "evalsha", "get", "mget", "set", "del", "getrange", "zadd", "zrem", "zcard", "zscore", "zrange"),
    *("zrangebyscore", "zremrangebyscore", "pexpireat", "time", "ping", "select", "publish", "subscribe", "scan"),
    "info",
)
ACL_RULES = (
    f"resetkeys ~dynamic-mcp:1:* resetchannels &dynamic-mcp:1:* -@all {' '.join(f'+{each}' for each in COMMANDS)}"
)

_HINTS = {
    StoreFailure.DOWN: "does it run, and may this machine connect to it?",
    StoreFailure.SLOW: "does a firewall drop the packets, or is it overloaded?",
    StoreFailure.READ_ONLY: "name the primary, or its sentinels",
    StoreFailure.FULL: "raise its `maxmemory`",
    StoreFailure.REFUSED: "",
    StoreFailure.FOREIGN: "give all replicas the same `keys`, and each service a database of its own: `…:6379/1`",
    StoreFailure.NONSENSE: "is it Valkey or Redis, and does its port use TLS?",
}


async def probe_store(settings: Cluster, folder: Path) -> list[Finding]:
    """Return what is found about the store of these settings; nothing if they name none."""
    if settings.store is None:
        return []
    address = parse_address(settings.store, folder)
    findings = [] if address.is_file else [*_check_address(address), *await _check_server(address)]
    if any(each.level is Level.ERROR for each in findings):
        return findings
    store = await open_store(settings, folder)
    assert store is not None, "the settings name one"
    try:
        return [*findings, *await _try_again(store)]
    except StoreUnavailable as exc:
        return [*findings, _to_finding(exc)]
    finally:
        await store.close()


def _to_finding(exc: StoreUnavailable) -> Finding:
    return config_error(_WHERE, f"{exc}", _HINTS.get(exc.failure, ""))


# --- the server ---------------------------------------------------------------------------------------------


def _check_address(address: StoreAddress) -> Iterator[Finding]:
    is_near = bool(address.path) or all(host in ("localhost", "127.0.0.1", "::1") for host, _ in address.hosts)
    if not is_near and not address.is_secure:
        what = "the connection is not encrypted: values are sealed, and the password is not"
        yield warning(_WHERE, what, "use `valkeys://`, or a network that only the replicas share")
    if not is_near and not (address.password or address.certificate):
        yield warning(_WHERE, "there is no password: who reaches the server can delete what is revoked")


async def _check_server(address: StoreAddress) -> list[Finding]:
    """Try each command alone, and read what the server says of itself."""
    from dynamic_mcp.features.cluster.valkey_link import ERRORS, to_failure
    from dynamic_mcp.features.cluster.valkey_trial import ServerTrial, try_commands

    try:
        async with asyncio.timeout(_TRIAL_WITHIN_S):
            trial: ServerTrial = await try_commands(address)
    except TimeoutError:
        return [_to_finding(StoreUnavailable(StoreFailure.SLOW))]
    except ERRORS as exc:
        return [_to_finding(to_failure(exc))]
    if trial.refused:
        what = f"the user may not use: {', '.join(f'`{each}`' for each in trial.refused)}"
        return [
            config_error(_WHERE, what, f"as an administrator: `ACL SETUSER {address.username or 'NAME'} {ACL_RULES}`")
        ]
    if not trial.info:
        what = "version, persistence and eviction are unknown: the user may not use `info`"
        return [Finding(Level.NOTE, _WHERE, what), *_check_clock(trial.clock_differs_s)]
    return [*_check_info(trial.info), *_check_clock(trial.clock_differs_s)]


def _check_clock(differs_s: float) -> Iterator[Finding]:
    if abs(differs_s) > _CLOCKS_DIFFER_S:
        what = f"the clock of the server differs by {differs_s:.0f} s"
        yield warning(_WHERE, what, "keep the clocks of all machines right: signatures of replicas allow two minutes")


def _check_info(info: Mapping[str, str]) -> Iterator[Finding]:
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = info.get("valkey_version") or info.get("redis_version", "")
    numbers = tuple(int(each) for each in re.findall(r"\d+", version)[:2])
    yield Finding(Level.OK, _WHERE, f"{name} {version}")
    if numbers < _OLDEST:
        yield warning(_WHERE, f"version {version} is older than those that were tried", "use 7.0 or later")
    if info.get("cluster_enabled", "0") != "0":
        yield config_error(_WHERE, "the server is a node of a Valkey cluster", "use one server, or sentinels")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        what = f"it forgets entries when it is full (`{policy}`), revocations among them"
        yield warning(_WHERE, what, "`CONFIG SET maxmemory-policy noeviction`")
    if info.get("maxmemory", "0") == "0":
        yield Finding(Level.NOTE, _WHERE, "its memory has no bound", "`CONFIG SET maxmemory 256mb`")
    if info.get("aof_enabled") == "0":
        what = "it may forget the last minutes when it restarts: it keeps no log of changes"
        yield warning(_WHERE, what, "`CONFIG SET appendonly yes`")
    if info.get("rdb_last_bgsave_status", "ok") != "ok" or info.get("aof_last_write_status", "ok") != "ok":
        yield config_error(_WHERE, "it could not write to its disk", "its log says why")


# --- the operations -------------------------------------------------------------------------------------------


async def _try_again(store: SharedStore) -> list[Finding]:
    """Try the operations, and again if one was not answered in time. Raises StoreUnavailable."""
    for pause_s in _TRIES_AFTER_S:
        try:
            return await _try_operations(store)
        except StoreUnavailable as exc:
            if exc.failure not in (StoreFailure.SLOW, StoreFailure.DOWN):
                raise
            await asyncio.sleep(pause_s)
    return await _try_operations(store)


async def _try_operations(store: SharedStore) -> list[Finding]:
    """Use the store as replicas do. Raises StoreUnavailable."""
    name = secrets.token_hex(8)
    heard = asyncio.Event()
    end = store.subscribe(_SPACE, lambda message: heard.set() if message == name.encode() else None)
    try:
        version = await store.compare_and_set(_SPACE, name, b"check", _ENTRY_S, expected=ABSENT)
        found = await store.get(_SPACE, name)
        names = {each.name for each in await store.list_entries(_SPACE)}
        await store.count_changes([_SPACE])
        await store.count(_SPACE, [Rate(name, 0.001, 1)])
        lease = [Lease(name, 1)]
        await store.acquire(_SPACE, lease, name, _ENTRY_S)
        await store.renew(_SPACE, lease, name, _ENTRY_S)
        await store.release(_SPACE, lease, name)
        times = []
        for _ in range(_ROUND_TRIPS):
            began = time.perf_counter()
            await store.count(_SPACE, [Rate(name, 0.000_001, 1)])
            times.append(time.perf_counter() - began)
        has_heard = await _publish_until(store, name, heard)
        taken = await store.take(_SPACE, name)
    finally:
        end()
    if found is None or taken is None or name not in names or found.version != version:
        return [config_error(_WHERE, "it has lost an entry that was just written")]
    findings = [
        Finding(Level.OK, _WHERE, f"all operations work; a call with a shared limit waits {_in_words(times)}")
    ]
    if not has_heard:
        findings.append(
            warning(_WHERE, "messages do not arrive: changes are noticed within a second, and not at once")
        )
    return findings


async def _publish_until(store: SharedStore, name: str, heard: asyncio.Event) -> bool:
    """Return whether a message comes back, which may be sent before its subscription."""
    for _ in range(int(_MESSAGE_WITHIN_S / 0.2)):
        await store.publish(_SPACE, name.encode())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await heard.wait()
            return True
    return False


def _in_words(times: Sequence[float]) -> str:
    return f"{median(times) * 1000:.2f} ms"
