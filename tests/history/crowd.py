"""Windows that come and go under load while their daemon is killed again and again, in the order of a seed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass

from tests.history.checker import Rule, Violation, judge
from tests.history.client import Client
from tests.history.harness import Host
from tests.history.record import History
from tests.history.windows import Leave, Windows
from tests.history.workload import ALL, Life, Plan, Run, describe, settle

_SETTLES_WITHIN_S = 10.0
_LAST_CALLS = 3
# The clients of this name show apps: all of one name are alike, so that the first ones tell what is shared.
SHOWS_APPS = "two"
SHARED, PRIVATE = ("a",), ("own",)


@dataclass(frozen=True)
class CrowdPlan:
    """How large a run is: so many windows at a time, arrivals, windows that are killed, and kills of the daemon.

    `name` tells the sessions from those of other runs in the same history. `spacing` is how many events are between
    two kills of the daemon, at most.
    """

    seed: int
    name: str
    slots: int
    arrivals: int
    window_kills: int
    daemon_kills: int = 0
    operations: int = 6
    spacing: int = 400
    within_s: float = 60.0
    patience_s: float = 30.0
    does: tuple[str, ...] = (*ALL, "late")
    leaves_calls: bool = True

    def for_each(self) -> Plan:
        """Return what each session does."""
        return Plan(
            self.seed,
            (*SHARED, *PRIVATE),
            operations=self.operations,
            does=self.does,
            must_update=True,
            patience_s=self.patience_s,
            private=PRIVATE,
            leaves_calls=self.leaves_calls,
        )


class Crowd:
    """One run of a plan. `leaves` counts how windows have left."""

    def __init__(self, plan: CrowdPlan, history: History, windows: Windows, host: Host | None = None) -> None:
        self.leaves: Counter[Leave] = Counter()
        self._plan = plan
        self._history = history
        self._windows = windows
        self._host = host or windows
        self._run = Run(plan.for_each(), history)
        self._choose = random.Random(plan.seed)  # noqa: S311 repeatable
        others = (Leave.INPUT_ENDED, Leave.INPUT_ENDED, Leave.TERMINATED)
        leaves = [others[number % 3] for number in range(plan.arrivals - plan.window_kills)]
        self._coming = [Leave.KILLED] * plan.window_kills + leaves
        self._choose.shuffle(self._coming)
        self._number = 0
        self._kills_left = plan.daemon_kills

    async def run(self) -> list[Violation]:
        """Let everybody come and go, and return what was wrong."""
        wrong: list[Violation] = []
        try:
            async with asyncio.timeout(self._plan.within_s), asyncio.TaskGroup() as tasks:
                killing = tasks.create_task(self._kill_daemons())
                async with asyncio.TaskGroup() as slots:
                    for slot in range(self._plan.slots):
                        slots.create_task(self._fill(slot))
                killing.cancel()
        except (TimeoutError, ExceptionGroup) as exc:
            wrong.append(Violation(Rule.STUCK, "run", describe(exc)))
        await settle(self._history, _SETTLES_WITHIN_S)
        return wrong + judge(self._history.events)

    async def _fill(self, slot: int) -> None:
        """Let one window after the other come, until all have been there and all kills have happened."""
        choose = random.Random(f"{self._plan.seed} {slot}")  # noqa: S311 repeatable
        while self._coming or self._kills_left:
            leave = self._coming.pop() if self._coming else Leave.TERMINATED
            self._number += 1
            name = ("one", "two", "three")[slot % 3]
            client = Client(
                self._history,
                f"{self._plan.name}{slot}x{self._number}",
                name,
                self._plan.patience_s,
                shows_apps=name == SHOWS_APPS,
            )
            self._windows.leave = leave
            await client.open(self._host)
            await Life(self._run, client, choose).live()
            self._call_last(client)
            await client.close(leave.detail)
            self.leaves[leave] += 1

    def _call_last(self, client: Client) -> None:
        """Leave calls in flight that are answered although the input ends."""
        for _ in range(_LAST_CALLS):
            operation = client.operation("echo")
            client.begin(operation, "tools/call", client.call_params(operation, PRIVATE[0], "echo"))

    async def _kill_daemons(self) -> None:
        while self._kills_left:
            goal = len(self._history.events) + self._choose.randrange(self._plan.spacing // 5, self._plan.spacing)
            await self._history.until(lambda goal=goal: len(self._history.events) >= goal)  # type: ignore[misc]
            await self._windows.kill_daemon()
            self._kills_left -= 1
