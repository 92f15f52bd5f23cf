"""The endpoint: it plays its script by what each request shows it, and keeps every request.

Nothing but the request decides what is answered, so a client may repeat one, or ask for a title in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tests.clients.model.chat import Chat
from tests.clients.model.dialect import Answer, Call, Dialect, Json, Saying, Shown
from tests.clients.model.gemini import Gemini
from tests.clients.model.messages import Messages
from tests.clients.model.responses import Responses
from tests.upstreams.odd_http import Connection

DIALECTS: Sequence[Dialect] = (Messages(), Chat(), Responses(), Gemini())
DONE = "The script is over."
_LIMIT_BYTES = 64 << 20


@dataclass(frozen=True)
class Script:
    """The calls of a turn, in their order; `reveal` comes first where the client hides the next tool."""

    calls: Sequence[Call]
    reveal: Call | None = None

    def next(self, shown: Shown) -> Call | str:
        """Return what the model says to this."""
        if not shown.tools:
            return DONE
        revealed = self.reveal is not None and any(each.tool == self.reveal.tool for each in shown.results)
        done = len(shown.results) - revealed
        if done >= len(self.calls):
            return DONE
        call = self.calls[done]
        return self.reveal if self.reveal and not revealed and call.tool not in shown.tools else call


class Policy(Protocol):
    """What the model does."""

    def next(self, shown: Shown) -> Saying:
        """Return what the model says to a request."""


class Model:
    """The listener; `url` has no path, and `when_asked` is called with each request that has tools.

    It takes `think_s` for its first answer.
    """

    def __init__(
        self, script: Policy, when_asked: Callable[[], None] = lambda: None, *, think_s: float = 0.0
    ) -> None:
        self._think_s = think_s
        self._script = script
        self._when_asked = when_asked
        self.url = ""
        self.requests: list[tuple[Json, Shown]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def play(self, script: Policy) -> None:
        """Go on with another script."""
        self._script = script

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Model]:
        """Listen at a port of this machine."""
        server = await asyncio.start_server(self._take, "127.0.0.1", 0, limit=_LIMIT_BYTES)
        try:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    @property
    def asked(self) -> list[Shown]:
        """What each request of the conversation showed: those without tools are for titles and the like."""
        return [shown for _, shown in self.requests if shown.tools]

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(Connection(reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: Connection) -> None:
        try:
            while True:
                request = await connection.request()
                body = _decoded(request.body, request.headers.get("content-encoding", ""))
                if not self.asked:
                    await asyncio.sleep(self._think_s)
                await _send(self._answer(request.path.partition("?")[0], body), connection)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            connection.close()

    def _answer(self, path: str, body: Json) -> Answer:
        dialect = next((each for each in DIALECTS if each.speaks(path)), None)
        if dialect is None:
            return Answer(_aside(path))
        shown = dialect.read(body)
        self.requests.append((body, shown))
        if shown.tools:
            self._when_asked()
        return dialect.answer(body, path, self._script.next(shown), len(self.requests))


def _decoded(body: bytes, encoding: str) -> Json:
    data = gzip.decompress(body) if encoding == "gzip" else body
    return json.loads(data) if data else {}


def _aside(path: str) -> Json:
    """Return what a client also asks: how much a text is, and which models there are."""
    if path.endswith(("count_tokens", "countTokens")):
        return {"input_tokens": 1, "totalTokens": 1}
    if path.endswith("/models"):
        return {"object": "list", "data": [{"id": "scripted", "object": "model"}], "models": []}
    return {}


async def _send(answer: Answer, connection: Connection) -> None:
    if not answer.events:
        await connection.respond(200, json.dumps(answer.document).encode(), content_type="application/json")
        return
    await connection.events()
    for each in answer.events:
        await connection.event(each)
    await connection.end_events()
