"""A replica that no longer answers as one does: the requests to it end, and the memory that they take is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import time
from collections.abc import AsyncIterator

import pytest

from dynamic_mcp.face.http import limits
from dynamic_mcp.face.http.cluster import PEER_PATH
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.features.cluster import relay
from dynamic_mcp.features.cluster.config import Cluster
from dynamic_mcp.features.cluster.hop import FIELD, HopRefused, HopSigner
from dynamic_mcp.features.cluster.service import ClusterService
from dynamic_mcp.features.metrics.families import Values
from dynamic_mcp.features.metrics.gauges import read_gauges
from dynamic_mcp.identity import LOCAL_USER
from tests.fakes import Json
from tests.features.cluster.replicas import KEY, LONGEST, Replica, replicas, status_of
from tests.http_client import HttpClient
from tests.mcp_client import McpClient

_INTRODUCTION = b'{"name":"a"}'
_WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s"


class BadPeer:
    """Listens instead of a replica `a`: it says its name, and sends `answer` to all else, again and again."""

    def __init__(self, answer: bytes, *, repeats: bytes = b"") -> None:
        self.is_cut = asyncio.Event()
        self._answer = answer
        self._repeats = repeats

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while b"/cluster/replica" in await reader.readuntil(b"\r\n\r\n"):
                writer.write(_WHOLE % (len(_INTRODUCTION), _INTRODUCTION))
            writer.write(self._answer)
            while self._repeats:
                writer.write(self._repeats)
                await writer.drain()
            await reader.read()
        self.is_cut.set()
        writer.close()


async def _listen(peer: BadPeer, port: int) -> asyncio.Server:
    """Listen with little room in the system for what is not read."""
    listener = socket.create_server(("127.0.0.1", port))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
    return await asyncio.start_server(peer.serve, sock=listener)


@contextlib.asynccontextmanager
async def before(peer: BadPeer) -> AsyncIterator[tuple[McpClient, list[Replica]]]:
    """Return a client of `b` whose session was begun at `a`, where the bad peer listens now."""
    async with replicas() as pair, HttpClient(pair[0].url) as first, HttpClient(pair[1].url) as second:
        client = McpClient(first)
        await client.initialize()
        await pair[0].service.finish(0)
        async with await _listen(peer, int(pair[0].url.rpartition(":")[2])):
            client.http = second
            yield client, pair


@pytest.mark.parametrize(
    ("answer", "repeats"),
    [
        (b"SSH-2.0-x\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b""),
        (b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\n", b"x-field: %s\r\n" % (b"x" * 1000)),
        (b"HTTP/1.1 200 OK\r\nx-field: ", b"x" * 1000),
    ],
    ids=["no HTTP", "interim", "upgrade", "endless fields", "endless field"],
)
async def test_a_call_ends_whose_answer_is_none(answer: bytes, repeats: bytes) -> None:
    peer = BadPeer(answer, repeats=repeats)
    async with before(peer) as (client, _):
        response = await client.post(client.message("ping"))
        assert "may have run" in json.loads(await response.read())["error"]["message"]
        await peer.is_cut.wait()


async def test_a_session_whose_replica_does_not_believe_us_is_begun_anew(caplog: pytest.LogCaptureFixture) -> None:
    peer = BadPeer(b"HTTP/1.1 403 Forbidden\r\nx-dynamic-mcp-hop: refused\r\ncontent-length: 3\r\n\r\nno.")
    async with before(peer) as (client, _):
        assert await status_of(await client.post(client.message("ping"))) == 404
        await peer.is_cut.wait()
    assert "the replica `a` refuses what is passed on to it" in caplog.text


async def test_a_refusal_of_the_client_itself_is_passed_on() -> None:
    peer = BadPeer(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 3\r\n\r\nno.")
    async with before(peer) as (client, _):
        assert await status_of(await client.post(client.message("ping"))) == 403


class DeafPeer(BadPeer):
    """Reads nothing of a request but its head until it is told to; then it ends without an answer."""

    def __init__(self) -> None:
        super().__init__(b"")
        self.may_read = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while b"/cluster/replica" in (head := await reader.readuntil(b"\r\n\r\n")):
                writer.write(_WHOLE % (len(_INTRODUCTION), _INTRODUCTION))
            await self.may_read.wait()
            await reader.readexactly(int(head.rpartition(b"content-length: ")[2]))
        writer.close()


@pytest.mark.full
async def test_bodies_that_a_replica_does_not_read_are_bounded_and_what_is_more_is_turned_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "COLLECTED_BYTES", 0)  # four of the largest bodies
    peer = DeafPeer()
    async with before(peer) as (client, _):
        long = client.message("ping", {"filler": "x" * (LONGEST - 1000)})
        posts = [asyncio.create_task(_post_when_there_is_room(client, long)) for _ in range(5)]
        ended, waiting = await asyncio.wait(posts, return_when=asyncio.FIRST_COMPLETED)
        assert [(each.result()[0], b"too much waits" in each.result()[1]) for each in ended] == [(503, True)]
        short = asyncio.create_task(_post_when_there_is_room(client, client.message("ping")))
        peer.may_read.set()
        for each in [*waiting, short]:
            assert b"may have run" in (await each)[1]
        said = await _cluster_of(client.http)
        assert (said["turned_away"], said["lost"]) == (1, 5)
        _, lost = await _post_when_there_is_room(client, long)
        assert json.loads(lost)["id"] == long["id"], "the answer names the request, whose body is gone"


async def _post_when_there_is_room(client: McpClient, message: Json) -> tuple[int, bytes]:
    """Return the status and the body of the answer, but not that the bodies of clients are too many."""
    async with asyncio.timeout(20):
        while True:
            response = await client.post(message)
            body = await response.read()
            if b"too many long messages" not in body:
                return response.status, body
            await asyncio.sleep(0.1)


async def test_what_is_passed_on_is_counted_for_the_metrics() -> None:
    async with replicas() as pair, HttpClient(pair[0].url) as first, HttpClient(pair[1].url) as second:
        client = McpClient(first)
        await client.initialize()
        client.http = second
        await client.request("ping")
        gauges = {each.definition.name: each for each in read_gauges(pair[1].proxy) if isinstance(each, Values)}
    assert gauges["dynamic_mcp_replicas"].series == {("known",): 1, ("unreachable",): 0}
    outcomes = gauges["dynamic_mcp_forwarded_requests_total"].series
    assert outcomes == {("passed_on",): 1, ("lost",): 0, ("turned_away",): 0}
    assert gauges["dynamic_mcp_forwarded_requests_in_flight"].series == {(): 0}
    assert gauges["dynamic_mcp_refused_peer_requests_total"].series == {(): 0}


class Partition:
    """The network between two replicas, which may be cut: connections to one port then take for ever."""

    def __init__(self, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_cut = True
        loop = asyncio.get_running_loop()
        connect = loop.create_connection

        async def connect_or_wait(factory: Json, host: Json = None, at: Json = None, **options: Json) -> Json:
            if self.is_cut and at == port:
                raise TimeoutError
            return await connect(factory, host, at, **options)

        monkeypatch.setattr(loop, "create_connection", connect_or_wait)


async def test_a_partition_ends_no_session_and_is_seen(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with replicas() as pair, HttpClient(pair[0].url) as first, HttpClient(pair[1].url) as second:
        client = McpClient(first)
        await client.initialize()
        network = Partition(int(pair[0].url.rpartition(":")[2]), monkeypatch)
        await pair[1].apply(peers=(pair[0].url, pair[1].url), keys=(KEY, KEY[::-1]))  # it connects anew
        client.http = second
        assert await status_of(await client.post(client.message("ping"))) == 404
        assert (await _cluster_of(second))["unreachable"] == 1
        client.http = first
        await client.request("ping")
        network.is_cut = False
        client.http = second
        await client.request("ping")
        said = await _cluster_of(second)
        assert (said["name"], said["replicas"], said["unreachable"], said["forwarded"]) == ("b", ["a", "b"], 0, 2)


async def test_a_replica_that_is_lost_and_found_is_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with replicas() as pair:
        settings = Cluster(peers=(pair[0].url, pair[1].url), keys=(KEY,), name="c")
        third = ClusterService(settings, 1 << 20)
        try:
            await third.look()
            third.peers.forget("a")
            assert third.describe().unreachable == 1
            await third.look()
            await pair[0].service.finish(0)
            await third.look()
        finally:
            await third.close()
    said = [each for each in caplog.messages if "the replica `a`" in each]
    assert ["again" in each for each in said] == [False, True, False]


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_replica_whose_clock_differs_is_refused_and_named(
    hours: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with replicas() as pair:
        settings = Cluster(peers=(pair[0].url,), keys=(KEY,), name="late")
        service = ClusterService(settings, 1 << 20, wall_clock=lambda: time.time() + hours * 3600)
        try:
            await service.look()
            status = service.describe()
        finally:
            await service.close()
    assert (status.replicas, status.unreachable) == ((), 1)
    assert "`late` is too old, or its clock differs" in caplog.text


@pytest.mark.parametrize(
    ("differs_s", "is_believed"), [(0, True), (110, True), (-110, True), (130, False), (-160, False)]
)
def test_clocks_may_differ_by_two_minutes(differs_s: float, is_believed: bool) -> None:
    now = 1_000_000.0
    head = RequestHead("GET", b"/mcp", {})
    field = HopSigner("a", [KEY], lambda: now + differs_s).sign(head, "b", LOCAL_USER)
    received = RequestHead("GET", PEER_PATH + b"/mcp", {FIELD: field})
    reader = HopSigner("b", [KEY], lambda: now)
    with contextlib.nullcontext() if is_believed else pytest.raises(HopRefused):
        reader.read(received)


async def test_a_request_that_was_passed_on_is_not_passed_on_again() -> None:
    async with replicas() as pair, HttpClient(pair[0].url) as first, HttpClient(pair[1].url) as second:
        client = McpClient(first)
        await client.initialize()
        head = RequestHead("DELETE", b"/mcp", {b"mcp-session-id": client.id.encode()})
        field = HopSigner("c", [KEY], time.time).sign(head, "b", LOCAL_USER, address="127.0.0.1")
        headers = client.fields(x_dynamic_mcp_hop=field.decode())
        assert await status_of(await second.request("DELETE", "/cluster/mcp", headers)) == 404
        assert (await _cluster_of(second))["forwarded"] == 0
        await client.request("ping")


async def test_a_peer_that_is_a_balancer_makes_no_loop() -> None:
    async with replicas() as pair, HttpClient(pair[0].url) as first, HttpClient(pair[1].url) as second:
        client = McpClient(first)
        await client.initialize()
        head = RequestHead("DELETE", b"/mcp", {b"mcp-session-id": client.id.encode()})
        field = HopSigner("b", [KEY], time.time).sign(head, "a", LOCAL_USER, address="127.0.0.1")
        response = await second.request("DELETE", "/cluster/mcp", client.fields(x_dynamic_mcp_hop=field.decode()))
        assert await status_of(response) == 403, "it is for another replica, and came to the one that sent it"
        assert response.headers["x-dynamic-mcp-hop"] == "refused"
        await client.request("ping")


async def _cluster_of(http: HttpClient) -> Json:
    response = await http.request("GET", "/ready")
    return json.loads(await response.read())["cluster"]


async def test_a_call_on_a_dead_connection_ends_though_its_replica_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "DEAD_AFTER_S", 0.0)
    peer = BadPeer(b"")
    async with before(peer) as (client, pair):
        response = await client.post(client.message("ping"))
        assert "may have run" in json.loads(await response.read())["error"]["message"]
        await peer.is_cut.wait()
        async with HttpClient(pair[1].url) as http:
            other = McpClient(http)
            await other.initialize()
            assert "result" in await other.request("ping")


async def test_a_stream_on_a_dead_connection_ends_so_that_its_client_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "DEAD_AFTER_S", 0.0)
    peer = BadPeer(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    async with before(peer) as (client, _):
        stream = await client.listen()
        assert await stream.next() is None
        await peer.is_cut.wait()
