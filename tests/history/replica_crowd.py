"""Sessions that come and go at several processes that are one service, of which one is killed under load."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.history.checker import Rule, Violation, judge
from tests.history.client import Client, RequestInterrupted
from tests.history.http_sessions import Leave
from tests.history.patience import patience
from tests.history.record import ABRUPTLY, History
from tests.history.replica_sessions import ReplicaLine, ReplicaSessions
from tests.history.workload import Life, Plan, Run, describe, settle

_NAMES = ("one", "two", "three")


@dataclass(frozen=True)
class ReplicaCrowdPlan:
    """How large a run is: so many sessions at a time, and arrivals; the kill comes after so many events.

    Sessions go on coming until so many have come since the service was whole again.
    """

    each: Plan
    slots: int = 8
    arrivals: int = 24
    kill_after: int = 600
    arrivals_after: int = 6
    within_s: float = 45.0
    settles_within_s: float = 30.0


class ReplicaCrowd:
    """One run of a plan. `kill` kills the process `victim`, and notes that; it may wait until it runs again."""

    def __init__(
        self,
        plan: ReplicaCrowdPlan,
        history: History,
        host: ReplicaSessions,
        victim: str,
        kill: Callable[[], Awaitable[None]],
    ) -> None:
        self._plan = plan
        self._history = history
        self._host = host
        self._victim = victim
        self._kill = kill
        self._run = Run(plan.each, history)
        self._number = 0
        self._goal = plan.arrivals
        self._is_whole = False

    async def run(self) -> list[Violation]:
        """Let everybody come and go, and return what was wrong."""
        wrong: list[Violation] = []
        try:
            async with asyncio.timeout(self._plan.within_s), asyncio.TaskGroup() as tasks:
                tasks.create_task(self._kill_one())
                for slot in range(self._plan.slots):
                    tasks.create_task(self._fill(slot))
        except (TimeoutError, ExceptionGroup) as exc:
            wrong.append(Violation(Rule.STUCK, "run", describe(exc)))
        await self._host.close()
        await settle(self._history, self._plan.settles_within_s)
        return wrong + self._host.violations + judge(self._history.events)

    async def _kill_one(self) -> None:
        events, host = self._history.events, self._host
        await self._history.until(
            lambda: len(events) >= self._plan.kill_after and host.count_sessions_of(self._victim) > 1
        )
        await self._kill()
        self._is_whole = True
        self._goal = max(self._goal, self._number + self._plan.arrivals_after)

    async def _fill(self, slot: int) -> None:
        choose = random.Random(f"{self._plan.each.seed} {slot}")  # noqa: S311 repeatable
        while self._number < self._goal or not self._is_whole:
            self._number += 1
            name = _NAMES[slot % len(_NAMES)]
            client = Client(self._history, f"r{slot}x{self._number}", name, self._plan.each.patience_s)
            self._host.client, self._host.leave = client, Leave.DELETED
            try:
                await client.open(self._host)
            except RequestInterrupted:  # `initialize` itself
                await client.close(ABRUPTLY)
                continue
            is_lost = await self._live(client, choose)
            await client.close(ABRUPTLY if is_lost else "")

    async def _live(self, client: Client, choose: random.Random) -> bool:
        """Let a session live until its client gives it up; tell whether it was lost."""
        line = client.line
        assert isinstance(line, ReplicaLine)
        life = asyncio.create_task(Life(self._run, client, choose).live())
        over = asyncio.create_task(line.is_over.wait())
        await asyncio.wait({life, over}, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        if not line.is_over.is_set():
            await life
            return line.is_lost
        if line.is_lost:
            async with patience(self._plan.each.patience_s):
                await line.until_all_ended()
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)
        return line.is_lost
