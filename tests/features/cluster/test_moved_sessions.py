"""A session whose replica has ended goes on at another one, where its servers do not know it apart."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.face.http import session_records
from dynamic_mcp.face.http.session_records import REPLICAS, SESSIONS, SessionRecord, SessionRecords
from dynamic_mcp.features.approvals.client import ApprovalClient
from dynamic_mcp.features.approvals.config import Approval, Notify
from dynamic_mcp.features.approvals.store import FOLDER, ApprovalDecision
from tests.fakes import BOUND_S, Json, text_of
from tests.features.cluster.replicas import BEARER, KEY, Replica, as_user, replicas
from tests.features.cluster.store_servers import store_server, until, until_true
from tests.http_client import HttpClient
from tests.http_program import serving_http
from tests.journeys.remote_server import free_port
from tests.mcp_client import McpClient, Refused
from tests.policy.rules import access_of
from tests.upstreams.full import Options
from tests.upstreams.full_http import FullHttp


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a replica that has ended be missed soon."""
    monkeypatch.setattr(session_records, "ALIVE_FOR_S", 1.0)
    monkeypatch.setattr(session_records, "_SAY_EVERY_S", 0.1)
    monkeypatch.setattr(session_records, "_LOOK_EVERY_S", 0.05)


def store_in(folder: Path) -> str:
    return (folder / "shared" / "store.sqlite").as_uri().replace("file:", "sqlite:")


class Service:
    """Replicas in front of one server over HTTP, which share a store."""

    def __init__(self, running: list[Replica], upstream: str) -> None:
        self.replicas = running
        self.upstream = upstream
        self.connections: list[HttpClient] = []

    def __getitem__(self, name: str) -> Replica:
        return next(each for each in self.replicas if each.name == name)

    async def begin(self, name: str = "a", *, path: str = "/mcp", info: str = "test") -> McpClient:
        """Begin a session at a replica, and wait until others could go on with it."""
        client = self.client(name, path)
        await client.initialize(name=info)
        await until_true(lambda: self.has_record(client))
        return client

    def client(self, name: str, path: str = "/mcp") -> McpClient:
        return McpClient(self.connect(self[name].url), path, headers=as_user("ann"))

    def connect(self, url: str) -> HttpClient:
        http = HttpClient(url)
        self.connections.append(http)
        return http

    async def has_record(self, client: McpClient) -> bool:
        return await self.record_of(client) is not None

    async def record_of(self, client: McpClient) -> SessionRecord | None:
        store = self.replicas[-1].proxy.shared_store
        assert store is not None
        entry = await store.get(SESSIONS, client.id)
        return None if entry is None else entry.read(SessionRecord)

    async def move(self, client: McpClient, name: str) -> None:
        """Let the next requests of a client go to another replica."""
        client.http = self.connect(self[name].url)


@contextlib.asynccontextmanager
async def serving(*names: str, store: str, **more: Any) -> AsyncIterator[Service]:  # Any: as `replicas` takes it
    async with (
        FullHttp(Options(), older=False).listening() as url,
        replicas(*names, auth=(BEARER,), upstream=url, **more) as running,
    ):
        for each in running:
            await each.apply(store=store)
        service = Service(running, url)
        for each in running:
            await until_true(lambda replica=each: _has_said(replica))  # type: ignore[misc]  # of this loop
        try:
            yield service
        finally:
            for http in service.connections:
                await http.close()


async def _has_said(replica: Replica) -> bool:
    store = replica.proxy.shared_store
    assert store is not None
    return await store.get(REPLICAS, replica.name) is not None


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with serving("a", "b", store=store_in(tmp_path)) as service:
        yield service


async def say(client: McpClient, text: str) -> str:
    answer = await client.call("up", "echo", {"text": text})
    return text_of(answer["result"])


async def status_of_call(client: McpClient) -> int:
    with pytest.raises(Refused) as refused:
        await say(client, "x")
    return refused.value.status


def crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let replicas end without a word, as if they were killed."""

    async def leave(records: SessionRecords) -> None:
        records.end()

    monkeypatch.setattr(SessionRecords, "leave", leave)


async def test_a_session_goes_on_when_its_replica_has_ended(service: Service) -> None:
    client = await service.begin()
    assert await say(client, "one") == "one"
    await service["a"].close()
    await service.move(client, "b")
    assert [await say(client, text) for text in ("two", "three")] == ["two", "three"]
    record = await service.record_of(client)
    assert record is not None
    assert (record.replica, record.moves) == ("b", 1)


async def test_a_session_goes_on_when_its_replica_was_killed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await service.begin()
    crash(monkeypatch)
    await service["a"].close()
    await service.move(client, "b")
    assert await asyncio.gather(*(say(client, f"{n}") for n in range(5))) == [f"{n}" for n in range(5)]


async def test_what_the_client_has_said_goes_with_it(service: Service) -> None:
    client = await service.begin(info="a client of its own")
    await client.request("logging/setLevel", {"level": "warning"})
    listed = await client.request("resources/list")
    uri = listed["result"]["resources"][0]["uri"]
    await client.request("resources/subscribe", {"uri": uri})

    async def is_recorded() -> bool:
        record = await service.record_of(client)
        return record is not None and record.uris == (uri,) and record.level == "warning"

    await until_true(is_recorded)
    await service["a"].close()
    await service.move(client, "b")
    await say(client, "x")
    moved = next(iter(service["b"].proxy.clients))
    assert moved.hello.name == "a client of its own"
    await until(lambda: service["b"].proxy.find_wishes(moved) == ("warning", (uri,)))


async def test_a_client_that_listens_goes_on_listening(service: Service) -> None:
    client = await service.begin()
    stream = await client.listen()
    service["a"].proxy.complain("before")
    async with asyncio.timeout(BOUND_S):
        assert "before" in str(await stream.hear("notifications/message"))
        await service["a"].close()
        await service.move(client, "b")
        await client.resume(stream)
        service["b"].proxy.complain("hello")
        assert "hello" in str(await stream.hear("notifications/message"))


async def test_a_call_in_flight_may_have_run_and_the_session_goes_on(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await service.begin()
    await service.move(client, "b")
    arguments = {"group": "up", "name": "wait", "args": {"key": "k"}}
    params = {"name": "call_dynamic_tool", "arguments": arguments, "_meta": {"progressToken": "p"}}
    id, stream = await client.begin("tools/call", params)
    await stream.hear("notifications/progress")
    crash(monkeypatch)
    await service["a"].close()
    async with asyncio.timeout(BOUND_S):
        assert "may have run" in str(await stream.until(id))
        assert await say(client, "next") == "next"


async def test_a_replica_that_is_alive_keeps_its_session(service: Service) -> None:
    client = await service.begin()
    await service["b"].apply(peers=(service["b"].url,), store=service["b"].store_url)  # it cannot find the other one
    await asyncio.sleep(session_records.ALIVE_FOR_S)
    await service.move(client, "b")
    assert await status_of_call(client) == 404
    await service.move(client, "a")
    assert await say(client, "still") == "still"
    record = await service.record_of(client)
    assert record is not None
    assert record.replica == "a"


async def test_other_replicas_find_a_session_where_it_went_on(tmp_path: Path) -> None:
    async with serving("a", "b", "c", store=store_in(tmp_path)) as service:
        client = await service.begin()
        await service["a"].close()
        for name in ("b", "c", "b", "c"):
            await service.move(client, name)
            assert await say(client, name) == name
        old = service["a"]
        again = Replica("a", int(old.url.rpartition(":")[2]), old.peers, auth=(BEARER,), upstream=service.upstream)
        await again.open()
        try:
            await again.apply(store=store_in(tmp_path))
            for url in (again.url, service["c"].url):
                client.http = service.connect(url)
                assert await say(client, "back") == "back"
            await service["b"].close()
            await service.move(client, "c")
            assert await say(client, "second move") == "second move"
        finally:
            await again.close()


async def test_a_restarted_replica_goes_on_with_its_sessions(service: Service, tmp_path: Path) -> None:
    client = await service.begin()
    old = service["a"]
    await old.close()
    again = Replica("a", int(old.url.rpartition(":")[2]), old.peers, auth=(BEARER,), upstream=service.upstream)
    await again.open()
    try:
        await again.apply(store=store_in(tmp_path))
        for name in ("a", "b"):
            await service.move(client, name)
            assert await say(client, name) == name
    finally:
        await again.close()


async def test_a_replica_that_ends_hands_idle_sessions_over(service: Service) -> None:
    client, busy = await service.begin(), await service.begin()
    params = {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": "wait", "args": {"key": "k"}}}
    _, stream = await busy.begin("tools/call", {**params, "_meta": {"progressToken": "p"}})
    await stream.hear("notifications/progress")
    ending = asyncio.create_task(service["a"].close(BOUND_S))
    try:
        await until_true(lambda: _is_gone(service))
        assert [await say(client, text) for text in ("direct", "again")] == ["direct", "again"]
        await service.move(client, "b")
        assert await say(client, "at the other") == "at the other"
    finally:
        other = service.client("b")
        await other.initialize()
        await other.call("up", "release", {"key": "k"})
        ending.cancel()
        await asyncio.wait([ending])


async def _is_gone(service: Service) -> bool:
    store = service["b"].proxy.shared_store
    assert store is not None
    entry = await store.get(REPLICAS, "a")
    return entry is None or not entry.value


async def test_a_session_that_has_ended_stays_ended(service: Service) -> None:
    client = await service.begin()
    await client.http.request("DELETE", "/mcp", client.fields())
    await until_true(lambda: _has_no_record(service, client))
    await service["a"].close()
    await service.move(client, "b")
    assert await status_of_call(client) == 404


async def _has_no_record(service: Service, client: McpClient) -> bool:
    return not await service.has_record(client)


@pytest.mark.parametrize("who", ["another user", "another path"])
async def test_it_goes_on_for_its_user_at_its_path_alone(service: Service, who: str) -> None:
    client = await service.begin()
    await service["a"].close()
    await service.move(client, "b")
    if who == "another user":
        client.headers = as_user("bob")
    else:
        client.path = "/mcp/up"
    assert await status_of_call(client) == 404
    client.headers, client.path = as_user("ann"), "/mcp"
    assert await say(client, "mine") == "mine"


async def test_a_large_record_is_not_kept(service: Service) -> None:
    client = service.client("a")
    await client.initialize(name="n" * 2048)
    later = await service.begin()
    assert not await service.has_record(client)
    assert await service.has_record(later)


async def test_a_session_with_a_server_of_its_replica_begins_anew(tmp_path: Path) -> None:
    async with replicas(auth=(BEARER,)) as running:
        for each in running:
            await each.apply(store=store_in(tmp_path))
        async with HttpClient(running[0].url) as first, HttpClient(running[1].url) as second:
            client = McpClient(first, headers=as_user("ann"))
            await client.initialize()
            await running[0].close()
            client.http = second
            assert await status_of_call(client) == 404


@pytest.mark.full
async def test_a_record_in_a_server_is_sealed_small_and_expires(tmp_path: Path) -> None:
    with store_server(tmp_path) as server:
        async with serving("a", "b", store=server.url) as service:
            client = await service.begin(info="somebody")
            (key,) = server.ask("KEYS", "dynamic-mcp:1:e:sessions:*").split()
            assert "somebody" not in server.ask("GET", key)
            assert int(server.ask("STRLEN", key)) < 2400
            assert 0 < int(server.ask("TTL", key)) <= 5400
            await service["a"].close()
            await service.move(client, "b")
            assert await say(client, "x") == "x"


@pytest.mark.full
async def test_without_its_store_a_session_ends_with_its_replica(tmp_path: Path) -> None:
    with store_server(tmp_path) as server:
        async with serving("a", "b", store=server.url) as service:
            client = await service.begin()
            server.freeze()
            try:
                assert await say(client, "here") == "here"
                await service["a"].close()
                await service.move(client, "b")
                assert await status_of_call(client) == 404
            finally:
                server.thaw()


@pytest.mark.full
async def test_a_store_that_was_emptied_gets_the_records_back(tmp_path: Path) -> None:
    with store_server(tmp_path) as server:
        async with serving("a", "b", store=server.url) as service:
            client = await service.begin()
            server.ask("FLUSHALL")
            await until_true(lambda: service.has_record(client))
            await service["a"].close()
            await service.move(client, "b")
            assert await say(client, "x") == "x"


@pytest.mark.full
@pytest.mark.alone_only("its clients connect by URL")
async def test_a_session_outlives_the_process_that_had_it(tmp_path: Path) -> None:
    with store_server(tmp_path) as server:
        async with contextlib.AsyncExitStack() as stack:
            url = await stack.enter_async_context(FullHttp(Options(), older=False).listening())
            ports = {"a": free_port(), "b": free_port()}
            peers = [f"http://127.0.0.1:{port}" for port in ports.values()]
            programs = []
            for name, port in ports.items():
                place = tmp_path / name
                place.mkdir()
                settings: Json = {"cluster": {"name": name, "peers": peers, "keys": [KEY], "store": server.url}}
                serving = serving_http(place, {"up": {"url": url}}, port=port, settings=settings)
                programs.append(await stack.enter_async_context(serving))
            first = await stack.enter_async_context(HttpClient(peers[0]))
            second = await stack.enter_async_context(HttpClient(peers[1]))
            client = McpClient(first)
            await client.initialize()
            assert await say(client, "one") == "one"
            await until(lambda: server.ask("KEYS", "dynamic-mcp:1:e:sessions:*").strip())
            await programs[0].kill()
            client.http = second
            assert await say(client, "two") == "two"


async def test_what_a_user_has_allowed_for_a_session_goes_on_with_it(tmp_path: Path) -> None:
    access = access_of(roles={"dev": [{}, {"tools": ["echo"], "effect": "ask"}]}, people={"ann": ["dev"]})
    approval = Approval(channels=("queue",), notify=Notify(desktop=False))
    config = {"access": access, "approval": approval}
    async with serving("a", "b", store=store_in(tmp_path), config=config, state_folder=tmp_path) as service:
        client = await service.begin()
        calling = asyncio.create_task(say(client, "one"))
        user = ApprovalClient(tmp_path / FOLDER)
        async with asyncio.timeout(BOUND_S):
            while not (waiting := await asyncio.to_thread(user.list_pending)):  # noqa: ASYNC110 - in a folder
                await asyncio.sleep(0.01)
        decision = ApprovalDecision(id=waiting[0].id, verdict="allow", scope="session", by="eve")
        assert (await asyncio.to_thread(user.decide, decision)).outcome == "taken"
        assert await calling == "one"
        await service["a"].close()
        await service.move(client, "b")
        assert await say(client, "two") == "two"
        assert await asyncio.to_thread(user.list_pending) == []
