"""Ways to break a proxy that keeps its sessions apart: on the side of its clients, and on that of its upstreams."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterable

from dynamic_mcp.proxy.proxy import Proxy
from tests.history.harness import Apart, Host, Line, MemoryUpstream, Send, connect, disconnect
from tests.history.record import NOWHERE, RESULT_URI, Json, parse

Routed = Iterable[tuple[int, bytes]]
# Takes a line of a client, and returns what the proxy gets instead.
Rewrite = Callable[[bytes], bytes]
# Takes a line to a session, and returns which lines go to which sessions instead.
Route = Callable[["Misrouted", int, bytes], Routed]


class Misrouted:
    """A host whose lines to clients take another way. Sessions are numbered as they come."""

    def __init__(self, host: Host, route: Route, *, rewrite: Rewrite | None = None) -> None:
        self.memory: dict[str, Json] = {}
        self.open_sessions: set[int] = set()
        self._host = host
        self._route = route
        self._rewrite = rewrite
        self._takes: list[Send] = []

    async def open(self, take: Send) -> Line:
        number = len(self._takes)
        self._takes.append(take)
        self.open_sessions.add(number)
        line = await self._host.open(lambda line, came=NOWHERE, /: self._pass(number, line))
        return _MisroutedLine(self, number, line, self._rewrite)

    async def close(self) -> None:
        await self._host.close()

    def others(self, number: int) -> list[int]:
        """Return the sessions that are open beside this one."""
        return sorted(self.open_sessions - {number})

    def _pass(self, number: int, line: bytes) -> None:
        for to, each in self._route(self, number, line):
            self._takes[to](each)


class _MisroutedLine:
    def __init__(self, host: Misrouted, number: int, line: Line, rewrite: Rewrite | None) -> None:
        self._host = host
        self._number = number
        self._line = line
        self._rewrite = rewrite

    def send(self, line: bytes) -> None:
        self._line.send(self._rewrite(line) if self._rewrite else line)

    async def close(self) -> list[weakref.ref[object]]:
        self._host.open_sessions.discard(self._number)
        return await self._line.close()


# --- between the proxy and its clients ---------------------------------------------------------------------


def as_it_is(host: Misrouted, number: int, line: bytes) -> Routed:
    """Break nothing."""
    yield number, line


def _to_another(method: bytes) -> Route:
    def route(host: Misrouted, number: int, line: bytes) -> Routed:
        others = host.others(number) if b'"%s"' % method in line else []
        yield others[0] if others else number, line

    return route


def _to_everybody(method: bytes) -> Route:
    def route(host: Misrouted, number: int, line: bytes) -> Routed:
        yield number, line
        if b'"%s"' % method in line:
            yield from ((other, line) for other in host.others(number))

    return route


def _every(step: int, then: Callable[[Misrouted, int, bytes], Routed], *, wanted: bytes = b"") -> Route:
    def route(host: Misrouted, number: int, line: bytes) -> Routed:
        count = host.memory["count"] = host.memory.get("count", 0) + (wanted in line)
        return then(host, number, line) if wanted in line and not count % step else [(number, line)]

    return route


def _twice(host: Misrouted, number: int, line: bytes) -> Routed:
    return [(number, line), (number, line)]


def _never(host: Misrouted, number: int, line: bytes) -> Routed:
    return []


def _to_the_next(host: Misrouted, number: int, line: bytes) -> Routed:
    return [(next(iter(host.others(number)), number), line)]


def _to_closed_too(host: Misrouted, number: int, line: bytes) -> Routed:
    yield number, line
    if number > 0 and 0 not in host.open_sessions:
        yield 0, b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'


def _with_every_task(host: Misrouted, number: int, line: bytes) -> Routed:
    message = parse(line)
    if "tasks" in message.get("result", {}):
        known = host.memory.setdefault("tasks", [])
        known += message["result"]["tasks"]
        message["result"]["tasks"] = known
        line = json.dumps(message).encode() + b"\n"
    yield number, line


def _with_the_error_of_a_stranger(host: Misrouted, number: int, line: bytes) -> Routed:
    is_error = b'"error"' in line and b"0000" not in line
    yield number, line.replace(b'"message":"', b'"message":"not yours: ') if is_error else line


def _with_one_id_for_questions(host: Misrouted, number: int, line: bytes) -> Routed:
    message = parse(line)
    if "method" in message and "id" in message:
        line = json.dumps({**message, "id": 1}).encode() + b"\n"
    yield number, line


def _with_results_of_others(host: Misrouted, number: int, line: bytes) -> Routed:
    """Show a kept result to whoever asks for it."""
    message = parse(line)
    results = host.memory.setdefault("results", {})
    for content in message.get("result", {}).get("contents", []):
        results[content["uri"]] = message["result"]
    found = RESULT_URI.search(str(message.get("error", "")))
    if found and found[0] in results:
        line = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results[found[0]]}).encode() + b"\n"
    yield number, line


def _with_answers_of_others(member: str) -> Route:
    """Give each answer with this member to the next request that is answered with one."""

    def route(host: Misrouted, number: int, line: bytes) -> Routed:
        message = parse(line)
        if member in message.get("result", {}):
            before = host.memory.get(member, message["result"])
            host.memory[member] = message["result"]
            line = json.dumps({**message, "result": before}).encode() + b"\n"
        yield number, line

    return route


def _with_withdrawals(host: Misrouted, number: int, line: bytes) -> Routed:
    yield number, line
    if b'"method":"elicitation/create"' in line:
        body = json.dumps({"requestId": parse(line)["id"] + 100}).encode()
        yield number, b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":%s}\n' % body


MISROUTES: dict[str, tuple[Route, str]] = {
    "every seventh line to another session": (_every(7, _to_the_next), "FOREIGN"),
    "progress to another session": (_to_another(b"notifications/progress"), "FOREIGN"),
    "questions to another session": (_to_another(b"elicitation/create"), "QUESTION_WITHOUT_CALL"),
    "questions answered by another client": (_to_another(b"sampling/createMessage"), "FOREIGN"),
    "log lines to everybody": (_to_everybody(b"notifications/message"), "FOREIGN"),
    "status of tasks to everybody": (_to_everybody(b"notifications/tasks/status"), "TASK"),
    "updates to everybody": (_to_everybody(b"notifications/resources/updated"), "NOT_SUBSCRIBED"),
    "log lines twice": (_every(2, _twice, wanted=b"notifications/message"), "TWICE"),
    "log lines lost": (_every(2, _never, wanted=b"notifications/message"), "LOST_LOG"),
    "answers twice": (_every(5, _twice, wanted=b'"result"'), "ANSWER"),
    "answers lost": (_every(20, _never, wanted=b'"result"'), "UNANSWERED"),
    "lines to a closed session": (_to_closed_too, "AFTER_CLOSE"),
    "tasks of others in the list": (_with_every_task, "TASK"),
    "errors that tell": (_with_the_error_of_a_stranger, "TELLTALE"),
    "questions with one id": (_with_one_id_for_questions, "QUESTION_ID"),
    "skills of others": (_with_answers_of_others("skill"), "FOREIGN"),
    "pages of others": (_with_answers_of_others("contents"), "FOREIGN"),
    "kept results for everybody": (_with_results_of_others, "ANSWER"),
    "questions withdrawn that were not asked": (_with_withdrawals, "CANCELLED_UNASKED"),
}


def rename_client(line: bytes) -> bytes:
    """Greet as another client."""
    if b'"initialize"' not in line:
        return line
    message = parse(line)
    message["params"]["clientInfo"]["name"] = "somebody"
    return json.dumps(message).encode()


def _replace(old: bytes, new: bytes) -> Rewrite:
    def rewrite(line: bytes) -> bytes:
        return line.replace(old, new)

    return rewrite


# Before servers `a` and `b`.
REWRITES: dict[str, tuple[Rewrite, str]] = {
    "pages of another server": (_replace(b'"ui://a+', b'"ui://b+'), "ORIGIN"),
    "skills of another server": (_replace(b'"skill://shared', b'"skill://b/shared'), "ORIGIN"),
    "lists of one server": (
        _replace(b'"skills/list", "params": {', b'"skills/list", "params": {"group": "a", '),
        "ORIGIN",
    ),
    "tools of apps for everybody": (
        _replace(b'"roots": {}', b'"roots": {}, "extensions": {"io.modelcontextprotocol/ui": {}}'),
        "NOT_OPENED",
    ),
}


# --- between the proxy and its upstreams -------------------------------------------------------------------


class SwapsTokens(MemoryUpstream):
    """Gives the progress of one call the token of another."""

    def deliver(self, line: bytes, about: int | None) -> None:
        message = parse(line)
        if message.get("method") == "notifications/progress":
            before = self.__dict__.setdefault("before", message["params"]["progressToken"])
            message["params"]["progressToken"] = before
            line = json.dumps(message).encode()
        super().deliver(line, about)


class SwapsAnswers(MemoryUpstream):
    """Gives each text in an answer to the next call that is answered with one."""

    def deliver(self, line: bytes, about: int | None) -> None:
        message = parse(line)
        if "content" in message.get("result", {}):
            before = self.__dict__.get("before", message["result"])
            self.__dict__["before"] = message["result"]
            line = json.dumps({**message, "result": before}).encode()
        super().deliver(line, about)


class HearsNoCancel(MemoryUpstream):
    """Is not told of what was cancelled."""

    def send(self, line: bytes) -> None:
        if b'"notifications/cancelled"' not in line:
            super().send(line)


class HearsNoUnsubscribe(MemoryUpstream):
    """Is not told of the end of a subscription, which is answered in its place."""

    def send(self, line: bytes) -> None:
        if b'"resources/unsubscribe"' in line:
            self.link.receive(b'{"jsonrpc":"2.0","id":%d,"result":{}}' % parse(line)["id"])
        else:
            super().send(line)


class HearsTwice(MemoryUpstream):
    """Gets each call twice."""

    def send(self, line: bytes) -> None:
        if b'"echo"' in line:
            super().send(line)
        super().send(line)


class HearsCancelOfAll(MemoryUpstream):
    """Is told to cancel what it is asked."""

    def send(self, line: bytes) -> None:
        super().send(line)
        if b'"echo"' in line:
            body = json.dumps({"requestId": parse(line)["id"]}).encode()
            super().send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":%s}' % body)


class GetsForeignReplies(MemoryUpstream):
    """Gets the answers that the clients of other sessions gave."""

    replies: list[Json]

    def send(self, line: bytes) -> None:
        message = parse(line)
        if "method" not in message and "result" in message:
            self.replies.append(message["result"])
            line = json.dumps({**message, "result": self.replies[0]}).encode()
        super().send(line)


UPSTREAMS: dict[str, tuple[type[MemoryUpstream], str]] = {
    "progress with the token of another call": (SwapsTokens, "TOKEN"),
    "answers of another call": (SwapsAnswers, "ANSWER"),
    "cancellations that do not arrive": (HearsNoCancel, "NOT_CANCELLED"),
    "subscriptions that do not end": (HearsNoUnsubscribe, "NOT_UNSUBSCRIBED"),
    "calls sent twice": (HearsTwice, "SENT_TWICE"),
    "cancellations that nobody wanted": (HearsCancelOfAll, "CANCELLED_WANTED"),
    "answers of another client": (GetsForeignReplies, "REPLY"),
}


# --- hosts -------------------------------------------------------------------------------------------------


class Hoarding(Apart):
    """A host that holds on to the sessions that have ended, and to their proxies until the very end."""

    def __init__(self, make_proxy: Callable[[], Proxy], *, keeps_sessions: bool) -> None:
        super().__init__(make_proxy)
        self._proxies: list[Proxy] = []
        self._sessions: list[object] = []
        self._keeps_sessions = keeps_sessions

    async def open(self, take: Send) -> Line:
        proxy = self._make_proxy()
        self._proxies.append(proxy)
        return _HoardedLine(proxy, take, self._sessions if self._keeps_sessions else [])

    async def close(self) -> None:
        for proxy in self._proxies:
            await proxy.close()


class _HoardedLine:
    def __init__(self, proxy: Proxy, take: Send, sessions: list[object]) -> None:
        self._proxy = proxy
        self._session = connect(proxy, take)
        self._sessions = sessions

    def send(self, line: bytes) -> None:
        self._session.receive(line)

    async def close(self) -> list[weakref.ref[object]]:
        await disconnect(self._proxy, self._session)
        self._sessions.append(self._session)
        reference: weakref.ref[object] = weakref.ref(self._session)
        del self._session
        return [reference]
