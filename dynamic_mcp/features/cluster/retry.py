"""A request of a modern client that may be the retry of a call which waits at another replica.

Its `requestState` says which process has given it (`proxy/request_state.py`), and that has the call.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from dynamic_mcp.face.http.exchange import BodyReceiver
from dynamic_mcp.face.http.messages import parse_message
from dynamic_mcp.identity import Authentication
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.envelope import MAY_ASK
from dynamic_mcp.proxy.request_state import process_of

_STATE = b'"requestState"'


class MaybeRetry:
    """Takes the body of a request, and gives it to `here`, or to what `find` returns for the process of its state."""

    __slots__ = ("_find", "_here", "_is_gone", "_start", "max_body_bytes")

    def __init__(
        self,
        here: BodyReceiver,
        find: Callable[[str], Coroutine[Any, Any, BodyReceiver | None]],
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self.max_body_bytes = here.max_body_bytes
        self._here = here
        self._find = find
        self._start = start
        self._is_gone = False

    @property
    def sender(self) -> Authentication | None:
        return self._here.sender

    @property
    def needs_client(self) -> bool:
        return self._here.needs_client

    def receive_body(self, body: bytes) -> None:
        process = _read_process(body) if _STATE in body else ""
        if process:
            self._start(self._pass_on(process, body))
        else:
            self._here.receive_body(body)

    def refuse_body(self) -> None:
        self._here.refuse_body()

    def disconnected(self) -> None:
        self._is_gone = True
        self._here.disconnected()

    async def _pass_on(self, process: str, body: bytes) -> None:
        receiver = await self._find(process)
        if self._is_gone:
            return
        if receiver is not None:
            self._here = receiver
        self._here.receive_body(body)


def _read_process(body: bytes) -> str:
    """Return the process that has given the state of a request; empty if it has none of ours."""
    try:
        frame = parse_message(body)
        state = wire.text(wire.member(frame.params, "requestState")) if frame.method in MAY_ASK else None
    except wire.Malformed:
        return ""
    return process_of(state or "")
