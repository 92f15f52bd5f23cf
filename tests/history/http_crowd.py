"""Sessions that come and go over HTTP before five servers, and of which some vanish, in the order of a seed."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from dynamic_mcp.config.resolved import Program
from tests.history.checker import Rule, Violation, judge
from tests.history.client import Client
from tests.history.crowd import SHOWS_APPS
from tests.history.harness import journal
from tests.history.http_program import HttpProgram, serving, write_config
from tests.history.http_sessions import HttpSessions, Leave
from tests.history.http_upstream import NonceHttp
from tests.history.record import ABRUPTLY, History, Json
from tests.history.workload import ALL, Life, Plan, Run, describe, settle

STDIO, REMOTE = ("a", "b", "own"), ("c", "web")
PRIVATE = ("own", "web")
NAMES = ("one", "two", "three")
# A session that has vanished is over after this time.
SESSION_TIMEOUT = "2s"
# What its calls may take until then.
TOOLS_TIMEOUT = "5s"


@dataclass(frozen=True)
class HttpCrowdPlan:
    """How large a run is: so many sessions at a time, arrivals, and sessions that vanish.

    `name` tells the sessions from those of other runs in the same history.
    """

    seed: int
    name: str
    slots: int
    arrivals: int
    vanishing: int
    operations: int = 8
    within_s: float = 60.0
    patience_s: float = 20.0
    settles_within_s: float = 20.0

    def for_each(self) -> Plan:
        """Return what each session does."""
        return Plan(
            self.seed,
            (*STDIO, *REMOTE),
            operations=self.operations,
            does=(*ALL, "late"),
            must_update=True,
            patience_s=self.patience_s,
            private=PRIVATE,
            cancels_late=REMOTE,
        )


class HttpCrowd:
    """One run of a plan. `leaves` counts how sessions have left."""

    def __init__(self, plan: HttpCrowdPlan, history: History, host: HttpSessions) -> None:
        self.leaves: Counter[Leave] = Counter()
        self._plan = plan
        self._history = history
        self._host = host
        self._run = Run(plan.for_each(), history)
        self._coming = [Leave.VANISHED] * plan.vanishing + [Leave.DELETED] * (plan.arrivals - plan.vanishing)
        random.Random(plan.seed).shuffle(self._coming)  # noqa: S311 repeatable
        self._number = 0

    async def run(self) -> list[Violation]:
        """Let everybody come and go, and return what was wrong."""
        wrong: list[Violation] = []
        try:
            async with asyncio.timeout(self._plan.within_s), asyncio.TaskGroup() as slots:
                for slot in range(self._plan.slots):
                    slots.create_task(self._fill(slot))
        except (TimeoutError, ExceptionGroup) as exc:
            wrong.append(Violation(Rule.STUCK, "run", describe(exc)))
        await self._host.close()
        await settle(self._history, self._plan.settles_within_s)
        return wrong + self._host.violations + judge(self._history.events)

    async def _fill(self, slot: int) -> None:
        choose = random.Random(f"{self._plan.seed} {slot}")  # noqa: S311 repeatable
        while self._coming:
            leave = self._coming.pop()
            self._number += 1
            client = self._client(f"{slot}x{self._number}", NAMES[slot % len(NAMES)])
            self._host.leave = leave
            await client.open(self._host)
            await Life(self._run, client, choose).live()
            await client.close(ABRUPTLY if leave is Leave.VANISHED else "")
            self.leaves[leave] += 1

    def _client(self, number: str, name: str) -> Client:
        name_here, shows_apps = f"{self._plan.name}{number}", name == SHOWS_APPS
        return Client(self._history, name_here, name, self._plan.patience_s, shows_apps=shows_apps)

    async def warm_up(self) -> None:
        """Let a client of each name call each server, so that all shared instances are there.

        What the first ones see offered is compared, and what is the same is shared by the second ones.
        """
        self._host.leave = Leave.DELETED
        for turn, name in product(("first", "second"), NAMES):
            client = self._client(f"{turn}{name}", name)
            await client.open(self._host)
            for group in (*STDIO, *REMOTE):
                operation = client.operation("echo")
                await client.request(operation, "tools/call", client.call_params(operation, group, "echo"))
            await client.close()


@contextlib.asynccontextmanager
async def crowded_program(
    folder: Path,
    history: History,
    others: Mapping[str, Program | str] | None = None,
    *,
    tools_timeout: str = TOOLS_TIMEOUT,
    **http: Json,
) -> AsyncIterator[HttpProgram]:
    """Serve the five servers, which tell this history what they do, and others, with these settings of HTTP."""
    async with AsyncExitStack() as stack:
        servers: dict[str, Program | str] = {
            **{name: await stack.enter_async_context(journal(history, name)) for name in STDIO},
            **{name: await stack.enter_async_context(NonceHttp(name, history).listening()) for name in REMOTE},
        }
        settings = {"session_timeout": SESSION_TIMEOUT, **http}
        config = write_config(
            folder, {**servers, **(others or {})}, private=PRIVATE, tools_timeout=tools_timeout, http=settings
        )
        yield await stack.enter_async_context(serving(config, folder))
