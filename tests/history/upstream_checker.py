"""Judges what the instances of upstreams sent and got: whom they greeted, and what was left to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tests.history.record import Event, Json, Kind, Nonce, nonces_in, parse
from tests.history.violations import Rule, Violation

Found = Iterator[tuple[Rule, str]]
_CALLS = (
    *("tools/call", "prompts/get", "completion/complete"),
    *("resources/read", "resources/directory/read", "skills/get"),
)
# Who an upstream is greeted as that clients of several names share, and what it can ask clients.
_COMMON = "dynamic-mcp"
_ASKABLE = frozenset(("elicitation", "roots", "sampling"))


@dataclass(frozen=True)
class SessionFacts:
    """A session at the end of a run: its client's name, what it can be asked, and its requests without an answer."""

    client: str
    askable: frozenset[str]
    is_closed: bool
    cancelled: frozenset[Nonce]
    left: frozenset[Nonce]
    refused: frozenset[Nonce] = frozenset()


@dataclass
class _Call:
    nonce: Nonce
    method: str
    is_over: bool = False
    is_cancelled: bool = False


class Instance:
    """What one instance has sent and got so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.client = ""
        self.askable = frozenset[str]()
        self.is_closed = False
        self.calls: dict[str, _Call] = {}
        self.subscriptions: dict[str, set[str]] = {}  # a URI -> the sessions that subscribed
        self.is_of_dead_daemon = False
        self._seen: set[Nonce] = set()
        self._questions: dict[str, set[Nonce]] = {}  # by id: about which requests

    def take(self, event: Event) -> Found:
        """Judge one event."""
        match event.kind:
            case Kind.CLOSED:
                self.is_closed = True
            case Kind.SENT:
                self._send(parse(event.line), event.line)
            case Kind.GOT:
                yield from self._get(parse(event.line), event.line)

    def lose_daemon(self) -> None:
        """Note that the daemon that started it is dead."""
        self.is_of_dead_daemon = True

    def _send(self, message: dict[str, Json], line: bytes) -> None:
        match message:
            case {"method": str(), "id": id}:
                self._questions[_key(id)] = nonces_in(line)
            case {"id": id} if _key(id) in self.calls:
                self.calls[_key(id)].is_over = True

    def _get(self, message: dict[str, Json], line: bytes) -> Found:
        nonces = nonces_in(line)
        match message:
            case {"method": "initialize", "params": params}:
                self.client, self.askable = params["clientInfo"]["name"], askable_of(params)
            case {"method": "resources/subscribe", "params": {"uri": uri}}:
                self.subscriptions.setdefault(uri, set()).update(nonce.session for nonce in nonces)
            case {"method": "resources/unsubscribe", "params": {"uri": uri}}:
                self.subscriptions.pop(uri, None)
            case {"method": "notifications/cancelled", "params": {"requestId": id}} if _key(id) in self.calls:
                call = self.calls[_key(id)]
                call.is_cancelled = not call.is_over  # the answer may be on its way
            case {"method": method, "id": id, "params": {"_meta": {"nonce": str(nonce)}}} if method in _CALLS:
                yield from self._get_call(_key(id), method, nonces_in(nonce.encode()).pop())
            case {"id": id} if "method" not in message:
                asked = self._questions.get(_key(id), set())
                sessions = {nonce.session for nonce in asked}
                for signer in nonces:
                    if signer.session not in sessions or (signer.number and signer not in asked):
                        yield Rule.REPLY, f"asked for {sorted(map(str, asked))}, got {line[:300].decode()}"

    def _get_call(self, id: str, method: str, nonce: Nonce) -> Found:
        if nonce in self._seen:
            yield Rule.SENT_TWICE, str(nonce)
        self._seen.add(nonce)
        self.calls[id] = _Call(nonce, method)


def judge_instances(instances: Iterable[Instance], sessions: Mapping[str, SessionFacts]) -> Iterator[Violation]:
    """Judge the instances by what has become of the sessions."""
    seen: dict[Nonce, str] = {}
    for instance in instances:
        if instance.is_of_dead_daemon and not instance.is_closed:
            yield Violation(Rule.OUTLIVES, instance.name, "it still runs")
        for nonce in {call.nonce for call in instance.calls.values()}:
            first = seen.setdefault(nonce, instance.name)
            if first != instance.name:
                yield Violation(Rule.SENT_TWICE, instance.name, f"{nonce}, as to {first}")
        for call in instance.calls.values():
            facts = sessions[call.nonce.session]
            if not _may_serve(instance, facts):
                text = f"{call.nonce} of `{facts.client}`, greeted as `{instance.client}`"
                yield Violation(Rule.GREETING, instance.name, text)
            if call.is_cancelled and call.nonce not in facts.cancelled | facts.left:
                yield Violation(Rule.CANCELLED_WANTED, instance.name, str(call.nonce))
            if call.nonce in facts.refused:
                yield Violation(Rule.RAN, instance.name, str(call.nonce))
            if _is_left(call, instance, facts):
                yield Violation(Rule.NOT_CANCELLED, instance.name, str(call.nonce))
        for uri, names in instance.subscriptions.items():
            if names and not instance.is_closed and all(sessions[name].is_closed for name in names):
                yield Violation(Rule.NOT_UNSUBSCRIBED, instance.name, f"{uri} of {sorted(names)}")


def askable_of(hello: Json) -> frozenset[str]:
    """Return what a client can be asked, by the params of its `initialize` request."""
    return _ASKABLE & {*hello.get("capabilities", {})}


def _may_serve(instance: Instance, facts: SessionFacts) -> bool:
    """Tell whether an upstream was greeted as this client, or for several, with all that this one can be asked."""
    if instance.client == _COMMON:
        return facts.askable <= instance.askable
    return instance.client == facts.client


def _is_left(call: _Call, instance: Instance, facts: SessionFacts) -> bool:
    """Tell whether an upstream still works for nobody. The end of an instance stands for those that left."""
    if call.is_over or call.is_cancelled:
        return False
    may_be_told = not instance.is_closed
    if call.nonce in facts.cancelled:
        return may_be_told or not instance.is_of_dead_daemon
    return call.nonce in facts.left and may_be_told


def _key(id: Json) -> str:
    return json.dumps(id)
