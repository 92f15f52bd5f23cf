"""What a shared store promises, whichever it is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from dynamic_mcp.features.cluster.local_store import LocalStore
from dynamic_mcp.system.shared_store import (
    ABSENT,
    LONGEST_S,
    MOST_BYTES,
    Lease,
    Rate,
    SharedStore,
    StoredEntry,
    StoreFailure,
    StoreSpace,
    Wait,
)
from dynamic_mcp.system.store_copies import Mirror
from tests.features.cluster.store_servers import (
    PROGRAMS,
    StoreServer,
    failure_of,
    open_valkey,
    store_server,
    until,
    until_true,
)

PLAIN = StoreSpace("plain")
LISTED = StoreSpace("listed", most_listed=3)
_PROBE = b"are you there"
OpenStore = Callable[[], AbstractAsyncContextManager[SharedStore]]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], StoreServer]]:
    """Return a running server of a program, always the same."""
    running: dict[str, StoreServer] = {}
    with contextlib.ExitStack() as stack:

        def find(program: str) -> StoreServer:
            if program not in running:
                folder = tmp_path_factory.mktemp(program)
                running[program] = stack.enter_context(store_server(folder, program))
            return running[program]

        yield find


@pytest.fixture(params=["file", *(pytest.param(each, marks=pytest.mark.full) for each in PROGRAMS)])
def open_store(request: pytest.FixtureRequest, tmp_path: Path, servers: Callable[[str], StoreServer]) -> OpenStore:
    """Open one more store that shares with the others."""
    if request.param != "file":
        server = servers(request.param)
        server.ask("FLUSHALL")
        return lambda: open_valkey(server.address)

    @contextlib.asynccontextmanager
    async def open_file() -> AsyncIterator[SharedStore]:
        store = LocalStore(tmp_path / "shared" / "store.sqlite")
        try:
            yield store
        finally:
            await store.close()

    return open_file


@pytest.fixture
async def stores(open_store: OpenStore) -> AsyncIterator[tuple[SharedStore, SharedStore]]:
    """Two replicas' stores."""
    async with open_store() as one, open_store() as other:
        yield one, other


@pytest.fixture
def one(stores: tuple[SharedStore, SharedStore]) -> SharedStore:
    return stores[0]


@pytest.fixture
def other(stores: tuple[SharedStore, SharedStore]) -> SharedStore:
    return stores[1]


async def test_what_one_replica_puts_the_other_gets(one: SharedStore, other: SharedStore) -> None:
    version = await one.put(PLAIN, "näme\0:*", b"\0value\r\n", 60)
    assert await other.get(PLAIN, "näme\0:*") == StoredEntry("näme\0:*", b"\0value\r\n", version)
    assert await other.get(StoreSpace("else"), "näme\0:*") is None


async def test_a_later_value_replaces_an_earlier_one(one: SharedStore, other: SharedStore) -> None:
    first = await one.put(PLAIN, "a", b"1", 60)
    second = await other.put(PLAIN, "a", b"1", 60)
    assert first != second
    found = await one.get(PLAIN, "a")
    assert found is not None
    assert found.version == second


@pytest.mark.parametrize("space", [PLAIN, StoreSpace("many", most_listed=2000)])
async def test_all_entries_of_any_space_can_be_read(one: SharedStore, other: SharedStore, space: StoreSpace) -> None:
    names = {f"näme {number}:*" for number in range(700)}
    for name in names:
        await one.put(space, name, name.encode(), 60)
    await one.put(StoreSpace(f"{space.name}-2"), "of another space", b"1", 60)
    await one.put(space, "gone", b"1", 60)
    await one.delete(space, "gone")
    found = [each async for each in other.scan(space)]
    assert {each.name for each in found} == names
    assert len(found) == len(names)
    assert all(each.value == each.name.encode() for each in found)
    assert await one.delete(space, found[0].name, expected=found[0].version)


async def test_an_entry_expires(one: SharedStore) -> None:
    await one.put(PLAIN, "a", b"1", 0.02)
    await one.put(LISTED, "a", b"1", 0.02)
    await one.acquire(PLAIN, [Lease("a", 1)], "ann", 0.02)

    async def has_expired() -> bool:
        is_left = await one.get(PLAIN, "a") or await one.list_entries(LISTED)
        return not is_left and await one.acquire(PLAIN, [Lease("a", 1)], "bob", 60) is None

    await until_true(has_expired)
    assert not await one.renew(PLAIN, [Lease("a", 1)], "ann", 60)


@pytest.mark.parametrize(("value", "ttl_s"), [(b"x" * (MOST_BYTES + 1), 1), (b"", 0), (b"", LONGEST_S + 1)])
async def test_an_entry_without_bounds_is_a_bug(one: SharedStore, value: bytes, ttl_s: float) -> None:
    with pytest.raises(ValueError, match="entry"):
        await one.put(PLAIN, "a", value, ttl_s)


async def test_the_largest_value_comes_back(one: SharedStore) -> None:
    value = bytes(range(256)) * (MOST_BYTES // 256)
    await one.put(PLAIN, "a", value, LONGEST_S)
    found = await one.get(PLAIN, "a")
    assert found is not None
    assert found.value == value


async def test_of_many_that_write_only_if_there_is_none_one_does(one: SharedStore, other: SharedStore) -> None:
    writes = [each.compare_and_set(PLAIN, "a", b"x", 60, expected=ABSENT) for each in (one, other) * 10]
    versions = [each for each in await asyncio.gather(*writes) if each is not None]
    found = await other.get(PLAIN, "a")
    assert found is not None
    assert versions == [found.version]


async def test_a_changed_entry_is_not_overwritten(one: SharedStore, other: SharedStore) -> None:
    seen = await one.put(PLAIN, "a", b"1", 60)
    newer = await other.compare_and_set(PLAIN, "a", b"2", 60, expected=seen)
    assert newer is not None
    assert await one.compare_and_set(PLAIN, "a", b"3", 60, expected=seen) is None
    assert not await one.delete(PLAIN, "a", expected=seen)
    assert await one.get(PLAIN, "a") == StoredEntry("a", b"2", newer)
    assert await one.delete(PLAIN, "a", expected=newer)
    assert await one.compare_and_set(PLAIN, "a", b"3", 60, expected=newer) is None


async def test_of_many_that_take_an_entry_one_gets_it(one: SharedStore, other: SharedStore) -> None:
    await one.put(PLAIN, "code", b"grant", 60)
    taken = await asyncio.gather(*(each.take(PLAIN, "code") for each in (one, other) * 10))
    assert [each.value for each in taken if each is not None] == [b"grant"]


async def test_a_deleted_entry_is_gone(one: SharedStore, other: SharedStore) -> None:
    await one.put(LISTED, "a", b"1", 60)
    assert await other.delete(LISTED, "a")
    assert not await one.delete(LISTED, "a")
    assert await one.get(LISTED, "a") is None
    assert await one.list_entries(LISTED) == []


async def test_a_listed_space_shows_its_entries_and_takes_no_more_than_it_may(
    one: SharedStore, other: SharedStore
) -> None:
    for name in "abc":
        await one.put(LISTED, name, name.encode(), 60)
    assert await failure_of(one.put(LISTED, "d", b"", 60)) is StoreFailure.FULL
    await other.put(LISTED, "a", b"again", 60)
    await other.delete(LISTED, "b")
    await other.put(LISTED, "d", b"d", 60)
    assert {each.name: each.value for each in await one.list_entries(LISTED)} == {"a": b"again", "c": b"c", "d": b"d"}


async def test_each_change_of_a_listed_space_has_its_number(one: SharedStore, other: SharedStore) -> None:
    seen = [await one.count_changes([PLAIN, LISTED])]
    version = await other.put(LISTED, "a", b"1", 60)
    seen.append(await one.count_changes([PLAIN, LISTED]))
    await other.compare_and_set(LISTED, "a", b"2", 60, expected=version)
    seen.append(await one.count_changes([PLAIN, LISTED]))
    await other.take(LISTED, "a")
    seen.append(await one.count_changes([PLAIN, LISTED]))
    assert len(set(seen)) == len(seen)
    assert await one.count_changes([PLAIN, LISTED]) == seen[-1]


async def test_calls_over_a_rate_wait_whichever_replica_counts_them(one: SharedStore, other: SharedStore) -> None:
    rate = Rate("tool", interval_s=100, slack_s=200)
    assert [await each.count(PLAIN, [rate]) for each in (one, other, one)] == [None, None, None]
    wait = await other.count(PLAIN, [rate])
    assert isinstance(wait, Wait)
    assert (wait.index, 90 < wait.wait_s <= 100) == (0, True)


async def test_a_call_that_one_rate_refuses_is_counted_for_none(one: SharedStore) -> None:
    narrow, wide = Rate("narrow", 1000, 0), Rate("wide", 10, 10)
    assert await one.count(PLAIN, [wide, narrow]) is None
    refused = [await one.count(PLAIN, [wide, narrow]) for _ in range(3)]
    assert [each and each.index for each in refused] == [1, 1, 1]
    assert await one.count(PLAIN, [wide]) is None


async def test_many_counts_at_once_let_as_many_pass_as_the_rate_says(one: SharedStore, other: SharedStore) -> None:
    rate = Rate("tool", interval_s=1000, slack_s=9000)
    waits = await asyncio.gather(*(each.count(PLAIN, [rate]) for each in (one, other) * 20))
    assert waits.count(None) == 10


async def test_a_place_is_held_by_as_many_as_there_are(one: SharedStore, other: SharedStore) -> None:
    lease = [Lease("server", 2)]
    got = await asyncio.gather(*(each.acquire(PLAIN, lease, f"{i}", 60) for i, each in enumerate((one, other) * 5)))
    holders = [f"{i}" for i, wait in enumerate(got) if wait is None]
    assert len(holders) == 2
    await other.release(PLAIN, lease, holders[0])
    assert await one.acquire(PLAIN, lease, "next", 60) is None
    wait = await other.acquire(PLAIN, lease, "later", 60)
    assert wait is not None
    assert (wait.index, 50 < wait.wait_s <= 60) == (0, True)


async def test_places_of_several_leases_are_taken_together_or_not_at_all(one: SharedStore) -> None:
    free, full = Lease("free", 1), Lease("full", 1)
    await one.acquire(PLAIN, [full], "ann", 60)
    wait = await one.acquire(PLAIN, [free, full], "bob", 60)
    assert wait is not None
    assert wait.index == 1
    assert await one.acquire(PLAIN, [free], "cid", 60) is None


async def test_a_holder_keeps_its_place_as_long_as_it_renews(one: SharedStore, other: SharedStore) -> None:
    lease = [Lease("server", 1)]
    assert await one.acquire(PLAIN, lease, "ann", 60) is None
    assert await one.acquire(PLAIN, lease, "ann", 60) is None
    assert await one.renew(PLAIN, lease, "ann", 60)
    assert not await other.renew(PLAIN, lease, "bob", 60)
    assert await other.acquire(PLAIN, lease, "bob", 60) is not None


async def test_messages_and_changes_reach_all_subscribers(one: SharedStore, other: SharedStore) -> None:
    heard: list[tuple[str, bytes | None]] = []

    def hear(who: str, message: bytes | None) -> None:
        if message not in (None, _PROBE):
            heard.append((who, message))

    one.subscribe(PLAIN, partial(hear, "one"))
    end = other.subscribe(LISTED, partial(hear, "other"))
    await until_heard(one, PLAIN)
    await until_heard(other, LISTED)
    await other.publish(PLAIN, b"\0hello")
    await one.put(LISTED, "näme", b"1", 60)
    await one.release(LISTED, [Lease("server", 1)], "ann")
    await until(lambda: len(heard) >= 3)
    assert {*heard} == {("one", b"\0hello"), ("other", "näme".encode()), ("other", b"")}
    end()
    await one.publish(LISTED, b"unheard")
    await one.publish(PLAIN, b"last")
    await until(lambda: ("one", b"last") in heard)
    assert ("other", b"unheard") not in heard


async def test_a_mirror_shows_changes_of_other_replicas_without_asking(one: SharedStore, other: SharedStore) -> None:
    mirror = Mirror(one, LISTED)
    assert not mirror.is_fresh
    changed = asyncio.Event()
    mirror.on_change(changed.set)
    keeping = asyncio.create_task(mirror.run())
    try:
        await until(lambda: mirror.is_fresh)
        version = await other.put(LISTED, "family", b"revoked", 60)
        await until(lambda: mirror.get("family"))
        assert mirror.get("family") == StoredEntry("family", b"revoked", version)
        assert changed.is_set()
        await other.delete(LISTED, "family")
        await until(lambda: not mirror.entries)
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])


@pytest.mark.parametrize("turns", range(4))
async def test_a_mirror_that_is_cancelled_when_a_message_comes_ends(
    one: SharedStore, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    heard: list[Callable[[bytes | None], object]] = []
    subscribe = one.subscribe

    def listen(space: StoreSpace, listener: Callable[[bytes | None], object]) -> Callable[[], object]:
        heard.append(listener)
        return subscribe(space, listener)

    monkeypatch.setattr(one, "subscribe", listen)
    mirror = Mirror(one, LISTED)
    keeping = asyncio.create_task(mirror.run())
    await until(lambda: mirror.is_fresh)
    heard[0](None)
    for _ in range(turns):
        await asyncio.sleep(0)
    keeping.cancel()
    ended, _ = await asyncio.wait([keeping], timeout=5)
    assert ended == {keeping}


async def test_a_closed_store_says_so(one: SharedStore) -> None:
    await one.close()
    assert await failure_of(one.get(PLAIN, "a")) is StoreFailure.CLOSED


async def until_heard(store: SharedStore, space: StoreSpace) -> None:
    """Wait until messages of a space arrive."""
    heard = asyncio.Event()
    end = store.subscribe(space, lambda message: heard.set() if message == _PROBE else None)
    async with asyncio.timeout(10):
        while not heard.is_set():
            await store.publish(space, _PROBE)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(heard.wait(), 0.1)
    end()
