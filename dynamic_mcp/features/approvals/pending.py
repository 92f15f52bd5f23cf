"""A request that waits for a user, for a bounded time in which its client gets progress notifications."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from msgspec import Raw

from dynamic_mcp.client import Client
from dynamic_mcp.features.approvals.config import Approval
from dynamic_mcp.features.approvals.questions import ApprovalQuestion
from dynamic_mcp.features.approvals.subject import Subject
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.request import UpstreamRequest
from dynamic_mcp.system.clock import Clock

PROGRESS_EVERY_S = 5.0
# Small enough that the server's own progress still exceeds it.
_PROGRESS_STEP = 0.001

T = TypeVar("T")


class PendingApproval:
    """A request that waits for the answer to its question; longer if its client wants progress notifications.

    `form` is the form for its client; None if the client cannot show it.
    """

    def __init__(
        self,
        message: UpstreamRequest,
        subject: Subject,
        question: ApprovalQuestion,
        settings: Approval,
        clock: Clock,
        *,
        form: Frame | None,
    ) -> None:
        self.message = message
        self.subject = subject
        self.question = question
        self.form = form
        self.since = clock.now()
        self._clock = clock
        self._token = wire.member((message.params or {}).get("_meta", wire.ABSENT), "progressToken")
        self._hold_s = settings.hold_with_progress_s if len(self._token) else settings.hold_s
        self._ends_at = self.since + self._hold_s
        self._decided = asyncio.Event()
        question.join(self._decided.set)
        if question.verdict is not None:
            self._decided.set()

    @property
    def client(self) -> Client:
        return self.message.request.client

    @property
    def left_s(self) -> float:
        return max(0.0, self._ends_at - self._clock.now())

    @property
    def is_over(self) -> bool:
        return self._clock.now() >= self._ends_at

    def close(self) -> None:
        self.question.leave(self._decided.set)

    async def until_decided(self) -> None:
        """Wait until there is an answer, or the time is up."""
        await self._first(self._decided.wait(), self._ends_at)

    async def until_closed(self, form: asyncio.Event) -> None:
        """Wait until another request's form is closed, there is an answer, or the time is up."""
        await self._first(form.wait(), self._ends_at)

    async def ask_client(self, form: Frame) -> Frame | None:
        """Return the client's answer to a form; None if the question was answered elsewhere, or the time is up.

        A modern client does not wait for the request meanwhile, so the request's time restarts afterwards.
        """
        is_parked = self.message.request.revision.is_stateless
        ends_at = self.question.expires_at if is_parked else self._ends_at
        answer = await self._first(self.message.request.ask(form, _ignore), ends_at)
        if is_parked:
            self._ends_at = self._clock.now() + self._hold_s
        return answer

    async def report_progress(self) -> None:
        """Notify the client every five seconds that the request waits, if it asked for progress."""
        steps = 0
        while len(self._token):
            await self._clock.sleep(PROGRESS_EVERY_S)
            steps += 1
            words = f"waiting for approval {self.question.id}"
            body = {"progressToken": self._token, "progress": steps * _PROGRESS_STEP, "message": words}
            self.message.request.notify(Frame(method="notifications/progress", params=Raw(wire.encode(body))))

    async def _first(self, work: Coroutine[Any, Any, T], ends_at: float) -> T | None:
        """Return the result of some work; None if the question is answered first, or the time is up."""
        left_s = ends_at - self._clock.now()
        if left_s <= 0:
            work.close()
            return None
        task = asyncio.ensure_future(work)
        others = [self._decided.wait(), self._clock.sleep(left_s)]
        tasks = [task, *map(asyncio.ensure_future, others)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.wait(tasks)  # the client receives the cancellation of its question


def _ignore(frame: Frame) -> None:
    """Ignore progress notifications."""
