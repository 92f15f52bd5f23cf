"""Load for a server of MCP over HTTP: sessions that call, each over a connection of its own, and are timed.

    python -m tests.benchmarks.http_load --port PORT [--sessions 32] [--seconds 2] [--every 0]
                                          [--modern] [--streams]

Each session has one call in flight. Every call has a text of its own, and an answer without it is an error. It
prints one JSON object. With `--modern` the callers are clients of MCP 2026-07-28, which have no sessions. With
`--streams` the sessions only open a stream each; it says when they are there and when they listen, waits for a line
of its input each time, and says in the end how many still listen.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import uvloop

from tests.benchmarks.driver import Json

# What stands for the text of a call in its params.
TEXT = "%T"
ECHO = json.dumps({"name": "echo", "arguments": {"text": TEXT}})
VERSION = "2025-11-25"
MODERN_VERSION = "2026-07-28"
_ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}
_HELLO = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "load", "version": "1"}}
_OPENS_WITHIN_S = 60.0
# Sessions that begin at once.
_BEGIN_AT_ONCE = 50


@dataclass(frozen=True)
class Target:
    """Where to call, and what: the params of `tools/call`, as JSON in which `%T` is the text."""

    port: int
    path: str = "/mcp"
    params: str = ECHO


@dataclass
class Timings:
    """The latencies of the calls that began while it was measuring, and what was wrong with any of them."""

    is_measuring: bool = False
    latencies_s: list[float] = field(default_factory=list)
    errors: int = 0
    first_error: str = ""
    seconds: float = 0.0

    def fail(self, text: str) -> None:
        """Count an error."""
        self.errors += 1
        self.first_error = self.first_error or text

    def figures(self) -> dict[str, Json]:
        """Return what is shown."""
        ordered = sorted(self.latencies_s)
        return {
            "calls": len(ordered),
            "rate": len(ordered) / self.seconds if self.seconds else 0.0,
            "p50_ms": at_share(ordered, 0.5) * 1e3,
            "p99_ms": at_share(ordered, 0.99) * 1e3,
            "max_ms": at_share(ordered, 1.0) * 1e3,
            "errors": self.errors,
            "first_error": self.first_error,
        }


def at_share(ordered: Sequence[float], share: float) -> float:
    """Return what this share of ordered figures does not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


class CallingSession(asyncio.Protocol):
    """A session that calls again and again, every so many seconds at most; `begun` is done once it may call."""

    def __init__(self, name: str, target: Target, timings: Timings, every_s: float = 0.0) -> None:
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.id = ""
        self._target = target
        self._timings = timings
        self._every_s = every_s
        self._name = name
        self._number = 0
        self._text = b""
        self._sent_at = 0.0
        self._is_measured = False
        self._is_stopped = False
        self._rest = b""
        self._takes = self._take_hello
        self._transport: asyncio.Transport | None = None
        before, _, self._after = (f'"params":{target.params}}}').partition(TEXT)
        self._before = '{"jsonrpc":"2.0","id":%d,"method":"tools/call",' + before.replace("%", "%%")

    async def open(self) -> None:
        """Connect, begin the session, and wait until it may call."""
        await self._connect()
        self._post(_message("initialize", _HELLO, 0))
        await self.begun

    async def join(self, id: str) -> None:
        """Connect, to call in a session that another connection has begun."""
        await self._connect()
        self.id = id

    def start(self) -> None:
        """Begin to call."""
        self._takes = self._take_answer
        if self._every_s:
            phase = random.random() * self._every_s  # noqa: S311 - nothing secret
            asyncio.get_running_loop().call_later(phase, self._call)
        else:
            self._call()

    def stop(self) -> None:
        """Call no more."""
        self._is_stopped = True

    def close(self) -> None:
        """Close the connection, without an end of the session."""
        self._is_stopped = True
        if self._transport is not None:
            self._transport.abort()

    async def _connect(self) -> None:
        await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", self._target.port)

    # --- Protocol --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclasses of asyncio's

    def data_received(self, data: bytes) -> None:
        self._rest = self._rest + data if self._rest else data
        if _is_whole(self._rest):
            answer, self._rest = self._rest, b""
            self._takes(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._is_stopped:
            return
        answer, self._rest = self._rest, b""
        if not self.begun.done():
            self.begun.set_exception(ConnectionError(f"the server closed the connection: {answer[:200]!r}"))
        elif b"\r\n\r\n" in answer and b"content-length" not in answer.lower():  # an answer that ends with it
            self._takes(answer)
        elif self._text:
            self._timings.fail(f"the connection was closed: {answer[:200]!r}")

    # --- what it says ----------------------------------------------------------------------------------

    def _post(self, body: bytes) -> None:
        head = (
            f"POST {self._target.path} HTTP/1.1\r\nHost: 127.0.0.1:{self._target.port}\r\n{self._fields()}"
            "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        if self._transport is not None:
            self._transport.write(head.encode() + body)

    def _fields(self) -> str:
        """Return the headers that say which session and revision a message is of."""
        return f"Mcp-Session-Id: {self.id}\r\nMcp-Protocol-Version: {VERSION}\r\n" if self.id else ""

    def _call(self) -> None:
        if self._is_stopped:
            return
        if self._transport is None:
            self._reconnecting = asyncio.ensure_future(self._connect())
            self._reconnecting.add_done_callback(lambda _: self._call())
            return
        self._number += 1
        self._text = f"{self._name}-{self._number}.".encode()
        body = (self._before % self._number).encode() + self._text + self._after.encode()
        self._is_measured = self._timings.is_measuring
        self._sent_at = time.perf_counter()
        self._post(body)

    def _take_hello(self, answer: bytes) -> None:
        head = answer[: answer.find(b"\r\n\r\n")].decode("latin-1")
        lines = (line.partition(":") for line in head.split("\r\n"))
        fields = {name.lower(): value.strip() for name, _, value in lines}
        self.id = fields.get("mcp-session-id", "")
        if b'"serverInfo"' not in answer:
            self.begun.set_exception(ConnectionError(f"`initialize` was answered {answer[:300]!r}"))
            return
        self._takes = self._take_accepted
        self._post(_message("notifications/initialized"))

    def _take_accepted(self, answer: bytes) -> None:
        self.begun.set_result(None)

    def _take_answer(self, answer: bytes) -> None:
        now = time.perf_counter()
        is_right = answer.startswith(b"HTTP/1.1 200") and self._text in answer and b'"isError":true' not in answer
        if not is_right:
            self._timings.fail(f"to {self._text!r}: {answer[:400]!r}")
        elif self._is_measured and self._timings.is_measuring:
            self._timings.latencies_s.append(now - self._sent_at)
        self._text = b""
        if wait_s := max(0.0, self._every_s - (now - self._sent_at)):
            asyncio.get_running_loop().call_later(wait_s, self._call)
        else:
            self._call()


class ModernClient(CallingSession):
    """A client that has no session, and says with each call who it is."""

    def __init__(self, name: str, target: Target, timings: Timings, every_s: float = 0.0) -> None:
        meta = {**_ENVELOPE, "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"}}
        params = f'{target.params[:-1]},"_meta":{json.dumps(meta)}}}'
        super().__init__(name, replace(target, params=params), timings, every_s)
        self._name_of_tool = json.loads(target.params)["name"]

    async def open(self) -> None:
        """Connect: there is nothing to begin."""
        await self._connect()
        self.begun.set_result(None)

    def _fields(self) -> str:
        return (
            f"Mcp-Protocol-Version: {MODERN_VERSION}\r\nMcp-Method: tools/call\r\nMcp-Name: {self._name_of_tool}\r\n"
        )


def _is_whole(data: bytes) -> bool:
    """Tell whether these are the bytes of a whole answer; one that ends with its connection is not known to be."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = data[:end].lower()
    at = head.find(b"content-length:")
    if at >= 0:
        return len(data) >= end + 4 + int(head[at + 15 : at + 40].split(b"\r\n")[0])
    if b"transfer-encoding: chunked" in head:
        return data.endswith(b"0\r\n\r\n")
    return head[9:12] in (b"202", b"204")


def _message(method: str, params: Json = None, id: int | None = None) -> bytes:
    message = {"jsonrpc": "2.0", "method": method}
    more = {"id": id, "params": params} if id is not None else {}
    return json.dumps({**message, **more}).encode()


async def open_all(sessions: Sequence[CallingSession]) -> None:
    """Begin sessions, some at once."""
    async with asyncio.timeout(_OPENS_WITHIN_S):
        for first in range(0, len(sessions), _BEGIN_AT_ONCE):
            await asyncio.gather(*(session.open() for session in sessions[first : first + _BEGIN_AT_ONCE]))


async def measure(
    target: Target,
    sessions: int,
    seconds: float,
    *,
    warm_s: float = 0.5,
    every_s: float = 0.0,
    is_modern: bool = False,
) -> Timings:
    """Let so many sessions, or modern clients, call for so many seconds, after a warm-up."""
    timings = Timings()
    kind = ModernClient if is_modern else CallingSession
    callers = [kind(f"t{number}", target, timings, every_s) for number in range(sessions)]
    await open_all(callers)
    for caller in callers:
        caller.start()
    await asyncio.sleep(warm_s)
    await record(timings, seconds)
    for caller in callers:
        caller.close()
    return timings


async def record(timings: Timings, seconds: float) -> None:
    """Measure for so many seconds what calls at the moment."""
    began, timings.is_measuring = time.perf_counter(), True
    await asyncio.sleep(seconds)
    timings.is_measuring, timings.seconds = False, time.perf_counter() - began


# --- idle streams --------------------------------------------------------------------------------------


class _Listening(asyncio.Protocol):
    """An open stream; `opened` says with which head it was answered."""

    def __init__(self, target: Target, id: str) -> None:
        self.opened: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.is_open = True
        self._port = target.port
        self._head = (
            f"GET {target.path} HTTP/1.1\r\nHost: 127.0.0.1:{target.port}\r\nMcp-Session-Id: {id}\r\n"
            f"Mcp-Protocol-Version: {VERSION}\r\nAccept: text/event-stream\r\n\r\n"
        )

    async def open(self) -> None:
        await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", self._port)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(self._head.encode())

    def data_received(self, data: bytes) -> None:
        if not self.opened.done():
            self.opened.set_result(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if not self.opened.done():
            self.opened.set_exception(ConnectionError("the stream was closed"))


async def hold_streams(target: Target, sessions: int) -> None:
    """Open sessions, tell when all are idle and when all listen, and hold them; a line of the input goes on."""
    callers = [CallingSession(f"i{number}", target, Timings()) for number in range(sessions)]
    await open_all(callers)
    for caller in callers:
        caller.close()
    await _tell({"sessions": len(callers)})
    streams = [_Listening(target, caller.id) for caller in callers]
    for stream in streams:
        await stream.open()
    heads = await asyncio.gather(*(stream.opened for stream in streams))
    await _tell({"streams": sum(head.startswith(b"HTTP/1.1 200") for head in heads)})
    print(json.dumps({"open": sum(stream.is_open for stream in streams)}), flush=True)


async def _tell(what: Json) -> None:
    print(json.dumps(what), flush=True)
    await asyncio.to_thread(sys.stdin.readline)


def main() -> None:
    """Read the options, measure, and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--path", default="/mcp")
    options.add_argument("--params", default=ECHO)
    options.add_argument("--sessions", type=int, default=32)
    options.add_argument("--seconds", type=float, default=2.0)
    options.add_argument("--every", type=float, default=0.0, help="the seconds from a call of a session to its next")
    options.add_argument("--modern", action="store_true")
    options.add_argument("--streams", action="store_true")
    chosen = options.parse_args()
    target = Target(chosen.port, chosen.path, chosen.params)
    if chosen.streams:
        uvloop.run(hold_streams(target, chosen.sessions))
        return
    calling = measure(target, chosen.sessions, chosen.seconds, every_s=chosen.every, is_modern=chosen.modern)
    timings = uvloop.run(calling)
    print(json.dumps(timings.figures()))


if __name__ == "__main__":
    main()
