"""Modern clients of a run over streamable HTTP: each request is a POST of its own, and is given up by closing it."""

from __future__ import annotations

import asyncio
import json
import weakref

from tests.face.http.modern_parties import headers_for
from tests.history.harness import Line, Send
from tests.history.modern_client import LISTEN, ModernTalk
from tests.history.record import Json
from tests.history.violations import Rule, Violation
from tests.history.workload import describe
from tests.http_client import Disconnected, HttpClient
from tests.mcp_client import BOTH


class ModernHttpSessions:
    """Where modern clients connect. `violations` are what only this side sees."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.violations: list[Violation] = []
        self._lines: set[_ModernHttpLine] = set()

    async def open(self, take: Send) -> Line:
        line = _ModernHttpLine(self, take)
        self._lines.add(line)
        return line

    def make_http(self) -> HttpClient:
        """Return the connections of the next client."""
        return HttpClient(self.url)

    async def close(self) -> None:
        """Close the clients that have not closed, as those do whose run has failed."""
        for line in [*self._lines]:
            await line.close()

    def forget(self, line: _ModernHttpLine) -> None:
        """Take it that a client has gone."""
        self._lines.discard(line)

    def fail(self, rule: Rule, text: str) -> None:
        """Note a breach."""
        self.violations.append(Violation(rule, "run", text))


class _ModernHttpLine:
    """What a client has of its session, and the wire of its talk."""

    def __init__(self, host: ModernHttpSessions, take: Send) -> None:
        self._host = host
        self._http = host.make_http()
        self._talk = ModernTalk(self, take, host.fail)
        self._posts: dict[str, asyncio.Task[None]] = {}
        self._is_closing = False

    def send(self, line: bytes) -> None:
        self._talk.send(line)

    def send_message(self, message: Json) -> None:
        post = self._posts[message["id"]] = asyncio.get_running_loop().create_task(self._post(message))
        post.add_done_callback(lambda task: self._end(message["id"], task))

    def cancel(self, id: str) -> None:
        if id in self._posts:
            self._posts[id].cancel()

    async def close(self) -> list[weakref.ref[object]]:
        self._is_closing = True
        posts = [*self._posts.values()]
        for post in posts:
            post.cancel()
        await asyncio.gather(*posts, return_exceptions=True)
        self._http.abort()
        self._host.forget(self)
        return []

    async def _post(self, message: Json) -> None:
        headers = {"accept": BOTH, "content-type": "application/json", **headers_for(message)}
        response = await self._http.request("POST", "/mcp", headers, json.dumps(message).encode())
        has_ended = False
        try:
            if response.is_stream:
                await self._follow(response, message)
            else:
                self._talk.hear(json.loads(await response.read()), message["id"])
            has_ended = True
        finally:
            if not has_ended:
                response.abort()

    async def _follow(self, response: Json, message: Json) -> None:
        is_answered = False
        while (event := await response.next_event()) is not None:
            if event.data:
                said = json.loads(event.data)
                is_answered = "method" not in said
                self._talk.hear(said, message["id"])
        if not is_answered and message["method"] != LISTEN:
            self._host.fail(Rule.HTTP, f"the stream of {message['id']} ended without an answer")

    def _end(self, id: str, task: asyncio.Task[None]) -> None:
        self._posts.pop(id, None)
        if task.cancelled() or self._is_closing:
            return
        exc = task.exception()
        if isinstance(exc, Disconnected):
            self._host.fail(Rule.HTTP, f"the server cut {id}")
        elif exc is not None:
            self._host.fail(Rule.HTTP, describe(exc))
