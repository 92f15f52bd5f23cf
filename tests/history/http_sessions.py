"""Sessions over streamable HTTP, whose streams are cut and resumed, and which end by DELETE or just vanish."""

from __future__ import annotations

import asyncio
import contextlib
import random
import weakref
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum

from tests.history.harness import Line, Send
from tests.history.record import Came, History, Json, answers, parse
from tests.history.violations import Rule, Violation
from tests.history.workload import describe
from tests.http_client import Disconnected, HttpClient, HttpConnection, Response
from tests.mcp_client import BOTH, McpClient

_ENDS_WITHIN_S = 10.0
# A stream that was cut is resumed after so many events at most, or after this time where nothing happens.
_RESUMED_AFTER, _RESUMED_WITHIN_S = 40, 0.03
_PING = b'{"jsonrpc":"2.0","id":"after the end","method":"ping"}'


class Leave(StrEnum):
    """How a session ends."""

    DELETED = "deleted"
    VANISHED = "vanished"


@dataclass(frozen=True)
class Habits:
    """What sessions do beside their requests: how likely they cut a stream after an event, and open a further one.

    `resumes_after` returns the id after which a stream is resumed, for one that has this last id.
    """

    cuts: float = 0.2
    listens_again: float = 0.05
    resumes_after: Callable[[str], str] = str


class HttpSessions:
    """Where clients connect. `leave` is how the next session ends; `violations` are wrong answers of the server."""

    def __init__(self, url: str, history: History, seed: object, habits: Habits | None = None) -> None:
        self.url = url
        self.history = history
        self.habits = habits or Habits()
        self.leave = Leave.DELETED
        self.violations: list[Violation] = []
        self.counts: Counter[str] = Counter()
        self.lines: set[HttpLine] = set()
        self._seed = seed
        self._opened = 0

    async def open(self, take: Send) -> Line:
        self._opened += 1
        choose = random.Random(f"{self._seed} {self._opened}")  # noqa: S311 repeatable
        line = self.make_line(take, choose)
        self.lines.add(line)
        return line

    def make_line(self, take: Send, choose: random.Random) -> HttpLine:
        """Return the next session."""
        return HttpLine(self, HttpClient(self.url), take, choose)

    async def close(self) -> None:
        """Let the sessions vanish that have not ended, as those do whose run has failed."""
        for line in [*self.lines]:
            await line.vanish()

    def forget(self, line: HttpLine) -> None:
        """Take it that a session has ended."""
        self.lines.discard(line)


class HttpLine:
    """What a client has of its session: every message is a POST of its own, as many at once as there are.

    `is_lost` once the process is dead that had it, which the client may not know yet.
    """

    def __init__(self, host: HttpSessions, http: HttpClient, take: Send, choose: random.Random) -> None:
        self.is_lost = False
        self._host = host
        self._take = take
        self._choose = choose
        self._leave = host.leave
        self._http = http
        self._mcp = McpClient(http)
        self._last_ids: dict[str, str] = {}  # by the names of streams
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._listening = 0  # the number of the newest stream that was asked for
        self._listens = asyncio.Event()
        self._opening = asyncio.Lock()  # or nobody knows which stream is the last
        self._sent: dict[str, asyncio.Event] = {}
        self._cancelled: set[str] = set()

    def send(self, line: bytes) -> None:
        message = parse(line)
        match message:
            case {"method": "initialize"}:
                self._start(self._initialize(line, answers(message["id"])))
            case {"method": "notifications/initialized"}:
                self._start(self._begin(line))
            case {"method": "notifications/cancelled", "params": {"requestId": id}}:
                self._start(self._cancel(line, answers(id)))
            case {"method": str(), "id": id}:
                self._sent[answers(id)] = asyncio.Event()
                self._start(self._request(line, answers(id)))
            case _:
                self._start(self._post_only(line))
        if self._listens.is_set() and self._choose.random() < self._host.habits.listens_again:
            self._start(self._listen())

    async def close(self) -> list[weakref.ref[object]]:
        self._is_closing = True
        if self._leave is Leave.DELETED:
            await self._delete()
        await self.vanish()
        return []

    async def vanish(self) -> None:
        """Close every connection at once."""
        self._is_closing = True
        self._http.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._http.abort()  # what was about to be opened
        self._host.forget(self)

    async def _delete(self) -> None:
        response = await self._http.request("DELETE", "/mcp", self._mcp.fields())
        await response.read()
        self._expect(response.status in (200, 204) or self._may_refuse(response), f"DELETE: {response}")
        if self._tasks:
            _, open_ones = await asyncio.wait(self._tasks, timeout=_ENDS_WITHIN_S)
            shown = [repr(each.get_coro()) for each in open_ones]
            self._expect(not open_ones, f"after DELETE of {self._mcp.id} these are open: {shown}")
        response = await self._mcp.post(_PING)
        await response.read()
        self._expect(response.status == 404 or self.is_lost, f"a session after its end: {response}")

    def _start(self, work: Coroutine[Json, Json, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (exc := task.exception()) is not None and not self._is_closing:
            self._fail(describe(exc))

    def _expect(self, condition: bool, text: str) -> None:
        if not condition:
            self._fail(text)

    def _fail(self, text: str) -> None:
        self._host.violations.append(Violation(Rule.HTTP, "run", text))

    # --- requests --------------------------------------------------------------------------------------

    async def _initialize(self, line: bytes, stream: str) -> None:
        response = await self._mcp.post(line)
        self._mcp.id = response.headers.get("mcp-session-id", "")
        self._expect(bool(self._mcp.id), f"`initialize` began no session: {response}")
        self._begun(response)
        await self._take_answer(response, stream)

    async def _begin(self, line: bytes) -> None:
        """Say that the session has begun, and listen; what is sent meanwhile waits until somebody listens."""
        response = await self._mcp.post(line)
        is_taken = not await response.read() and response.status == 202
        self._expect(is_taken or self._may_refuse(response), f"a notification: {response}")
        self._start(self._listen())

    async def _request(self, line: bytes, stream: str) -> None:
        await self._listens.wait()
        connection = await self._post(line)
        self._sent[stream].set()
        await self._take_answer(await connection.read_response(), stream)

    async def _cancel(self, line: bytes, stream: str) -> None:
        """Cancel a request that was sent, over another connection, so that it is behind the request."""
        self._cancelled.add(stream)
        await self._sent[stream].wait()
        await self._post_only(line, is_fresh=True)

    async def _post_only(self, line: bytes, *, is_fresh: bool = False) -> None:
        await self._listens.wait()
        response = await (await self._post(line, is_fresh=is_fresh)).read_response()
        body = await response.read()
        self._expect(
            response.status == 202 or self._may_refuse(response), f"to `{line.decode()}`: {response} {body!r}"
        )

    async def _post(self, line: bytes, *, is_fresh: bool = False) -> HttpConnection:
        fields = self._mcp.fields(accept=BOTH, content_type="application/json")
        return await self._http.begin("POST", "/mcp", fields, line, is_fresh=is_fresh)

    async def _take_answer(self, response: Response, stream: str) -> None:
        if response.status == 200 and response.is_stream:
            self._host.counts["answers as streams"] += 1
            await self._follow(response, stream)
            return
        body = await response.read()
        if response.status == 200:
            self._host.counts["answers as JSON"] += 1
            self._take(body.removesuffix(b"\n") + b"\n", Came(stream))
        else:
            is_known = response.status == 202 and stream in self._cancelled
            self._expect(is_known or self._may_refuse(response, stream), f"to {stream}: {response} {body!r}")

    def _begun(self, response: Response) -> None:
        """Called when the session has an id."""

    def _may_refuse(self, response: Response, stream: str = "") -> bool:
        """Tell whether a request may be refused, of which this stream was to come."""
        return self._is_closing

    def _may_cut(self, exc: Disconnected) -> bool:
        """Tell whether a connection may end before its answer, for another reason than that the client has cut it."""
        return False

    def _give_up(self, stream: str) -> None:
        """Called when a stream was cut of which nothing says where to go on."""

    # --- streams ---------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Open a stream. An older one ends then, which is no reason to go on with it."""
        async with self._opening:
            self._listening += 1
            stream = f"GET {self._listening}"
            response = await self._mcp.get()
        if response.status != 200 or not response.is_stream:
            self._expect(self._may_refuse(response), f"to {stream}: {response} {await response.read()!r}")
            return
        self._listens.set()
        await self._follow(response, stream)

    async def _follow(self, response: Response, stream: str) -> None:
        """Take a stream to its end, over as many connections as it takes."""
        for connection in range(1_000_000):
            is_over = is_cut = False
            try:
                is_over = await self._read(response, Came(stream, connection))
            except Disconnected as exc:
                if not self._may_cut(exc):
                    self._expect(self._is_closing, f"the server cut {stream}")
                    return
                is_cut = True
            if is_over or self._is_closing:
                return
            if stream not in self._last_ids:
                if is_cut or self.is_lost:
                    self._give_up(stream)
                else:
                    self._expect(stream in self._cancelled, f"{stream} ended, and cannot be resumed")
                return
            resumed = await self._resume(stream)
            if resumed is None:
                return
            response = resumed

    async def _read(self, response: Response, came: Came) -> bool:
        """Read one connection; tell whether nothing can follow on this stream."""
        while (event := await response.next_event()) is not None:
            if event.id:
                self._last_ids[came.stream] = event.id
            if event.data:
                self._take(event.data + b"\n", came._replace(id=event.id or ""))
                if _is_answer(event.data) and not came.stream.startswith("GET"):
                    await self._read_end(response, came.stream)
                    return True
            if came.stream in self._last_ids and self._choose.random() < self._host.habits.cuts:
                self._host.counts["cuts"] += 1
                response.abort()
                return False
        return self._is_old(came.stream)

    async def _read_end(self, response: Response, stream: str) -> None:
        """Read what follows the answer on its stream, which is nothing."""
        rest = await response.read()
        self._expect(not rest.strip(), f"{stream} went on after its answer: {rest!r}")

    def _is_old(self, stream: str) -> bool:
        """Tell whether this is a stream in whose place the client has asked for another one.

        Over two connections, it may learn of its end before the other one has begun.
        """
        return stream.startswith("GET") and stream != f"GET {self._listening}"

    async def _resume(self, stream: str) -> Response | None:
        last_id = self._last_ids[stream]
        goal = len(self._host.history.events) + self._choose.randrange(_RESUMED_AFTER)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RESUMED_WITHIN_S):
                await self._host.history.until(lambda: len(self._host.history.events) >= goal)
        if self._is_closing:
            return None
        self._host.counts["resumptions"] += 1
        response = await self._mcp.get(self._host.habits.resumes_after(last_id))
        if response.status == 200 and response.is_stream:
            return response
        is_past = stream in self._cancelled or self._is_old(stream)  # nothing need be left of it
        is_known = (is_past and response.status == 400) or self._may_refuse(response, stream)
        self._expect(is_known, f"{stream} after `{last_id}`: {response} {await response.read()!r}")
        return None


def _is_answer(line: bytes) -> bool:
    message = parse(line)
    return "id" in message and "method" not in message
