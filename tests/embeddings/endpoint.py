"""A fake embeddings endpoint on loopback: it knows a few words, and can be slow or return nonsense."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

Json = Any  # whatever JSON a test writes down
# What each number of a vector stands for.
SENSES = (("tree", "branch", "zweig"), ("time", "calendar", "termin"), ("issue", "bug", "fehler"), ("",))


def embed(text: str) -> list[float]:
    """Return a vector with a number for each sense."""
    return [float(any(word in text.lower() for word in words)) + 0.01 for words in SENSES]


def build_answer(asked: Json) -> bytes:
    """Return the response of a working endpoint."""
    data = [{"object": "embedding", "index": at, "embedding": embed(text)} for at, text in enumerate(asked["input"])]
    return json.dumps({"object": "list", "data": data, "model": asked["model"]}).encode()


class FakeEndpoint:
    """Records its requests and answers with `status` and `answer` while `gate` is open."""

    def __init__(self) -> None:
        self.requests: list[Json] = []
        self.heads: list[str] = []
        self.status = 200
        self.answer: Callable[[Json], bytes] = build_answer
        self.gate = asyncio.Event()
        self.gate.set()
        self.url = ""
        self._writers: list[asyncio.StreamWriter] = []
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def texts(self) -> list[str]:
        """Return all texts received so far."""
        return [text for asked in self.requests for text in asked["input"]]

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self._writers.append(writer)
        self._serving.add(asyncio.create_task(self._serve(reader, writer)))

    async def close(self) -> None:
        """Close all connections."""
        self.gate.set()
        for writer in self._writers:
            writer.close()
        for writer in self._writers:
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        if self._serving:
            await asyncio.wait(self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                fields = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if line)
                asked = json.loads(await reader.readexactly(int(fields["content-length"])))
                self.heads.append(head)
                self.requests.append(asked)
                await self.gate.wait()
                body = self.answer(asked)
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%s" % (self.status, len(body), body))
                await writer.drain()


@contextlib.asynccontextmanager
async def endpoint() -> AsyncIterator[FakeEndpoint]:
    """Run an endpoint on loopback."""
    fake = FakeEndpoint()
    server = await asyncio.start_server(fake.accept, "127.0.0.1", 0)
    fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield fake
    finally:
        await fake.close()
        server.close()
