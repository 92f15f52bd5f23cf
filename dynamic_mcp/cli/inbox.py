"""Handles messages from a proxy to a command: progress, log messages, and forms for the user."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Raw

from dynamic_mcp.cli.output import Output
from dynamic_mcp.errors import INVALID_PARAMS, METHOD_NOT_FOUND
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.system.task_set import TaskSet

if TYPE_CHECKING:
    from dynamic_mcp.cli.terminal_forms import TerminalForms

log = logging.getLogger(__name__)


class Inbox:
    """Shows notifications on stderr, and forms on the terminal if it `may_ask`."""

    def __init__(self, out: Output, send: Callable[[bytes], None], *, may_ask: bool) -> None:
        self._out = out
        self._may_ask = may_ask
        self._forms: TerminalForms | None = None  # imported for the first form
        self._send = send
        self._tasks = TaskSet(log)
        self._questions: dict[bytes, asyncio.Task[None]] = {}

    @property
    def capabilities(self) -> Mapping[str, object]:
        """The client capabilities that the command declares."""
        return {"elicitation": {"form": {}}} if self._may_ask else {}

    def receive(self, frame: Frame) -> None:
        """Handle a notification or a form request; the latter is answered once the user has."""
        if len(frame.id):
            key = bytes(frame.id)
            question = self._questions[key] = self._tasks.create(self._answer(frame), name="question")
            question.add_done_callback(lambda _: self._questions.pop(key, None))
        elif frame.method == "notifications/cancelled":
            withdrawn = self._questions.get(bytes(wire.member(frame.params, "requestId")))
            if withdrawn is not None:
                withdrawn.cancel()
                self._out.say("the question is withdrawn")
        elif frame.method != "notifications/progress" or not self._questions:  # it would stand amid the answer
            _show_notification(self._out, frame)

    async def close(self) -> None:
        """Cancel open forms without an answer."""
        self._tasks.cancel_all()
        await self._tasks.wait()

    async def _answer(self, frame: Frame) -> None:
        if not self._may_ask or frame.method != "elicitation/create":
            answer = wire.error_frame(METHOD_NOT_FOUND, f"a command does not answer `{frame.method}`")
        else:
            try:
                answer = wire.result_frame(await self._ask(frame.params))
            except wire.Malformed as exc:
                answer = wire.error_frame(INVALID_PARAMS, str(exc))
        self._send(wire.answer_line(frame.id, answer))

    async def _ask(self, params: Raw) -> Mapping[str, object]:
        if self._forms is None:
            from dynamic_mcp.cli.terminal_forms import TerminalForms

            self._forms = TerminalForms(self._out)
        return await self._forms.ask(params)


def _show_notification(out: Output, frame: Frame) -> None:
    """Show the progress and the log messages of upstreams on stderr, whatever is in them."""
    try:
        params = wire.members(frame.params)
    except wire.Malformed:
        return
    match frame.method:
        case "notifications/progress":
            message = wire.text(params.get("message")) or ""
            out.update_progress(_format_progress(params, message), "" if "total" in params else message)
        case "notifications/message":
            level, logger = wire.text(params.get("level")) or "info", wire.text(params.get("logger")) or ""
            out.say(f"{level} {logger}: {_format_data(params.get('data', wire.ABSENT))}")


def _format_progress(params: Mapping[str, Raw], message: str) -> str:
    done, total = (wire.value(params.get(name, wire.NULL)) for name in ("progress", "total"))
    far, share = _format_number(done), ""
    if total is not None:
        far += f"/{_format_number(total)}"
    if isinstance(done, int | float) and isinstance(total, int | float) and total > 0:
        with contextlib.suppress(OverflowError):  # of a fraction that no float is large enough for
            share = f" ({min(1.0, max(0.0, done / total)):.0%})"
    return f"progress {far}{share}{': ' if message else ''}{message}"


def _format_number(value: object) -> str:
    if isinstance(value, int | float):
        return f"{value:.10g}" if isinstance(value, float) else str(value)
    return "?"


def _format_data(data: Raw) -> str:
    value = wire.value(data)
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False) if value is not None else bytes(data).decode("utf-8", "replace")
    except RecursionError:
        return "nested too deeply to be shown"
