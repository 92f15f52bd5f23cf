"""What a shared store does when its server fails: it says what is wrong, costs callers nothing, and heals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path

import pytest

from dynamic_mcp.features.cluster.store_address import parse_address
from dynamic_mcp.features.cluster.valkey_link import MOST_IN_FLIGHT
from dynamic_mcp.features.cluster.valkey_store import NAMES, PREFIX, Resealed, ValkeyStore
from dynamic_mcp.system.shared_store import (
    Lease,
    Rate,
    StoreFailure,
    StoreSpace,
    StoreUnavailable,
)
from dynamic_mcp.system.store_copies import FRESH_FOR_S, Mirror
from tests.fakes import FakeClock
from tests.features.cluster.replicas import KEY
from tests.features.cluster.store_servers import (
    FaultyProxy,
    StoreServer,
    failure_of,
    faulty_proxy,
    open_valkey,
    reset,
    store_server,
    until,
    until_works,
)
from tests.journeys.remote_server import free_port

pytestmark = pytest.mark.full

PLAIN = StoreSpace("plain")
LISTED = StoreSpace("listed", most_listed=100)
NEWER_KEY = "a-key-of-the-cluster-that-is-long-enough-0002"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StoreServer]:
    with store_server(tmp_path) as running:
        yield running


@pytest.fixture
async def store(server: StoreServer) -> AsyncIterator[ValkeyStore]:
    async with open_valkey(server.address, within_s=1.0) as opened:
        yield opened


@pytest.fixture
async def proxy(server: StoreServer) -> AsyncIterator[FaultyProxy]:
    async with faulty_proxy(server.port) as running:
        yield running


@pytest.fixture
async def store_behind(proxy: FaultyProxy) -> AsyncIterator[ValkeyStore]:
    """A store whose server is behind the proxy that misbehaves."""
    async with open_valkey(proxy.address, within_s=1.0) as opened:
        yield opened


async def check_it_works(store: ValkeyStore) -> None:
    await until_works(lambda: store.put(PLAIN, "healed", b"1", 60))
    assert await store.get(PLAIN, "healed")
    assert store.describe().failure == ""


# --- down ---------------------------------------------------------------------------------------------------


async def test_a_server_that_starts_later_is_found(tmp_path: Path) -> None:
    server = StoreServer(tmp_path)
    async with open_valkey(server.address) as store:
        assert await failure_of(store.get(PLAIN, "a")) is StoreFailure.DOWN
        assert store.describe().failure == "cannot be reached"
        server.start()
        try:
            await check_it_works(store)
        finally:
            server.stop()


async def test_while_a_server_is_down_no_call_asks_it_and_the_log_says_so_once(
    server: StoreServer, store: ValkeyStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dynamic_mcp")
    server.stop()
    await until(lambda: store.describe().failure)
    before = store.describe()
    for _ in range(500):
        assert await failure_of(store.count(PLAIN, [Rate("a", 1, 1)])) is StoreFailure.DOWN
    after = store.describe()
    assert (after.operations, after.refused) == (before.operations, before.refused + 500)
    server.start()
    await check_it_works(store)
    said = [each.getMessage() for each in caplog.records if "store" in each.getMessage()]
    assert len(said) == 2, said
    assert "cannot be reached" in said[0]
    assert "used again" in said[1]


async def test_a_connection_that_is_cut_fails_what_is_in_flight_and_heals(
    proxy: FaultyProxy, store_behind: ValkeyStore
) -> None:
    proxy.flows.clear()
    writing = asyncio.create_task(store_behind.put(PLAIN, "a", b"1", 60))
    await until(lambda: "1 in flight" in repr(store_behind))
    proxy.cut()
    with pytest.raises(StoreUnavailable) as failed:
        await writing
    assert (failed.value.failure, failed.value.may_have_run) == (StoreFailure.DOWN, True)
    proxy.flows.set()
    await check_it_works(store_behind)


def test_a_command_fails_in_order_in_whichever_turn_of_uvloop_its_connection_is_reset(server: StoreServer) -> None:
    uvloop = pytest.importorskip("uvloop", reason="there is no uvloop on this system")

    async def main() -> None:
        async with faulty_proxy(server.port) as proxy, open_valkey(proxy.address) as store:
            for turns in range(10):
                await check_it_works(store)
                proxy.cut()
                for _ in range(turns):
                    await asyncio.sleep(0)
                asked: list[asyncio.Task[object]] = []
                while not store.describe().failure:
                    asked.append(asyncio.create_task(store.get(PLAIN, "a")))
                    await asyncio.sleep(0)
                found = await asyncio.gather(*asked, return_exceptions=True)
                assert {type(each) for each in found} <= {StoreUnavailable}

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_a_sentinel_that_has_reset_its_connection_is_asked_over_another_one_on_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop", reason="there is no uvloop on this system")
    answered: dict[asyncio.StreamWriter, None] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError), closing(writer):
            while received := await reader.read(1 << 16):
                if b"masters" in received.lower():
                    writer.write(b"-ERR knows nothing\r\n")
                    answered[writer] = None
                else:
                    writer.write(b"+OK\r\n")

    async def main() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as sentinel:
            url = f"valkey+sentinel://127.0.0.1:{sentinel.sockets[0].getsockname()[1]}/main"
            async with open_valkey(parse_address(url, Path())) as store:
                await until(lambda: answered)
                reset(next(iter(answered)))
                await until(lambda: len(answered) > 1)
                assert await failure_of(store.get(PLAIN, "a")) in (StoreFailure.DOWN, StoreFailure.NONSENSE)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


# --- slow ---------------------------------------------------------------------------------------------------


async def test_a_server_that_hangs_for_five_seconds_keeps_one_call_waiting_for_a_moment(
    server: StoreServer, store: ValkeyStore
) -> None:
    server.freeze()
    first = asyncio.create_task(failure_of(store.get(PLAIN, "a")))
    assert await asyncio.wait_for(first, 5) is StoreFailure.SLOW
    refused = store.describe().refused
    for _ in range(500):
        assert await failure_of(store.get(PLAIN, "a")) in (StoreFailure.SLOW, StoreFailure.DOWN)
    assert store.describe().refused == refused + 500
    server.thaw()
    await check_it_works(store)


async def test_a_command_that_takes_too_long_in_the_server_does_not_keep_callers(
    server: StoreServer, store: ValkeyStore
) -> None:
    sleeping = asyncio.create_task(asyncio.to_thread(server.ask, "DEBUG", "SLEEP", "2"))
    failures = set()
    while not sleeping.done():
        try:
            async with asyncio.timeout(5):
                await store.get(PLAIN, "a")
        except StoreUnavailable as exc:
            failures.add(exc.failure)
        await asyncio.sleep(0.01)
    await sleeping
    assert failures <= {StoreFailure.SLOW, StoreFailure.DOWN}
    assert StoreFailure.SLOW in failures
    await check_it_works(store)


async def test_a_queue_that_is_full_refuses_further_commands(server: StoreServer, store: ValkeyStore) -> None:
    server.freeze()
    waiting = [asyncio.create_task(store.get(PLAIN, f"{i}")) for i in range(MOST_IN_FLIGHT)]
    await asyncio.sleep(0)
    assert await failure_of(store.get(PLAIN, "one more")) is StoreFailure.BUSY
    assert {type(each) for each in await asyncio.gather(*waiting, return_exceptions=True)} == {StoreUnavailable}
    server.thaw()
    await check_it_works(store)


async def test_a_caller_that_is_cancelled_disturbs_no_other(proxy: FaultyProxy, store_behind: ValkeyStore) -> None:
    for i in range(20):
        await store_behind.put(PLAIN, f"{i}", f"{i}".encode(), 60)
    proxy.flows.clear()
    reading = [asyncio.create_task(store_behind.get(PLAIN, f"{i}")) for i in range(20)]
    await until(lambda: "20 in flight" in repr(store_behind))
    for each in reading[::2]:
        each.cancel()
    proxy.flows.set()
    found = await asyncio.gather(*reading[1::2])
    assert [each and each.value for each in found] == [f"{i}".encode() for i in range(1, 20, 2)]
    assert proxy.connections == 2  # one for commands, one for messages


# --- read only, full, wiped ---------------------------------------------------------------------------------


async def test_a_server_that_became_a_replica_is_not_used_until_it_is_none(
    tmp_path: Path, server: StoreServer, store: ValkeyStore
) -> None:
    with store_server(tmp_path) as other:
        server.ask("REPLICAOF", "127.0.0.1", str(other.port))
        assert await failure_of(store.put(PLAIN, "a", b"1", 60)) is StoreFailure.READ_ONLY
        assert await failure_of(store.get(PLAIN, "a")) is StoreFailure.READ_ONLY
        assert store.describe().failure == "is read only"
        server.ask("REPLICAOF", "NO", "ONE")
        await check_it_works(store)


async def test_a_full_server_still_reads_and_deletes(server: StoreServer, store: ValkeyStore) -> None:
    await store.put(PLAIN, "a", b"1", 60)
    server.ask("CONFIG", "SET", "maxmemory", "1")
    assert await failure_of(store.put(PLAIN, "b", b"1", 60)) is StoreFailure.FULL
    assert await failure_of(store.count(PLAIN, [Rate("b", 1, 1)])) is StoreFailure.FULL
    assert await store.get(PLAIN, "a")
    assert await store.delete(PLAIN, "a")
    await until(lambda: store.describe().failure == "is full")
    server.ask("CONFIG", "SET", "maxmemory", "0")
    await until(lambda: not store.describe().failure)
    await check_it_works(store)


async def test_a_full_server_is_found_by_a_replica_that_starts(server: StoreServer, store: ValkeyStore) -> None:
    await store.put(PLAIN, "a", b"1", 60)
    server.ask("CONFIG", "SET", "maxmemory", "1")
    async with open_valkey(server.address) as other:
        assert await other.get(PLAIN, "a")
        assert other.describe().failure == "is full"


async def test_a_wiped_store_is_noticed_by_the_next_command_and_what_must_last_is_written_again(
    server: StoreServer, store: ValkeyStore
) -> None:
    restored = asyncio.Event()
    store.on_reset(restored.set)
    await store.put(PLAIN, "a", b"1", 60)
    async with open_valkey(server.address) as other:
        other_restored = asyncio.Event()
        other.on_reset(other_restored.set)
        server.ask("FLUSHALL")
        assert await store.get(PLAIN, "a") is None
        await asyncio.wait_for(restored.wait(), 5)
        await store.put(PLAIN, "a", b"again", 60)
        found = await other.get(PLAIN, "a")
        assert found is not None
        assert found.value == b"again"
        await asyncio.wait_for(other_restored.wait(), 5)
        async with open_valkey(server.address) as third:
            assert await third.get(PLAIN, "a") == found


async def test_a_replica_that_starts_right_after_a_wipe_agrees_with_the_others(
    server: StoreServer, store: ValkeyStore
) -> None:
    server.ask("FLUSHALL")
    async with open_valkey(server.address) as new:
        await new.put(PLAIN, "a", b"1", 60)
        assert await store.get(PLAIN, "a") == await new.get(PLAIN, "a")


async def test_a_wipe_is_noticed_without_a_command(server: StoreServer, store: ValkeyStore) -> None:
    restored = asyncio.Event()
    store.on_reset(restored.set)
    server.ask("FLUSHALL")
    await asyncio.wait_for(restored.wait(), 10)


async def test_after_an_outage_what_must_last_is_written_again_once_that_works(
    server: StoreServer, store: ValkeyStore
) -> None:
    revoked: list[asyncio.Task[object]] = []

    def restore() -> None:
        revoked.append(asyncio.create_task(store.put(LISTED, "family", b"revoked", 60)))

    store.on_reset(restore)
    server.stop()
    await until(lambda: store.describe().failure)
    server.start()
    await until(lambda: revoked)
    await revoked[0]
    assert await store.get(LISTED, "family")


async def test_a_function_that_fails_keeps_no_other_from_hearing(
    server: StoreServer, store: ValkeyStore, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[bytes | None] = []

    def fail(message: bytes | None) -> None:
        raise LookupError("a bug of a listener")

    store.subscribe(PLAIN, fail)
    store.subscribe(PLAIN, heard.append)
    await until(lambda: None in heard)
    await store.publish(PLAIN, b"hello")
    await until(lambda: b"hello" in heard)
    assert "a bug of a listener" in caplog.text


async def test_entries_that_are_too_large_together_are_not_listed_and_the_store_goes_on(store: ValkeyStore) -> None:
    for i in range(5):
        await store.put(LISTED, f"{i}", bytes(1 << 20), 60)
    assert await failure_of(store.list_entries(LISTED)) is StoreFailure.FULL
    assert store.describe().failure == ""


async def test_a_server_that_forgot_its_scripts_gets_them_again(server: StoreServer, store: ValkeyStore) -> None:
    await store.put(PLAIN, "a", b"1", 60)
    server.ask("SCRIPT", "FLUSH")
    await store.put(PLAIN, "a", b"2", 60)
    found = await store.get(PLAIN, "a")
    assert found is not None
    assert found.value == b"2"


# --- nonsense, other versions, other users --------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        b"hello\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"$99999999999999999999\r\n",
        b"$-7\r\n",
        b":1\r\n:2\r\n:3\r\n",
        b"*x\r\n",
        b"*1\r\n" * 3000,
        b"-ERR what\r\n",
        b"+OK\r\n",
        b"*2\r\n$2\r\nok\r\n$2\r\nok\r\n",
        b"\0" * 100 + b"\r\n",
        b"$-1\r\n",
    ],
)
async def test_an_answer_that_is_nonsense_fails_one_command_and_heals(
    proxy: FaultyProxy, store_behind: ValkeyStore, answer: bytes
) -> None:
    proxy.answer = lambda data: answer
    operations = (
        lambda: store_behind.get(PLAIN, "a"),
        lambda: store_behind.put(LISTED, "a", b"1", 60),
        lambda: store_behind.take(PLAIN, "a"),
        lambda: store_behind.list_entries(LISTED),
        lambda: store_behind.count_changes([LISTED]),
        lambda: store_behind.count(PLAIN, [Rate("a", 1, 1)]),
        lambda: store_behind.acquire(PLAIN, [Lease("a", 1)], "ann", 60),
        lambda: store_behind.renew(PLAIN, [Lease("a", 1)], "ann", 60),
    )
    for operation in operations:
        async with asyncio.timeout(5):
            await failure_of(operation())
    proxy.answer = bytes
    await check_it_works(store_behind)


async def test_a_store_of_other_keys_is_left_alone(server: StoreServer, store: ValkeyStore) -> None:
    await store.put(PLAIN, "a", b"1", 60)
    async with open_valkey(server.address, [NEWER_KEY]) as stranger:
        assert await failure_of(stranger.get(PLAIN, "a")) is StoreFailure.FOREIGN
        assert await failure_of(stranger.put(PLAIN, "a", b"2", 60)) is StoreFailure.FOREIGN
    found = await store.get(PLAIN, "a")
    assert found is not None
    assert found.value == b"1"


async def test_another_form_of_what_is_sealed_is_not_misread(server: StoreServer, store: ValkeyStore) -> None:
    await store.put(PLAIN, "a", b"1", 60)
    key = next(each for each in server.ask("KEYS", "*:e:*").split())
    server.ask("SET", key, "\x02something of another version that this one cannot know")
    assert await failure_of(store.get(PLAIN, "a")) is StoreFailure.FOREIGN
    server.ask("SET", NAMES.decode(), "\x02something")
    async with open_valkey(server.address) as new:
        assert await failure_of(new.get(PLAIN, "a")) is StoreFailure.FOREIGN


async def test_an_entry_is_not_read_in_the_place_of_another(server: StoreServer, store: ValkeyStore) -> None:
    await store.put(PLAIN, "a", b"1", 60)
    (key,) = server.ask("KEYS", "*:e:*").split()
    await store.put(PLAIN, "b", b"2", 60)
    other = next(each for each in server.ask("KEYS", "*:e:*").split() if each != key)
    server.ask("COPY", other, key, "REPLACE")
    assert await failure_of(store.get(PLAIN, "a")) is StoreFailure.FOREIGN


async def test_a_wrong_password_and_a_user_who_may_not_are_refused(server: StoreServer) -> None:
    server.ask("ACL", "SETUSER", "reader", "on", ">secret", "~*", "&*", "+@read", "+select")
    server.ask("CONFIG", "SET", "requirepass", "secret")
    for login in ("reader:wrong", "reader:secret", "", ":wrong"):
        url = f"valkey://{login}@127.0.0.1:{server.port}"
        async with open_valkey(parse_address(url, Path())) as store:
            assert await failure_of(store.put(PLAIN, "a", b"1", 60)) is StoreFailure.REFUSED
            assert "secret" not in repr(store) + store.describe().where
    async with open_valkey(parse_address(f"valkey://:secret@127.0.0.1:{server.port}", Path())) as store:
        await check_it_works(store)


# --- what is in the server ------------------------------------------------------------------------------------


async def test_nothing_that_is_written_can_be_read_and_all_of_it_expires(
    server: StoreServer, store: ValkeyStore
) -> None:
    heard: list[bytes | None] = []
    store.subscribe(LISTED, heard.append)
    await store.put(LISTED, "ann@example.com", b"a-secret", 60)
    await store.put(PLAIN, "ann@example.com", b"a-secret", 60)
    await store.count(PLAIN, [Rate("ann@example.com", 60, 60)])
    await store.acquire(PLAIN, [Lease("ann@example.com", 2)], "ann@example.com", 60)
    keys = server.ask("KEYS", "*").split()
    assert all(each.startswith(PREFIX.decode()) for each in keys)
    dumps = "".join(f"{each} {server.ask('DUMP', each)}" for each in keys)
    assert "ann" not in dumps
    assert "a-secret" not in dumps
    lasting = {each for each in keys if server.ask("TTL", each).strip() == "-1"}
    assert lasting == {"dynamic-mcp:1:epoch", "dynamic-mcp:1:names"}


async def test_messages_of_another_service_are_not_heard(server: StoreServer, store: ValkeyStore) -> None:
    heard: list[bytes | None] = []
    store.subscribe(PLAIN, heard.append)
    await until(lambda: server.ask("PUBSUB", "NUMSUB", "dynamic-mcp:1:messages:0").split()[-1] == "1")
    server.ask("PUBLISH", "dynamic-mcp:1:messages:0", "forged")
    await store.publish(PLAIN, b"true")
    await until(lambda: b"true" in heard)
    assert [each for each in heard if each is not None] == [b"true"]


async def test_keys_are_replaced_while_replicas_go_on(server: StoreServer) -> None:
    steps = ([KEY], [KEY, NEWER_KEY], [NEWER_KEY, KEY], [NEWER_KEY])
    async with AsyncExitStack() as stack:
        old = await stack.enter_async_context(open_valkey(server.address, steps[0]))
        await old.put(PLAIN, "a", b"1", 60)
        for keys in steps[1:3]:
            new = await stack.enter_async_context(open_valkey(server.address, keys))
            found = await new.get(PLAIN, "a")
            assert found is not None
            await new.compare_and_set(PLAIN, "a", b"1", 60, expected=found.version)
            taken = [await each.count(PLAIN, [Rate(f"{keys}", 1000, 1000)]) for each in (old, new, old)]
            assert [each is None for each in taken] == [True, True, False]
            old = new
        newest = await stack.enter_async_context(open_valkey(server.address, steps[3]))
        assert await newest.get(PLAIN, "a") == await old.get(PLAIN, "a")


async def test_what_an_old_key_has_sealed_is_sealed_anew_while_replicas_go_on(server: StoreServer) -> None:
    async with open_valkey(server.address, [KEY]) as old, open_valkey(server.address, [NEWER_KEY, KEY]) as both:
        mirror = Mirror(both, LISTED)
        keeping = asyncio.create_task(mirror.run())
        try:
            await old.put(PLAIN, "a", b"1", 60)
            await old.put(LISTED, "b", b"2", 60)
            await both.put(PLAIN, "c", b"3", 60)
            await until(lambda: mirror.get("b"))
            before = mirror.get("b")
            assert await both.reseal() == Resealed(found=3, resealed=2, unreadable=0)
            await until(lambda: mirror.get("b") != before)
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
        assert await both.reseal() == Resealed(found=3, resealed=0, unreadable=0)
    async with open_valkey(server.address, [NEWER_KEY]) as new:
        values = [each and each.value for each in [await new.get(PLAIN, "a"), await new.get(PLAIN, "c")]]
        assert values == [b"1", b"3"]
        assert [(each.name, each.value) for each in await new.list_entries(LISTED)] == [("b", b"2")]
    lasts_ms = [int(server.ask("PTTL", each)) for each in server.ask("KEYS", "dynamic-mcp:1:e:*").split()]
    assert all(50_000 < each <= 60_000 for each in lasts_ms)


async def test_what_no_key_opens_is_left_alone_and_counted(server: StoreServer, store: ValkeyStore) -> None:
    await store.put(PLAIN, "a", b"1", 60)
    server.ask("SET", "dynamic-mcp:1:e:plain:forged", "forged")
    assert await store.reseal() == Resealed(found=2, resealed=0, unreadable=1)
    assert server.ask("GET", "dynamic-mcp:1:e:plain:forged").strip() == "forged"


# --- copies -------------------------------------------------------------------------------------------------


async def test_a_mirror_is_stale_a_second_after_its_store_was_lost(server: StoreServer, store: ValkeyStore) -> None:
    clock = FakeClock()
    mirror = Mirror(store, LISTED, clock=clock)
    await store.put(LISTED, "family", b"1", 60)
    await mirror.refresh()
    freshness = [mirror.is_fresh]
    server.stop()
    clock.time += FRESH_FOR_S + 0.001
    freshness.append(mirror.is_fresh)
    await failure_of(mirror.refresh())
    freshness.append(mirror.is_fresh)
    assert freshness == [True, False, False]
    assert mirror.get("family")


async def test_a_mirror_learns_of_a_change_whose_message_was_lost(
    server: StoreServer, proxy: FaultyProxy, store_behind: ValkeyStore
) -> None:
    mirror = Mirror(store_behind, LISTED)
    keeping = asyncio.create_task(mirror.run())
    try:
        await until(lambda: mirror.is_fresh)
        proxy.answer = lambda data: b"" if b"message" in data else data  # messages never arrive
        async with open_valkey(server.address) as other:
            await other.put(LISTED, "family", b"revoked", 60)
            await until(lambda: mirror.get("family"))
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])


async def test_a_new_way_for_messages_says_that_some_may_be_lost(server: StoreServer, store: ValkeyStore) -> None:
    heard: list[bytes | None] = []
    store.subscribe(PLAIN, heard.append)
    await until(lambda: server.ask("PUBSUB", "NUMSUB", "dynamic-mcp:1:messages:0").split()[-1] == "1")
    await until(lambda: None in heard)
    heard.clear()
    server.ask("CLIENT", "KILL", "TYPE", "pubsub")
    await until(lambda: None in heard)


# --- ways to a server -----------------------------------------------------------------------------------------


async def test_a_socket_is_connected_to(tmp_path: Path) -> None:
    socket = tmp_path / "valkey.sock"
    with store_server(tmp_path, "redis-server", "--unixsocket", str(socket)):
        async with open_valkey(parse_address(f"unix://{socket}?db=2", tmp_path)) as store:
            await check_it_works(store)


async def test_databases_of_one_server_are_apart(server: StoreServer, store: ValkeyStore) -> None:
    heard: list[bytes | None] = []
    store.subscribe(PLAIN, heard.append)
    await store.put(PLAIN, "a", b"1", 60)
    async with open_valkey(parse_address(f"valkey://127.0.0.1:{server.port}/1", Path()), [NEWER_KEY]) as other:
        assert await other.get(PLAIN, "a") is None
        await other.publish(PLAIN, b"of the other")
        await store.publish(PLAIN, b"own")
        await until(lambda: b"own" in heard)
        assert b"of the other" not in heard


async def test_a_port_where_nothing_listens_is_not_a_store() -> None:
    async with open_valkey(parse_address(f"valkey://127.0.0.1:{free_port()}", Path())) as store:
        assert await failure_of(store.publish(PLAIN, b"")) is StoreFailure.DOWN
