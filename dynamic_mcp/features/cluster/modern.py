"""A request of a modern client that another replica has to answer: a retry, or one about a task or a kept result.

The `requestState` of a retry says which process has given it (`proxy/request_state.py`), and that has the call. Ids
of tasks and results name their replica, and are also in a header. Requests of all other kinds are for any replica.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from dynamic_mcp.face.http.exchange import BodyReceiver
from dynamic_mcp.face.http.messages import parse_message
from dynamic_mcp.identity import Authentication
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.envelope import MAY_ASK
from dynamic_mcp.mcp.mirrored_headers import decode_value
from dynamic_mcp.proxy.request_state import process_of
from dynamic_mcp.proxy.result_store import ROOT

_STATE = b'"requestState"'
_TASKS = b"tasks/"


class MaybeElsewhere:
    """Takes the body of a request, and gives it to `here`, or to what `find` returns for it.

    `find` returns None for what is answered here, and else a coroutine, whose result may be None as well.
    """

    __slots__ = ("_find", "_here", "_is_gone", "_start", "max_body_bytes")

    def __init__(
        self,
        here: BodyReceiver,
        find: Callable[[bytes], Coroutine[Any, Any, BodyReceiver | None] | None],
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
        finding = self._find(body)
        if finding is None:
            self._here.receive_body(body)
        else:
            self._start(self._pass_on(finding, body))

    def refuse_body(self) -> None:
        self._here.refuse_body()

    def disconnected(self) -> None:
        self._is_gone = True
        self._here.disconnected()

    async def _pass_on(self, finding: Coroutine[Any, Any, BodyReceiver | None], body: bytes) -> None:
        receiver = await finding
        if self._is_gone:
            return
        if receiver is not None:
            self._here = receiver
        self._here.receive_body(body)


def find_task(headers: Mapping[bytes, bytes]) -> str:
    """Return the id of the task that a request is about; empty if it is about none."""
    if not headers.get(b"mcp-method", b"").startswith(_TASKS):
        return ""
    return decode_value(headers.get(b"mcp-name", b"")) or ""


def find_result(headers: Mapping[bytes, bytes]) -> str:
    """Return the id of the kept result that a request reads; empty if it reads none."""
    if headers.get(b"mcp-method") != b"resources/read":
        return ""
    uri = decode_value(headers.get(b"mcp-name", b"")) or ""
    return uri.removeprefix(ROOT).partition("?")[0] if uri.startswith(ROOT) else ""


def find_process(body: bytes) -> str:
    """Return the process that has given the state of a request; empty if it has none of ours."""
    if _STATE not in body:
        return ""
    try:
        frame = parse_message(body)
        state = wire.text(wire.member(frame.params, "requestState")) if frame.method in MAY_ASK else None
    except wire.Malformed:
        return ""
    return process_of(state or "")
