"""The records of sessions that replicas share: who has a session, and who may go on with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp.face.http import session_records
from dynamic_mcp.face.http.paths import Route, ServedEndpoint
from dynamic_mcp.face.http.session_records import REPLICAS, SESSIONS, SessionRecord, SessionRecords
from dynamic_mcp.identity import Principal
from dynamic_mcp.system.shared_store import SharedStore
from tests.features.cluster.store_servers import until, until_true
from tests.features.shared_stores import StorePair

ANN = Principal("token", "ann")
ROUTE = Route(ServedEndpoint.MCP)
Make = Callable[..., SessionRecords]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_records, "ALIVE_FOR_S", 1.0)
    monkeypatch.setattr(session_records, "_SAY_EVERY_S", 0.1)
    monkeypatch.setattr(session_records, "_LOOK_EVERY_S", 0.05)


@pytest.fixture
async def moved() -> list[str]:
    """The sessions that a replica has heard of as moved."""
    return []


@pytest.fixture
async def make(moved: list[str]) -> AsyncIterator[Make]:
    made: list[SessionRecords] = []

    def make(store: SharedStore, name: str) -> SessionRecords:
        records = SessionRecords(store, name, f"process of {name}", 3600, moved.append)
        made.append(records)
        return records

    yield make
    for each in made:
        each.end()


def record_of(records: SessionRecords, **changes: object) -> SessionRecord:
    record = SessionRecord(
        records.name, records.process, ANN.issuer, ANN.subject, None, None, "2025-11-25", Raw(b"{}"), Raw(b"{}")
    )
    return replace(record, **changes)


async def write(records: SessionRecords, id: str = "s") -> None:
    records.write(id, record_of(records))
    await until(lambda: records.has(id))


async def is_alive(store: SharedStore, name: str) -> bool:
    entry = await store.get(REPLICAS, name)
    return entry is not None and bool(entry.value)


async def test_a_session_of_a_replica_that_is_alive_stays_there(store_pair: StorePair, make: Make) -> None:
    a, b = make(store_pair[0], "a"), make(store_pair[1], "b")
    await write(a)
    assert await b.claim("s", ANN, ROUTE) == "a"


async def test_of_those_that_go_on_with_a_session_one_has_it(store_pair: StorePair, make: Make) -> None:
    a = make(store_pair[0], "a")
    await write(a)
    await a.leave()
    others = [make(store_pair[number], name) for number, name in ((0, "b"), (1, "c"))]
    found = await asyncio.gather(*(each.claim("s", ANN, ROUTE) for each in others))
    claimed = [each for each in found if isinstance(each, SessionRecord)]
    assert len(claimed) == 1
    assert [each for each in found if each is not claimed[0]] == [claimed[0].replica]
    assert claimed[0].moves == 1


async def test_a_replica_that_was_silent_hears_that_its_session_is_elsewhere(
    store_pair: StorePair, make: Make, moved: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_records, "_SAY_EVERY_S", 60.0)
    a = make(store_pair[0], "a")
    await write(a)
    monkeypatch.setattr(session_records, "_SAY_EVERY_S", 0.1)
    b = make(store_pair[1], "b")
    found = await b.claim("s", ANN, ROUTE)
    assert isinstance(found, SessionRecord), "the first one has not said anything for long"
    a.renew("s")
    await until(lambda: moved == ["s"])
    assert not a.has("s")


@pytest.mark.parametrize(
    ("principal", "route"),
    [(Principal("token", "bob"), ROUTE), (ANN, replace(ROUTE, only="up")), (ANN, replace(ROUTE, profile="p"))],
)
async def test_a_session_of_another_user_or_path_is_none(
    store_pair: StorePair, make: Make, principal: Principal, route: Route
) -> None:
    a, b = make(store_pair[0], "a"), make(store_pair[1], "b")
    await write(a)
    await a.leave()
    assert await b.claim("s", principal, route) is None
    assert isinstance(await b.claim("s", ANN, ROUTE), SessionRecord)


async def test_a_session_that_has_ended_has_no_record(store_pair: StorePair, make: Make) -> None:
    a = make(store_pair[0], "a")
    await write(a)
    a.write("s", None)
    await until(lambda: not a.has("s"))
    assert await store_pair[1].get(SESSIONS, "s") is None


async def test_a_large_record_is_not_written(store_pair: StorePair, make: Make) -> None:
    a = make(store_pair[0], "a")
    a.write("s", record_of(a, uris=("u" * session_records.MOST_BYTES,)))
    await write(a, "other")
    assert await store_pair[1].get(SESSIONS, "s") is None


async def test_a_replica_that_leaves_says_so_at_once(store_pair: StorePair, make: Make) -> None:
    a = make(store_pair[0], "a")
    await until_true(lambda: is_alive(store_pair[1], "a"))
    await a.leave()
    assert not await is_alive(store_pair[1], "a")


async def test_a_session_of_a_replica_that_has_left_goes_on_at_one_that_has_just_begun(
    store_pair: StorePair, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = make(store_pair[0], "a")
    await write(a)
    await a.leave()
    monkeypatch.setattr(session_records, "ALIVE_FOR_S", 3600.0)  # what it has not heard by itself tells nothing
    assert isinstance(await make(store_pair[1], "b").claim("s", ANN, ROUTE), SessionRecord)
