"""A replica that no longer answers as one does: the requests to it end, and the memory that they take is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from dynamic_mcp.features.cluster import relay
from tests.features.cluster.replicas import Replica, replicas
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


@contextlib.asynccontextmanager
async def before(peer: BadPeer) -> AsyncIterator[tuple[McpClient, list[Replica]]]:
    """Return a client of `b` whose session was begun at `a`, where the bad peer listens now."""
    async with replicas() as pair, HttpClient(pair[0].url) as first, HttpClient(pair[1].url) as second:
        client = McpClient(first)
        await client.initialize()
        await pair[0].service.finish(0)
        port = int(pair[0].url.rpartition(":")[2])
        async with await asyncio.start_server(peer.serve, "127.0.0.1", port):
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
