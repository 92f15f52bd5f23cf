"""Modern clients of a run: what a `Client` says in the legacy way goes out in the modern one, and comes back so.

A question in an `input_required` becomes a request to the client, and its answers a retry; a subscription becomes a
`subscriptions/listen`. So the same lives are lived in both eras, and the same checker judges them.
"""

from __future__ import annotations

import itertools
import json
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.session.client_connection import ClientConnection
from dynamic_mcp.session.stream_session import StreamSession
from tests.history.harness import Host, Line, Send, disconnect
from tests.history.record import Json, nonces_in, parse
from tests.history.violations import Rule, Violation

PREFIX = "io.modelcontextprotocol/"
LISTEN = "subscriptions/listen"
_MAY_ASK = ("tools/call", "prompts/get", "resources/read")


class Wire(Protocol):
    """What carries modern messages. Answers and notifications go to `ModernTalk.hear`."""

    def send_message(self, message: Json) -> None:
        """Send a request, whose id is new."""
        ...

    def cancel(self, id: str) -> None:
        """Take it that nobody waits for the answer any more."""
        ...


@dataclass
class _Request:
    """A request of the client, over all its rounds: `wire_id` is that of the latest."""

    message: Json
    wire_id: str
    nonces: set[object]
    state: str | None = None
    answers: dict[str, Json] = field(default_factory=dict)
    awaited: set[str] = field(default_factory=set)


class ModernTalk:
    """One client. `fail` is told what only this side sees: a question or a message that belongs to another call."""

    def __init__(self, wire: Wire, take: Send, fail: Callable[[Rule, str], None]) -> None:
        self._wire = wire
        self._take = take
        self._fail = fail
        self._ids = itertools.count(1)
        self._who: dict[str, Json] = {}
        self._requests: dict[str, _Request] = {}  # by the id of the latest round
        self._questions: dict[str, tuple[_Request, str]] = {}
        self._listens: dict[str, tuple[Json, str]] = {}  # the subscription and its URI, by the id of the listen

    def send(self, line: bytes) -> None:
        """Say a line of a legacy client in the modern way."""
        message = parse(line)
        match message:
            case {"method": "initialize", "params": params}:
                self._who = {
                    f"{PREFIX}protocolVersion": "2026-07-28",
                    f"{PREFIX}clientInfo": params["clientInfo"],
                    f"{PREFIX}clientCapabilities": params["capabilities"],
                    f"{PREFIX}logLevel": "debug",
                }
                self._begin({**message, "method": "server/discover", "params": {}})
            case {"method": "notifications/cancelled", "params": {"requestId": id}}:
                self._cancel(id)
            case {"method": "resources/subscribe", "id": id, "params": {"uri": uri}}:
                wire_id = self._say(LISTEN, {"notifications": {"resourceSubscriptions": [uri]}})
                self._listens[wire_id] = (id, uri)
            case {"method": "resources/unsubscribe", "id": id, "params": {"uri": uri}}:
                self._stop_listening(uri)
                self._give({"id": id, "result": {}})
            case {"method": str(), "id": _}:
                self._begin(message)
            case {"id": id, "result": result}:
                self._answer_question(id, result)

    def hear(self, message: Json, request: str = "") -> None:
        """Take a message of the proxy; `request` is the id of the one on whose stream it came."""
        id = (message.get("params") or {}).get("_meta", {}).get(f"{PREFIX}subscriptionId")
        match message:
            case {"method": "notifications/subscriptions/acknowledged", "params": params}:
                self._acknowledge(id, params["notifications"].get("resourceSubscriptions", []))
            case {"method": "notifications/resources/updated", "params": {"uri": uri}}:
                if id in self._listens:
                    if self._listens[id][1] != uri:
                        self._fail(Rule.NOT_SUBSCRIBED, f"{uri} on a stream for {self._listens[id][1]}")
                    self._give({"method": message["method"], "params": {"uri": uri}})
            case {"method": str()}:
                self._judge(message, self._requests.get(request))
                self._give(message)
            case {"id": wire_id}:
                self._hear_answer(wire_id, message)

    # --- requests --------------------------------------------------------------------------------------

    def _say(self, method: str, params: Json) -> str:
        wire_id = f"m{next(self._ids)}"
        meta = {**params.get("_meta", {}), **self._who}
        self._wire.send_message(
            {"jsonrpc": "2.0", "id": wire_id, "method": method, "params": {**params, "_meta": meta}}
        )
        return wire_id

    def _begin(self, message: Json) -> None:
        nonces: set[object] = set(nonces_in(json.dumps(message).encode()))
        wire_id = self._say(message["method"], message.get("params", {}))
        self._requests[wire_id] = _Request(message, wire_id, nonces)

    def _cancel(self, id: Json) -> None:
        for request in [each for each in self._requests.values() if each.message["id"] == id]:
            del self._requests[request.wire_id]
            self._wire.cancel(request.wire_id)

    def _hear_answer(self, wire_id: str, message: Json) -> None:
        request = self._requests.pop(wire_id, None)
        if request is None:
            return
        result = message.get("result", {})
        if result.get("resultType") == "input_required":
            self._take_questions(request, result)
        else:
            self._give({**message, "id": request.message["id"]})

    def _judge(self, message: Json, request: _Request | None) -> None:
        """Report a message that came on the stream of another call."""
        nonces = nonces_in(json.dumps(message).encode())
        if request is not None and not nonces <= request.nonces:
            self._fail(Rule.WRONG_STREAM, f"{message} on that of {request.message['id']}")

    # --- questions -------------------------------------------------------------------------------------

    def _take_questions(self, request: _Request, result: Json) -> None:
        if request.message["method"] not in _MAY_ASK:
            self._fail(Rule.ANSWER, f"{request.message['method']} was answered {result}")
        request.state = result.get("requestState")
        request.awaited = set(result.get("inputRequests", {}))
        for key, question in result.get("inputRequests", {}).items():
            if not nonces_in(json.dumps(question).encode()) <= request.nonces:
                self._fail(Rule.FOREIGN, f"{question} as a question of {request.message['id']}")
            id = f"q{next(self._ids)}"
            self._questions[id] = (request, key)
            self._give({"id": id, **question})

    def _answer_question(self, id: str, result: Json) -> None:
        request, key = self._questions.pop(id)
        request.answers[key] = result
        if request.awaited <= request.answers.keys():
            answers, request.answers = request.answers, {}
            state = {} if request.state is None else {"requestState": request.state}
            params = {**request.message["params"], **state, "inputResponses": answers}
            request.wire_id = self._say(request.message["method"], params)
            self._requests[request.wire_id] = request

    # --- subscriptions ---------------------------------------------------------------------------------

    def _acknowledge(self, wire_id: str, honoured: list[str]) -> None:
        id, uri = self._listens[wire_id]
        error = {"error": {"code": -32602, "message": f"`{uri}` is not honoured"}}
        self._give({"id": id, **({"result": {}} if uri in honoured else error)})

    def _stop_listening(self, uri: str) -> None:
        for wire_id in [wire_id for wire_id, (_, of) in self._listens.items() if of == uri]:
            del self._listens[wire_id]
            self._wire.cancel(wire_id)

    def _give(self, message: Json) -> None:
        self._take(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


# --- lines -------------------------------------------------------------------------------------------------


# Takes a line for a client, and returns which lines which clients get instead; they are numbered as they come.
BreakLine = Callable[[int, bytes], list[tuple[int, bytes]]]


def as_it_is(number: int, line: bytes) -> list[tuple[int, bytes]]:
    """Break nothing."""
    return [(number, line)]


class ModernShared:
    """One proxy for all sessions, each of which is a modern client at the other end of lines."""

    def __init__(self, proxy: Proxy, break_line: BreakLine = as_it_is) -> None:
        self.violations: list[Violation] = []
        self._proxy = proxy
        self._break_line = break_line
        self._talks: list[ModernTalk | None] = []

    async def open(self, take: Send) -> Line:
        number = len(self._talks)
        line = _ModernLine(self, self._proxy, number, lambda talk: ModernTalk(talk, take, self._fail))
        self._talks.append(line.talk)
        return line

    def pass_on(self, number: int, line: bytes) -> None:
        """Give a line of the proxy to the client that it is for."""
        for to, each in self._break_line(number, line):
            talk = self._talks[to]
            if talk is not None:
                talk.hear(parse(each))

    def forget(self, number: int) -> None:
        """Take it that a client has gone."""
        self._talks[number] = None

    async def close(self) -> None:
        """The proxy is somebody else's."""

    def _fail(self, rule: Rule, text: str) -> None:
        self.violations.append(Violation(rule, "run", text))


class _ModernLine:
    """What a client has of its session, and the wire of its talk."""

    def __init__(
        self, host: ModernShared, proxy: Proxy, number: int, make_talk: Callable[[_ModernLine], ModernTalk]
    ) -> None:
        self.talk = make_talk(self)
        self._host = host
        self._proxy = proxy
        self._number = number
        self._session: StreamSession | None = StreamSession(
            ClientConnection(lambda line: host.pass_on(number, line)), proxy
        )

    def send(self, line: bytes) -> None:
        self.talk.send(line)

    def send_message(self, message: Json) -> None:
        if self._session is not None:
            self._session.receive(json.dumps(message).encode())

    def cancel(self, id: str) -> None:
        self.send_message({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})

    async def close(self) -> list[weakref.ref[object]]:
        session, self._session = self._session, None
        assert session is not None
        await disconnect(self._proxy, session)
        self._host.forget(self._number)
        return [weakref.ref(session)]


class Mixed:
    """Where legacy and modern clients connect in turn."""

    def __init__(self, *hosts: Host) -> None:
        self._hosts = hosts
        self._opened = itertools.count()

    async def open(self, take: Send) -> Line:
        return await self._hosts[next(self._opened) % len(self._hosts)].open(take)

    async def close(self) -> None:
        for host in self._hosts:
            await host.close()
