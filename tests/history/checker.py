"""Judges a history: nothing may cross from one session to another, nothing may be lost, nothing may stay behind.

It knows nothing of how a proxy works. It reads what the sessions and the instances of upstreams sent and got.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from tests.history.record import (
    ABRUPTLY,
    DAEMON,
    INPUT_ENDED,
    PART,
    Came,
    Event,
    Expect,
    Json,
    Kind,
    Nonce,
    Operation,
    answers,
    is_interrupted,
    is_unserved,
    nonces_in,
    origins_in,
    parse,
    uris_in,
)
from tests.history.stream_checker import Streams
from tests.history.upstream_checker import Instance, SessionFacts, askable_of, judge_instances
from tests.history.violations import Rule, Violation, show

__all__ = ["Rule", "Violation", "is_waiting_for_upstreams", "judge", "show"]

# Whether what was sent first comes first, though over another stream. Two connections of their own promise no order.
streams_keep_order = True
UI = "io.modelcontextprotocol/ui"
# What an upstream hears of a moment after a session is over.
_SETTLES = (Rule.NOT_CANCELLED, Rule.NOT_UNSUBSCRIBED, Rule.OUTLIVES)
# What a daemon serves anew that another one has left unanswered.
_REPEATABLE = frozenset(
    {
        "initialize",
        "ping",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
        "skills/list",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
    }
)


@dataclass
class _Request:
    """A request of a session, and what has become of it."""

    operation: Operation
    method: str
    params: Json
    sent_after: int = 0  # so many kills
    served_after: int = 0  # so many kills had been followed by an answer when it was sent
    is_cancelled: bool = False
    is_interrupted: bool = False
    is_cut: bool = False  # its client cannot know what became of it
    is_refused: bool = False
    answers: int = 0
    logs: int = 0
    steps: set[float] = field(default_factory=set)

    @property
    def is_open(self) -> bool:
        return not self.answers


@dataclass
class _Question:
    """A question to a session. The counts are those of kills.

    At its arrival, as of the last daemon that had served something then, and at its first withdrawal.
    """

    came_after: int
    served_after: int
    is_answered: bool = False
    withdrawn_after: int | None = None
    must_be_withdrawn: bool = False


def judge(events: Sequence[Event]) -> list[Violation]:
    """Return everything that is wrong with a history, in the order of its rules' discovery."""
    sessions: dict[str, Session] = {}
    instances: dict[str, Instance] = {}
    wrong: list[Violation] = []
    kills, dead = 0, set[str]()
    lost_servers = set[str]()
    are_sessions = {event.party for event in events if event.kind is Kind.OPENED and event.detail}
    for at, event in enumerate(events):
        if event.kind is Kind.KILLED:
            kills += 1
            dead.add(event.party.removeprefix(f"{DAEMON} "))
            for each in sessions.values():
                each.lose_daemon()
            for upstream in instances.values():
                upstream.lose_daemon()
        elif event.kind is Kind.HOME_KILLED:
            dead.add(event.party.removeprefix(f"{DAEMON} "))
            lost_servers.update(event.detail.split())
            for upstream in instances.values():
                if upstream.name.partition(" of ")[2] in dead:
                    upstream.lose_daemon()
        elif event.party in are_sessions:
            session = sessions.setdefault(event.party, Session(event.party, kills, lost_servers))
            wrong += (Violation(rule, event.party, text, at) for rule, text in session.take(event))
        else:
            instance = instances.setdefault(event.party, Instance(event.party))
            if event.party.partition(" of ")[2] in dead:  # which is heard of a little later than it happens
                instance.lose_daemon()
            wrong += (Violation(rule, event.party, text, at) for rule, text in instance.take(event))
            if _is_of_unopened_app(event, sessions):
                wrong.append(Violation(Rule.NOT_OPENED, event.party, _shown(event.line), at))
    for session in sessions.values():
        wrong += (Violation(rule, session.name, text) for rule, text in session.end())
    wrong += _judge_twins(sessions.values())
    facts = {name: session.facts() for name, session in sessions.items()}
    wrong += judge_instances(instances.values(), facts)
    return wrong


def is_waiting_for_upstreams(events: Sequence[Event]) -> bool:
    """Tell whether an upstream has still to hear that somebody has left."""
    return any(violation.rule in _SETTLES for violation in judge(events))


def _is_of_unopened_app(event: Event, sessions: Mapping[str, Session]) -> bool:
    """Tell whether an upstream got a call of what only apps may call, from a session that has none of it."""
    if event.kind is not Kind.GOT or b'"refresh"' not in event.line:
        return False
    group = event.party.partition("#")[0]
    return not all(group in sessions[nonce.session].apps for nonce in nonces_in(event.line))


Found = Iterator[tuple[Rule, str]]


class Session:
    """What one session has sent and got so far."""

    def __init__(self, name: str, kills: int = 0, lost_servers: Set[str] = frozenset()) -> None:
        self.name = name
        self.client = ""
        self.askable = frozenset[str]()
        self.is_closed = False
        self.apps: set[str] = set()  # the servers whose pages a client that shows some has got
        self.requests: dict[str, _Request] = {}
        self.errors: dict[Nonce, tuple[Operation, Json, int]] = {}
        self._shows_apps = False
        self._has_left_in_order = False
        self._is_lost = False
        self._lost_servers = lost_servers  # those that ran for all in a process that is dead
        self._part = b""
        self._streams = Streams()
        self._kills = kills
        self._served_after = kills  # a daemon that began after so many kills has answered
        self._questions: dict[str, _Question] = {}
        self._tokens: dict[str, _Request] = {}
        self._tasks: dict[str, Nonce] = {}
        self._early: list[tuple[Json, bytes]] = []
        self._task_cancels: set[str] = set()
        self._uris: set[str] = set()
        self._logs: set[bytes] = set()

    def facts(self) -> SessionFacts:
        """Return what the judgement of an upstream needs to know."""
        cancelled = {each.operation.nonce for each in self.requests.values() if each.is_cancelled}
        left = {each.operation.nonce for each in self.requests.values() if self.is_closed and self._is_left(each)}
        refused = {each.operation.nonce for each in self.requests.values() if each.is_refused}
        return SessionFacts(
            self.client,
            self.askable,
            self.is_closed,
            frozenset(cancelled),
            frozenset(left - cancelled),
            frozenset(refused),
        )

    def _is_left(self, request: _Request) -> bool:
        return request.is_open or (self._is_lost and request.is_interrupted)

    def take(self, event: Event) -> Found:
        """Judge one event."""
        match event.kind:
            case Kind.OPENED:
                self.client = event.detail
            case Kind.CLOSED:
                self.is_closed = True
                self._has_left_in_order = event.detail == INPUT_ENDED
                if self._part and event.detail != ABRUPTLY:
                    yield Rule.HALF_LINE, _shown(self._part)
            case Kind.LOST:
                self._is_lost = True
            case Kind.CUT:
                self.requests[event.detail].is_cut = True
            case Kind.REFUSED:
                self.requests[event.detail].is_refused = True
            case Kind.SENT:
                self._send(parse(event.line), event.operation)
            case Kind.GOT if event.detail == PART:
                self._part = event.line
            case Kind.GOT:
                yield from self._get(event.line, event.came)

    def lose_daemon(self) -> None:
        """Note that the daemon is dead: what it has asked has to be withdrawn by another."""
        self._kills += 1
        for question in self._questions.values():
            if not question.is_answered and question.withdrawn_after is None:
                question.must_be_withdrawn = True

    def end(self) -> Found:
        """Judge what is still missing at the end of a run."""
        for task, line in [*self._early]:
            if not self.is_closed or task.get("taskId") in self._tasks:
                yield from self._judge_task(task, line)
        has_lost_streams = any(each.is_cut for each in self.requests.values())  # those of other requests may be on it
        for request in self.requests.values():
            shown = f"{request.operation.name} {request.operation.nonce}"
            if request.is_open and not request.is_cancelled and self._must_answer(request):
                yield Rule.UNANSWERED, shown
            if not request.answers or request.is_interrupted:
                continue
            if request.logs < request.operation.logs and not has_lost_streams:
                yield Rule.LOST_LOG, f"{shown}: {request.logs} of {request.operation.logs} log lines came"
            if len(request.steps) < request.operation.steps:
                yield Rule.LOST_PROGRESS, f"{shown}: {len(request.steps)} of {request.operation.steps} steps came"

    def _must_answer(self, request: _Request) -> bool:
        if request.is_cut or request.is_refused:
            return False
        if self.is_closed:
            return self._has_left_in_order and not request.operation.may_be_left
        return True

    # --- what a session sends --------------------------------------------------------------------------

    def _send(self, message: dict[str, Json], operation: Operation | None) -> None:
        method, params = message.get("method"), message.get("params", {})
        if operation is not None:
            request = self.requests[_key(message["id"])] = _Request(
                operation, str(method), params, self._kills, self._served_after
            )
            if operation.token is not None:
                self._tokens[_key(operation.token)] = request
        if method == "initialize":
            self.askable = askable_of(params)
            self._shows_apps = UI in params.get("capabilities", {}).get("extensions", {})
        elif method == "notifications/cancelled":
            self.requests[_key(params["requestId"])].is_cancelled = True
        elif method == "resources/subscribe":
            self._uris.add(params["uri"])
        elif method == "tasks/cancel":
            self._task_cancels.add(params["taskId"])
        elif method is None and "id" in message:
            self._questions[_key(message["id"])].is_answered = True

    # --- what it gets ----------------------------------------------------------------------------------

    def _get(self, line: bytes, came: Came) -> Found:
        if self.is_closed:
            yield Rule.AFTER_CLOSE, _shown(line)
        for nonce in nonces_in(line):
            if nonce.session != self.name:
                yield Rule.FOREIGN, f"{nonce} in {_shown(line)}"
        try:
            message = parse(line)
        except ValueError:
            yield Rule.HALF_LINE, _shown(line)
            return
        if came.stream:
            yield from self._judge_stream(came, message, line)
        match message:
            case {"method": str(method), "id": id}:
                yield from self._get_question(_key(id), method, line)
            case {"method": str(method)}:
                yield from self._get_notification(method, message.get("params") or {}, line)
            case {"id": id}:
                yield from self._get_answer(_key(id), message, line)

    def _judge_stream(self, came: Came, message: dict[str, Json], line: bytes) -> Found:
        method, is_answer = message.get("method"), "method" not in message
        token = _key((message.get("params") or {}).get("progressToken"))
        progressing = self._tokens.get(token) if method == "notifications/progress" else None
        if is_answer:
            own = answers(message.get("id"))
        elif progressing is not None and "task" not in progressing.params:
            own = answers(progressing.operation.nonce.number)
        else:
            own = ""
        yield from self._streams.take(came, _shown(line), own=own, is_answer=is_answer)

    def _get_question(self, id: str, method: str, line: bytes) -> Found:
        if id in self._questions:
            yield Rule.QUESTION_ID, f"{id}: {_shown(line)}"
        self._questions[id] = _Question(self._kills, self._served_after)
        requests = self._requests_of(line)
        may_be_late = not streams_keep_order and any(each.is_interrupted for each in requests)  # on another stream
        if not may_be_late and not any(each.is_open for each in requests):
            yield Rule.QUESTION_WITHOUT_CALL, f"{method}: {_shown(line)}"

    def _get_notification(self, method: str, params: Json, line: bytes) -> Found:
        match method:
            case "notifications/progress":
                yield from self._get_progress(params, line)
            case "notifications/message":
                if line in self._logs:
                    yield Rule.TWICE, _shown(line)
                self._logs.add(line)
                for request in self._requests_of(line):
                    request.logs += 1
            case "notifications/cancelled":
                if not self._withdraw(self._questions.get(_key(params.get("requestId")))):
                    yield Rule.CANCELLED_UNASKED, _shown(line)
            case "notifications/resources/updated":
                if params.get("uri") not in self._uris:
                    yield Rule.NOT_SUBSCRIBED, _shown(line)
            case "notifications/tasks/status":
                yield from self._judge_task(params, line)

    def _withdraw(self, question: _Question | None) -> bool:
        """Note that a question is withdrawn; tell whether it may be."""
        if question is None:  # it may have been lost with the stream of its call
            return any(each.is_cut for each in self.requests.values())
        first, question.withdrawn_after = question.withdrawn_after, self._kills
        if first is not None:
            question.withdrawn_after = first
            return self._served_after < first  # by a daemon that died before it served anything
        # an answer that a dead daemon, or a dead home of the server, has not taken is not known to the next one
        return not question.is_answered or self._kills > question.served_after or bool(self._lost_servers)

    def _be_served(self, request: _Request) -> Found:
        """Note an answer by a daemon that began after the kills before the request."""
        self._served_after = max(self._served_after, request.sent_after)
        for id, question in self._questions.items():
            is_due = question.must_be_withdrawn and question.came_after < self._served_after
            if is_due and question.withdrawn_after is None:
                question.must_be_withdrawn = False
                yield Rule.NOT_WITHDRAWN, id

    def _get_progress(self, params: Json, line: bytes) -> Found:
        request = self._tokens.get(_key(params.get("progressToken")))
        if request is None:
            yield Rule.TOKEN, f"never given: {_shown(line)}"
            return
        if request.answers and "task" not in request.params:
            yield Rule.TOKEN, f"after the answer: {_shown(line)}"
        if nonces_in(line) != {request.operation.nonce}:
            yield Rule.TOKEN, f"of {request.operation.nonce}: {_shown(line)}"
            return
        step = params.get("progress")
        if step in request.steps:
            yield Rule.TWICE, _shown(line)
        elif request.steps and step != max(request.steps) + 1 and "task" not in request.params:
            yield Rule.LOST_PROGRESS, f"after {max(request.steps)}: {_shown(line)}"
        request.steps.add(step)

    def _get_answer(self, id: str, message: dict[str, Json], line: bytes) -> Found:
        request = self.requests.get(id)
        if request is None:
            yield Rule.ANSWER, f"to nothing: {_shown(line)}"
            return
        request.answers += 1
        operation = request.operation
        if request.answers > 1:
            yield Rule.ANSWER, f"more than one to {operation.nonce}: {_shown(line)}"
        if is_interrupted(message):
            request.is_interrupted = True
            if not self._may_be_interrupted(request):
                yield Rule.INTERRUPTED, f"{operation.name}: {_shown(line)}"
            return
        if is_unserved(message) and self._is_of_lost_server(request):
            request.is_interrupted = True
            request.is_refused = request.method == "tools/call"  # what only reads may have reached it
            return
        yield from self._be_served(request)
        is_stale = operation.about is not None and self._is_of_dead_daemon(operation.about)
        is_error = "error" in message or message["result"].get("isError") is True
        is_forgotten = operation.after is not None and self._is_of_dead_daemon(operation.after)
        if (is_stale and is_error) or (is_forgotten and is_error is not (operation.expect is Expect.ERROR)):
            return
        if is_error is not (operation.expect is Expect.ERROR):
            yield Rule.ANSWER, f"to {operation.name} must be {operation.expect}: {_shown(line)}"
            return
        if is_error:
            error = message.get("error", message.get("result"))
            self.errors[operation.nonce] = (operation, error, self._kills)
            return
        wanted = operation.about or operation.nonce
        if operation.expect is Expect.NONCE and not is_stale and wanted not in nonces_in(line):
            yield Rule.ANSWER, f"to {operation.name} must carry {wanted}: {_shown(line)}"
        if "refused" in line.decode() and operation.name == "ask" and not operation.may_be_refused:
            yield Rule.REFUSED, _shown(line)
        yield from self._judge_origin(request, message["result"], line)
        if request.method == "resources/unsubscribe" and streams_keep_order:
            self._uris.discard(request.params["uri"])
        yield from self._judge_tasks_in(request, message["result"], line)

    def _may_be_interrupted(self, request: _Request) -> bool:
        if self._is_lost or self._is_of_lost_server(request):
            return True
        return request.method not in _REPEATABLE and self._kills > request.served_after

    def _is_of_lost_server(self, request: _Request) -> bool:
        return any(_is_about(request.params, each) for each in self._lost_servers)

    def _judge_origin(self, request: _Request, result: Json, line: bytes) -> Found:
        wanted = request.operation.origins
        if wanted is None:
            return
        found = Counter(origins_in(line))
        # a group that is slow to tell what it has is left out for a while
        may_lack = request.method == "tools/list" or "dynamic-mcp/missing" in result.get("_meta", {})
        if not (found <= Counter(wanted) if may_lack else found == Counter(wanted)):
            yield Rule.ORIGIN, f"{request.operation.name} must be of {wanted}: {_shown(line)}"
        subject = str(request.params.get("uri", "")).removesuffix("/SKILL.md")
        if any(not uri.startswith(subject) for uri in uris_in(result)):
            yield Rule.ORIGIN, f"{subject} was asked for: {_shown(line)}"
        listed = [entry["uri"] for entry in result.get("skills", [])]
        if len(listed) > len({*listed}):
            yield Rule.TWICE, _shown(line)
        if self._shows_apps and subject.startswith("ui://"):
            self.apps |= found.keys()

    def _is_of_dead_daemon(self, nonce: Nonce) -> bool:
        return any(each.sent_after < self._kills for each in self.requests.values() if each.operation.nonce == nonce)

    # --- tasks -----------------------------------------------------------------------------------------

    def _judge_tasks_in(self, request: _Request, result: Json, line: bytes) -> Found:
        if "task" in request.params and "task" in result:
            self._tasks[result["task"]["taskId"]] = request.operation.nonce
        for task in result.get("tasks", []):
            yield from self._judge_task(task, line)
        if request.method in ("tasks/get", "tasks/cancel"):
            yield from self._judge_task(result, line)

    def _judge_task(self, task: Json, line: bytes) -> Found:
        id = task.get("taskId")
        if id not in self._tasks and any(each.is_open and "task" in each.params for each in self._requests_of(line)):
            self._early.append((task, line))  # on another stream than the answer, which says whose it is
        elif id not in self._tasks:
            yield Rule.TASK, f"`{id}` is not of this session: {_shown(line)}"
        elif task.get("status") == "cancelled" and id not in self._task_cancels:
            yield Rule.TASK, f"`{id}` was cancelled by somebody else: {_shown(line)}"
        elif nonces_in(json.dumps(task).encode()) != {self._tasks[id]}:
            yield Rule.TASK, f"`{id}` is of {self._tasks[id]}: {_shown(line)}"

    def _requests_of(self, line: bytes) -> list[_Request]:
        nonces = nonces_in(line)
        return [request for request in self.requests.values() if request.operation.nonce in nonces]


def _judge_twins(sessions: Iterable[Session]) -> Iterator[Violation]:
    """Compare the errors for what is another session's with those for what never existed."""
    for session in sessions:
        for operation, error, kills in session.errors.values():
            if operation.twin is None or operation.twin not in session.errors:
                continue
            other, twin, earlier_kills = session.errors[operation.twin]
            if kills != earlier_kills:
                continue
            texts = [json.dumps(error).replace(operation.subject, "?"), json.dumps(twin).replace(other.subject, "?")]
            if texts[0] != texts[1]:
                yield Violation(Rule.TELLTALE, session.name, " and ".join(texts))


def _is_about(params: Json, server: str) -> bool:
    """Tell whether a request is for this server, by what it names."""
    text = json.dumps(params)
    return any(each in text for each in (f'"group": "{server}"', f'"greet_{server}"', f'"{server}:', f'"{server}__'))


def _key(id: Json) -> str:
    return json.dumps(id)


def _shown(line: bytes) -> str:
    return line[:300].decode("utf-8", "replace").rstrip()
