"""A script that waits for its modern client at one replica goes on at another one when that has ended, once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from dynamic_mcp.features.cluster.local_store import LocalStore
from dynamic_mcp.features.scripts import suspended_entries
from dynamic_mcp.features.scripts.suspended import SuspendedScript, SuspendedScripts
from dynamic_mcp.features.scripts.suspended_entries import SCRIPTS, SuspendedEntries
from dynamic_mcp.mcp.envelope import StateRefused
from dynamic_mcp.system.shared_store import StoredEntry, StoreFailure, StoreSpace, StoreUnavailable, Version
from dynamic_mcp.system.store_writer import MOST_BYTES_OF_ONE
from tests.fakes import FakeClock, Json
from tests.features.approvals.scene import READ_S, accept
from tests.features.scripts.scene import Scene, patiently
from tests.features.scripts.test_script_restart import (
    MIDDLE,
    answering,
    ask,
    asking_scene,
    end,
    numbers,
    reason,
    run,
)
from tests.modern_client import ModernClient, retry_of

SCRIPT = SuspendedScript(b"state", {}, {}, [], 0.0, time.time(), "", "", {}, [], "")
ONE_CALL = 'tool = "echo"\nreturn await call("other", tool, {"n": 2})'


class FailingStore(LocalStore):
    """A store that fails while it `is_down`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_down = False
        self.was_asked = asyncio.Event()

    async def get(self, space: StoreSpace, name: str) -> StoredEntry | None:
        self.was_asked.set()
        self._check()
        return await super().get(space, name)

    async def compare_and_set(
        self, space: StoreSpace, name: str, value: bytes, ttl_s: float, *, expected: Version
    ) -> Version | None:
        self._check()
        return await super().compare_and_set(space, name, value, ttl_s, expected=expected)

    def _check(self) -> None:
        if self.is_down:
            raise StoreUnavailable(StoreFailure.DOWN)


class LateStore(LocalStore):
    """A store that fails to answer writes while it `is_slow`; they `arrive` afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.is_slow = False
        self._late: list[Callable[[], Awaitable[object]]] = []

    async def compare_and_set(
        self, space: StoreSpace, name: str, value: bytes, ttl_s: float, *, expected: Version
    ) -> Version | None:
        write = partial(super().compare_and_set, space, name, value, ttl_s, expected=expected)
        if not self.is_slow:
            return await write()
        self._late.append(write)
        raise StoreUnavailable(StoreFailure.SLOW, may_have_run=True)

    async def put(self, space: StoreSpace, name: str, value: bytes, ttl_s: float) -> Version:
        write = partial(super().put, space, name, value, ttl_s)
        if not self.is_slow:
            return await write()
        self._late.append(write)
        raise StoreUnavailable(StoreFailure.SLOW, may_have_run=True)

    async def arrive(self) -> None:
        for write in self._late:
            await write()


class Replicas:
    """Proxies that share a store, each with a client and servers of its own, and with `folders` of their state."""

    def __init__(self, store: FailingStore, *folders: Path | None) -> None:
        self.store = store
        self.clocks = [FakeClock() for _ in folders]
        self.scenes = [asking_scene(*each) for each in zip(folders, self.clocks, strict=True)]
        self.clients = [ModernClient(scene.proxy) for scene in self.scenes]
        for scene in self.scenes:
            scene.proxy.set_shared_store(store)

    async def end(self, number: int) -> None:
        await end(self.scenes[number], self.clients[number])

    async def park(self, code: str = MIDDLE) -> Json:
        """Have a script wait for an approval at the first one; return the answer to its client."""
        answer = await ask(self.clients[0], run(code))
        assert answer["result"]["resultType"] == "input_required", answer
        return answer

    async def allow(self, number: int, asked: Json, code: str = MIDDLE) -> Json:
        """Come back to one of the replicas with an approval, and return what it answers."""
        await self.clocks[number].pass_(READ_S)
        return await ask(self.clients[number], {**run(code), **retry_of(asked, accept("once"))})

    async def count_entries(self) -> int:
        return len([each async for each in self.store.scan(SCRIPTS) if each.value != b"used"])

    def sent(self, number: int) -> int:
        """Return how many calls the server that wants an approval has got from a replica."""
        return len(self.scenes[number].other.heard("tools/call"))


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Replicas]:
    store = FailingStore()
    both = Replicas(store, tmp_path / "a", tmp_path / "b")
    yield both
    store.is_down = False
    for number in (0, 1):
        await both.end(number)
    await store.close()


def value_of(done: Json) -> Json:
    """Return the value that is the result of a script."""
    assert "result" in done, done
    assert not done["result"].get("isError"), done
    return json.loads(done["result"]["content"][0]["text"])


async def test_a_script_goes_on_at_another_replica_that_shares_no_disk(pair: Replicas) -> None:
    parked = await pair.park()
    await pair.end(0)
    asked = await pair.allow(1, parked)
    assert asked["result"]["resultType"] == "input_required"  # an approval is given to one replica
    assert pair.sent(1) == 0
    assert value_of(await pair.allow(1, asked)) == [1, 2, 3]
    assert (numbers(pair.scenes[0]), numbers(pair.scenes[1])) == ([1], [3])  # the first was done before
    assert (pair.sent(0), pair.sent(1)) == (0, 1)
    assert await pair.count_entries() == 0


async def test_a_script_that_has_not_begun_begins_at_another_replica(pair: Replicas) -> None:
    code = 'return await call("up", "echo", {"n": 1})'
    parked = await pair.park(code)
    await pair.end(0)
    asked = await pair.allow(1, parked, code)
    (question,) = asked["result"]["inputRequests"].values()
    assert "Allow a script?" in question["params"]["message"]
    assert value_of(await pair.allow(1, asked, code)) == 1


async def test_a_replica_without_a_state_folder_keeps_scripts_too() -> None:
    store = FailingStore()
    pair = Replicas(store, None, None)
    parked = await pair.park()
    await pair.end(0)
    asked = await pair.allow(1, parked)
    assert value_of(await pair.allow(1, asked)) == [1, 2, 3]
    await pair.end(1)
    await store.close()


async def test_a_script_that_another_replica_has_taken_ends_where_it_was_and_sends_nothing_there(
    pair: Replicas,
) -> None:
    parked = await pair.park()
    asked = await ask(pair.clients[1], {**run(MIDDLE), **retry_of(parked)})  # it could not reach the first
    assert asked["result"]["resultType"] == "input_required"
    failed = await pair.allow(0, parked)
    assert failed["result"]["isError"]
    assert "another replica goes on with it" in failed["result"]["content"][0]["text"]
    assert pair.sent(0) == 0
    assert value_of(await pair.allow(1, asked)) == [1, 2, 3]


async def test_a_script_that_has_not_begun_begins_at_one_replica_only(pair: Replicas) -> None:
    code = 'return await call("up", "echo", {"n": 1})'
    parked = await pair.park(code)
    asked = await ask(pair.clients[1], {**run(code), **retry_of(parked)})
    failed = await pair.allow(0, parked, code)
    assert "another replica goes on with it" in failed["result"]["content"][0]["text"]
    assert pair.scenes[0].upstream.heard("tools/call") == []
    assert value_of(await pair.allow(1, asked, code)) == 1


async def test_of_all_that_come_back_at_once_one_goes_on(pair: Replicas) -> None:
    parked = await pair.park()
    await pair.end(0)
    again = {**run(MIDDLE), **retry_of(parked)}
    ids = [pair.clients[1].begin("tools/call", again) for _ in range(3)]
    answers = [await patiently(pair.clients[1].answer_to, id) for id in ids]
    assert sorted("result" in each for each in answers) == [False, False, True]
    assert {reason(each) for each in answers if "error" in each} == {"used"}


async def test_what_was_kept_is_gone_when_the_script_goes_on_where_it_was(pair: Replicas) -> None:
    parked = await pair.park()
    assert await pair.count_entries() == 1
    assert value_of(await pair.allow(0, parked)) == [1, 2, 3]
    assert await pair.count_entries() == 0
    assert reason(await pair.allow(1, parked)) == "restarted"
    assert pair.sent(1) == 0


async def test_a_script_does_not_go_on_before_what_was_kept_is_gone(pair: Replicas) -> None:
    parked = await pair.park(ONE_CALL)
    pair.store.is_down = True
    await pair.clocks[0].pass_(READ_S)
    id = pair.clients[0].begin("tools/call", {**run(ONE_CALL), **retry_of(parked, accept("once"))})
    await patiently(pair.store.was_asked.wait)
    assert pair.sent(0) == 0
    pair.store.is_down = False
    await pair.clocks[0].pass_(1.0)
    assert value_of(await patiently(pair.clients[0].answer_to, id)) == 2
    assert pair.sent(0) == 1


async def test_a_script_ends_if_what_was_kept_cannot_be_removed(pair: Replicas) -> None:
    parked = await pair.park(ONE_CALL)
    pair.store.is_down = True
    await pair.clocks[0].pass_(READ_S)
    id = pair.clients[0].begin("tools/call", {**run(ONE_CALL), **retry_of(parked, accept("once"))})
    done: asyncio.Future[Json] = asyncio.ensure_future(patiently(pair.clients[0].answer_to, id))
    while not done.done():
        await pair.clocks[0].pass_(1.0)
    assert "another replica may go on with it: the shared store cannot be reached" in json.dumps(await done)
    assert pair.sent(0) == 0


@pytest.mark.parametrize("is_removal_slow", [False, True])
async def test_a_write_that_comes_after_its_script_has_gone_on_lets_none_go_on_again(
    *, is_removal_slow: bool
) -> None:
    store = LateStore()
    entries, others = SuspendedEntries(store), SuspendedEntries(store)
    store.is_slow = True
    with pytest.raises(StoreUnavailable):
        await entries.write("a", b"script")
    if is_removal_slow:
        with pytest.raises(StoreUnavailable):
            await entries.forget("a")
    store.is_slow = False
    await entries.forget("a")
    await store.arrive()
    with pytest.raises(StateRefused):
        await others.take("a", bytes)
    assert not await entries.write("a", b"script")
    await store.close()


async def test_a_script_that_has_become_too_long_to_be_kept_goes_on() -> None:
    store = LocalStore()
    entries = SuspendedEntries(store)
    assert await entries.write("a", b"script")
    await entries.forget("a")
    assert not await entries.write("a", bytes(MOST_BYTES_OF_ONE + 1))
    await entries.forget("a")
    await store.close()


async def test_what_is_kept_is_removed_by_way_of_a_store_that_was_opened_again(tmp_path: Path) -> None:
    stores = [LocalStore(tmp_path / "store"), LocalStore(tmp_path / "store"), LocalStore(tmp_path / "another")]
    scripts = SuspendedScripts(None, lambda: stores[0])
    names = [await scripts.write(SCRIPT, b"") for _ in range(2)]
    await stores.pop(0).close()
    await scripts.forget(names[0])
    with pytest.raises(StateRefused):
        await scripts.take(names[0], b"")
    others = SuspendedScripts(None, lambda: stores[0])

    scripts = SuspendedScripts(None, lambda: stores[-1])
    with pytest.raises(StateRefused):  # others may take it from where it is
        await scripts.forget(names[1])
    assert await others.take(names[1], b"") == SCRIPT
    for store in stores:
        await store.close()


async def test_a_store_that_was_emptied_keeps_no_script_from_going_on(pair: Replicas) -> None:
    parked = await pair.park()
    async for each in pair.store.scan(SCRIPTS):
        await pair.store.delete(SCRIPTS, each.name)
    assert value_of(await pair.allow(0, parked)) == [1, 2, 3]


async def test_a_replica_that_cannot_reach_the_store_says_so_and_can_be_asked_again(pair: Replicas) -> None:
    parked = await pair.park()
    await pair.end(0)
    pair.store.is_down = True
    said = await ask(pair.clients[1], {**run(MIDDLE), **retry_of(parked)})
    assert "the script cannot go on here: the shared store cannot be reached" in json.dumps(said)
    pair.store.is_down = False
    asked = await pair.allow(1, parked)
    assert value_of(await pair.allow(1, asked)) == [1, 2, 3]


@pytest.mark.parametrize("why", ["the store is down", "it is long", "there are many"])
async def test_what_the_store_does_not_take_is_kept_on_disk(
    pair: Replicas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "the store is down":
        pair.store.is_down = True
    else:
        monkeypatch.setattr(suspended_entries, "MOST_BYTES" if why == "there are many" else "MOST_BYTES_OF_ONE", 100)
    parked = await pair.park()
    pair.store.is_down = False
    assert await pair.count_entries() == 0
    assert len([*(tmp_path / "a" / "scripts").glob("*.script")]) == 1
    assert value_of(await pair.allow(0, parked)) == [1, 2, 3]
    assert [*(tmp_path / "a" / "scripts").glob("*.script")] == []


async def test_what_is_kept_cannot_be_read_without_the_state_of_the_client(pair: Replicas) -> None:
    parked = await pair.park(MIDDLE + '  # "a secret word"')
    (entry,) = [each async for each in pair.store.scan(SCRIPTS)]
    assert b"secret" not in entry.value
    assert entry.name in parked["result"]["requestState"]
    assert parked["result"]["requestState"].rpartition("-")[2] not in entry.name


async def test_a_script_without_a_client_that_comes_back_is_not_written(tmp_path: Path) -> None:
    store = FailingStore()
    scene = Scene(answering, state_folder=tmp_path)
    scene.proxy.set_shared_store(store)
    client = ModernClient(scene.proxy)
    assert value_of(await ask(client, run("return 1"))) == 1
    assert not store.was_asked.is_set()
    assert [each async for each in store.scan(SCRIPTS)] == []
    await end(scene, client)
    await store.close()
