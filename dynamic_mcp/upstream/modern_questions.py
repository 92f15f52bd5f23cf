"""What a modern upstream asks of a legacy client: all questions of one answer at once, each as a request of its own.

MCP 2026-07-28, multi round-trip requests.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Callable, Mapping

from msgspec import Raw

from dynamic_mcp.client import Caller
from dynamic_mcp.errors import InvalidArguments, LinkLost, ProtocolViolation, TimedOut, Unanswered
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.envelope import ASKED_WITH
from dynamic_mcp.mcp.wire import Frame

Prepare = Callable[[Frame, Caller], Frame]


class ModernQuestions:
    """The questions of one link that wait for a client; `capabilities_of` returns what a caller's client declared."""

    def __init__(self, group: str, capabilities_of: Callable[[Caller], Mapping[str, Raw]], prepare: Prepare) -> None:
        self._group = group
        self._capabilities_of = capabilities_of
        self._prepare = prepare
        self._asked: set[asyncio.Task[Raw]] = set()

    def are_open(self) -> bool:
        """Tell whether a client is being asked."""
        return bool(self._asked)

    def end(self) -> None:
        """Ask nothing any more: there is nobody who waits for the answers."""
        for task in self._asked:
            task.cancel("the server has gone")

    async def ask(self, requests: Raw, caller: Caller, *, label: str, until: float) -> Raw:
        """Return `inputResponses` for `inputRequests`, by the time `until` of the loop.

        Raises Unanswered, ProtocolViolation, TimedOut and, after `end`, LinkLost.
        """
        declared = self._capabilities_of(caller)
        frames = {
            key: self._read(request, caller, declared, label)
            for key, request in self._members(requests, label).items()
        }
        loop = asyncio.get_running_loop()
        tasks = {key: loop.create_task(self._ask(frame, caller, label)) for key, frame in frames.items()}
        self._asked.update(tasks.values())
        reason = "the server no longer needs the answer"
        try:
            left_s = until - loop.time()
            await asyncio.wait(
                tasks.values(),
                timeout=None if left_s == math.inf else max(0.0, left_s),
                return_when=asyncio.FIRST_EXCEPTION,
            )
            return self._collect(tasks, label)
        except asyncio.CancelledError as exc:
            reason = exc.args[0] if exc.args else reason
            raise
        finally:
            self._asked.difference_update(tasks.values())
            for task in tasks.values():
                task.cancel(reason)

    def _collect(self, tasks: Mapping[str, asyncio.Task[Raw]], label: str) -> Raw:
        done = [task for task in tasks.values() if task.done()]
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        if any(task.cancelled() for task in done):
            why = "ended while the client was asked"
            raise LinkLost(self._group, why, hint=f"{label} may have run; it was not sent again")
        if len(done) < len(tasks):
            raise TimedOut(self._group, f"the client did not answer in time what {label} needs to go on")
        return Raw(wire.encode({key: task.result() for key, task in tasks.items()}))

    async def _ask(self, frame: Frame, caller: Caller, label: str) -> Raw:
        answer = await caller.ask(frame, _ignore)
        if len(answer.error):
            said = wire.text(wire.member(answer.error, "message")) or "an error without a message"
            why = f"{label} needs an answer of the client to `{frame.method}`, which refuses: {said}"
            raise Unanswered(self._group, why)
        return answer.result

    def _members(self, requests: Raw, label: str) -> dict[str, Raw]:
        try:
            return wire.members(requests)
        except wire.Malformed:
            raise ProtocolViolation(self._group, f"answered {label} with malformed `inputRequests`") from None

    def _read(self, request: Raw, caller: Caller, capabilities: Mapping[str, Raw], label: str) -> Frame:
        """Return a question as a request to a legacy client, if the client said that it can be asked it."""
        method, params = wire.text(wire.member(request, "method")) or "", wire.member(request, "params")
        capability = ASKED_WITH.get(method)
        if capability is None:
            why = f"answered {label} with a request `{method[:40]}`, which is none that clients answer"
            raise ProtocolViolation(self._group, why)
        is_url = wire.text(wire.member(params, "mode")) == "url"
        declared = capabilities.get(capability)
        if declared is None or (is_url and capability == "elicitation" and not len(wire.member(declared, "url"))):
            what = f"`{method}` with a URL" if is_url else f"`{method}`"
            why = f"{label} needs an answer of the client to {what}, which the client did not declare"
            raise Unanswered(self._group, why, hint="use a client that supports it")
        if is_url and not len(wire.member(params, "elicitationId")):
            params = wire.with_member(params, uuid.uuid4().hex, "elicitationId")  # legacy clients require it
        try:
            return self._prepare(Frame(method=method, params=params), caller)
        except InvalidArguments as exc:
            raise Unanswered(self._group, f"{label} {exc.message}") from exc


def _ignore(_: Frame) -> None:
    """Take the client's progress, of which a modern upstream cannot be told."""
