"""Histories that are written by hand: two sessions of one client, and an instance that greeted it."""

from __future__ import annotations

import json

from tests.history.checker import Rule, judge
from tests.history.record import (
    INTERRUPTED,
    NOWHERE,
    PART,
    Came,
    Event,
    Json,
    Kind,
    Nonce,
    Operation,
)

ONE, TWO = Nonce("one", 1), Nonce("two", 1)
PROGRESS = "notifications/progress"
LOG = "notifications/message"


def message(**members: Json) -> bytes:
    """Return a line."""
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


class Story:
    """A history in the making: two sessions of one client and an instance that greeted it."""

    def __init__(self) -> None:
        self.events = [Event(name, Kind.OPENED, detail="client") for name in ("one", "two")]
        self.upstream_gets(id=0, method="initialize", params={"clientInfo": {"name": "client"}})

    def asks(self, nonce: Nonce, *, method: str = "tools/call", params: Json = None, **facts: Json) -> Story:
        """Let a session send a request, which goes on to the upstream."""
        meta = {"_meta": {"nonce": str(nonce)}}
        operation = Operation(nonce, "call", **facts)
        line = message(id=nonce.number, method=method, params={**(params or {}), **meta})
        self.events.append(Event(nonce.session, Kind.SENT, line, operation))
        return self.upstream_gets(id=f"{nonce}", method=method, params={**(params or {}), **meta})

    def sends(self, session: str, **members: Json) -> Story:
        self.events.append(Event(session, Kind.SENT, message(**members)))
        return self

    def gets(self, session: str, came: Came = NOWHERE, **members: Json) -> Story:
        self.events.append(Event(session, Kind.GOT, message(**members), came=came))
        return self

    def is_answered(self, nonce: Nonce, text: Json = None) -> Story:
        """Let the upstream answer, and the session get it."""
        result = {"content": str(nonce)} if text is None else text
        self.events.append(Event("up", Kind.SENT, message(id=f"{nonce}", result=result)))
        return self.gets(nonce.session, id=nonce.number, result=result)

    def upstream_gets(self, **members: Json) -> Story:
        self.events.append(Event("up", Kind.GOT, message(**members)))
        return self

    def upstream_asks(self, id: int, nonce: Nonce) -> Story:
        self.events.append(Event("up", Kind.SENT, message(id=id, method="roots/list", params={"n": str(nonce)})))
        return self

    def closes(self, party: str, how: str = "") -> Story:
        self.events.append(Event(party, Kind.CLOSED, detail=how))
        return self

    def kills(self) -> Story:
        """Let the daemon die, and its upstream with it; another one begins."""
        self.events.append(Event("daemon", Kind.KILLED))
        return self.closes("up")

    def is_interrupted(self, nonce: Nonce) -> Story:
        return self.gets(nonce.session, id=nonce.number, error={"message": INTERRUPTED})

    def gets_part(self, session: str, line: bytes) -> Story:
        self.events.append(Event(session, Kind.GOT, line, detail=PART))
        return self

    @property
    def rules(self) -> list[Rule]:
        return [violation.rule for violation in judge(self.events)]
