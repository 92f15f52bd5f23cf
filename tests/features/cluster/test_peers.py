"""How a replica finds the others: by names of hosts that change, and by addresses that do not always answer."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dynamic_mcp.features.cluster.peer_connection import Endpoint
from dynamic_mcp.features.cluster.peers import ReplicaFinder
from tests.features.cluster.replicas import replicas
from tests.http_client import HttpClient
from tests.mcp_client import McpClient, Refused

_INTRODUCTION = b'{"name":"a","process":"p"}'


class Peer:
    """An address that says it is the replica `a`, or something else, and answers nothing but that question."""

    def __init__(self) -> None:
        self.answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(_INTRODUCTION), _INTRODUCTION)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while b"/replica" in await reader.readuntil(b"\r\n\r\n"):
                writer.write(self.answer)
            await reader.read()
        writer.close()


class NameServer:
    """Says which addresses a name has: those in `addresses`, or that it cannot be found."""

    def __init__(self, port: int) -> None:
        self.addresses = ["127.0.0.1"]
        self._port = port

    async def getaddrinfo(self, host: str, port: int, **_: Any) -> list[Any]:  # Any: as in the standard library
        if not self.addresses:
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, self._port)) for each in self.addresses]


class Ended:
    """Takes an answer, of which only the end matters."""

    def __init__(self) -> None:
        self.is_lost = False

    def request_sent(self) -> None: ...

    def answer_begun(self, status: int, headers: list[tuple[bytes, bytes]]) -> None: ...

    def answer_continued(self, data: bytes) -> None: ...

    def answer_ended(self) -> None: ...

    def answer_lost(self) -> None:
        self.is_lost = True


class Answered(Ended):
    """Says when it has an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.has_ended = asyncio.Event()

    def answer_ended(self) -> None:
        self.has_ended.set()


def question(endpoint: Endpoint) -> bytes:
    return b"GET /replica HTTP/1.1\r\nhost: %s\r\n\r\n" % str(endpoint).encode()


@pytest.fixture
async def peer() -> Peer:
    return Peer()


@pytest.fixture
async def port(peer: Peer) -> AsyncIterator[int]:
    """The port at which the peer listens."""
    async with await asyncio.start_server(peer.serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
async def names(port: int, monkeypatch: pytest.MonkeyPatch) -> NameServer:
    server = NameServer(port)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", server.getaddrinfo)
    return server


@pytest.fixture
async def finder(port: int, names: NameServer) -> AsyncIterator[ReplicaFinder]:
    """One that has found the peer by its name."""
    finder = ReplicaFinder([f"dns+http://replicas.test:{port}"], question)
    await finder.look()
    assert finder.names == ["a"]
    yield finder
    await finder.close()


@pytest.mark.parametrize("host", ["a..test", f"{'a' * 64}.test"])
async def test_the_others_are_found_beside_an_address_whose_name_no_host_can_have(host: str, port: int) -> None:
    finder = ReplicaFinder([f"http://{host}:{port}", f"http://127.0.0.1:{port}"], question)

    await finder.look()

    assert (finder.names, finder.unreachable) == (["a"], 1)
    await finder.close()


async def test_no_idle_connection_is_used_to_a_replica_that_closes_one_since_it_ends(
    finder: ReplicaFinder, peer: Peer
) -> None:
    pool = finder.known("a")
    assert pool is not None
    first = pool.take() or await pool.connect()
    second = await pool.connect()
    answered = Answered()
    second.send(question(pool.endpoint), b"", answered)
    await answered.has_ended.wait()
    peer.answer = peer.answer.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)
    last = Answered()
    first.send(question(pool.endpoint), b"", last)
    await last.has_ended.wait()
    assert pool.take() is None
    assert not second.is_open


async def test_what_was_passed_on_to_a_replica_ends_though_its_name_is_gone(
    finder: ReplicaFinder, names: NameServer
) -> None:
    pool = finder.known("a")
    assert pool is not None
    connection, end = await pool.connect(), Ended()
    connection.send(b"POST / HTTP/1.1\r\n\r\n", b"", end)
    names.addresses = ["127.0.0.2"]
    await finder.look()
    assert connection.is_open
    assert not end.is_lost
    assert finder.known("a") is pool


async def test_a_replica_whose_address_is_listed_no_more_is_forgotten(
    finder: ReplicaFinder, names: NameServer
) -> None:
    names.addresses = ["127.0.0.2"]
    await finder.look()
    assert finder.names == []


async def test_replicas_are_known_while_their_name_cannot_be_found(finder: ReplicaFinder, names: NameServer) -> None:
    names.addresses = []
    await finder.look()
    assert finder.names == ["a"]


async def test_a_replica_that_is_full_is_not_taken_for_dead(finder: ReplicaFinder, peer: Peer) -> None:
    peer.answer = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"
    assert await finder.is_alive("a")
    await finder.look()
    assert finder.known("a") is not None
    assert await finder.find_process("p") == "a"
    assert finder.unreachable == 1


async def test_what_does_not_know_our_key_is_no_replica(finder: ReplicaFinder, peer: Peer) -> None:
    peer.answer = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n"
    assert not await finder.is_alive("a")
    await finder.look()
    assert finder.known("a") is None


async def test_a_session_is_not_lost_because_no_connection_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    async with replicas() as pair, HttpClient(pair[0].url) as first, HttpClient(pair[1].url) as second:
        client = McpClient(first)
        await client.initialize()
        client.http = second
        loop = asyncio.get_running_loop()
        connect, port = loop.create_connection, int(pair[0].url.rpartition(":")[2])

        async def fail(factory: Any, host: Any = None, at: Any = None, **options: Any) -> Any:  # Any: as asyncio's
            if at == port:
                raise OSError(errno.EMFILE, "too many open files")
            return await connect(factory, host, at, **options)

        waiting = {"group": "up", "name": "wait", "args": {"key": "k"}}
        params = {"name": "call_dynamic_tool", "arguments": waiting, "_meta": {"progressToken": "p"}}
        id, stream = await client.begin("tools/call", params)  # over the only connection that is open
        await stream.hear("notifications/progress")
        monkeypatch.setattr(loop, "create_connection", fail)
        with pytest.raises(Refused) as refused:
            await client.request("ping")
        assert refused.value.status == 503
        monkeypatch.undo()
        await client.call("up", "release", {"key": "k"})
        await stream.until(id)
