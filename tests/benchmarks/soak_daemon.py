"""Let many windows come and go before one daemon, kill windows and daemons under load, and check the history.

    python -m tests.benchmarks.soak_daemon [--seed 1] [--windows 30] [--arrivals 200] [--window-kills 100]
        [--daemon-kills 100] [--history FILE]

First one daemon serves all arrivals; what it holds is printed before and after. Then as many windows come while
daemons are killed. It ends with what the checker of `tests/history` finds wrong, and with an exit code that tells.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from tests.history.checker import Violation, show
from tests.history.crowd import PRIVATE, SHARED, Crowd, CrowdPlan
from tests.history.harness import journal
from tests.history.record import Event, History, Kind, is_interrupted, parse
from tests.history.windows import Holdings, Leave, Windows, measure_at_rest, processes, settle, write_config

_WITHIN_S = 1200.0
_WARM_UP_WINDOWS = 9


@dataclass(frozen=True)
class Phase:
    """A row of the table: what happened in a part of the run."""

    name: str
    seconds: float
    events: list[Event]
    leaves: Counter[Leave]

    def row(self) -> dict[str, str]:
        """Return the columns of the table."""
        counts = Counter(event.kind for event in self.events)
        sent = sum(event.operation is not None for event in self.events)
        lines = [event.line for event in self.events if event.kind is Kind.GOT and b"may have run" in event.line]
        withdrawn = sum(b"has started anew" in event.line for event in self.events if event.kind is Kind.GOT)
        return {
            "phase": self.name,
            "s": f"{self.seconds:.0f}",
            "windows": f"{sum(self.leaves.values())}",
            **{leave.value: f"{self.leaves[leave]}" for leave in Leave},
            "daemon kills": f"{counts[Kind.KILLED]}",
            "requests": f"{sent}",
            "interrupted": f"{sum(is_interrupted(parse(line)) for line in lines)}",
            "withdrawn": f"{withdrawn}",
            "events": f"{len(self.events)}",
        }


class Soak:
    """A run of all phases in one history."""

    def __init__(self, plan: CrowdPlan, windows: Windows, history: History) -> None:
        self.phases: list[Phase] = []
        self.violations: list[Violation] = []
        self._plan = plan
        self._windows = windows
        self._history = history

    async def load(self, watched: Path) -> tuple[Holdings, Holdings]:
        """Let one daemon serve all arrivals; return what it holds before and after them."""
        await self._windows.start_watched(watched)
        pid = await self._windows.find_daemon()
        warm_up = replace(self._plan, name="w", slots=3, arrivals=_WARM_UP_WINDOWS, window_kills=0, daemon_kills=0)
        await self._run("warm-up", warm_up)
        before = await measure_at_rest(pid, watched)
        await self._run("one daemon", replace(self._plan, name="s", daemon_kills=0))
        return before, await settle(pid, watched, before)

    async def kill(self) -> None:
        """Kill the daemon again and again."""
        await self._run("killed daemons", replace(self._plan, name="k"))

    async def _run(self, name: str, plan: CrowdPlan) -> None:
        first, began = len(self._history.events), time.perf_counter()
        crowd = Crowd(plan, self._history, self._windows)
        self.violations = await crowd.run()  # those of the history so far
        seconds = time.perf_counter() - began
        self.phases.append(Phase(name, seconds, self._history.events[first:], crowd.leaves))
        print(f"{name}: {seconds:.0f} s, {len(self.violations)} violations", flush=True)


def show_table(rows: list[dict[str, str]]) -> str:
    """Return rows with equal columns as text."""
    widths = {column: max(len(column), *(len(row[column]) for row in rows)) for column in rows[0]}
    lines = [{column: column for column in widths}, *rows]
    return "\n".join("  ".join(line[column].rjust(width) for column, width in widths.items()) for line in lines)


async def soak(plan: CrowdPlan, file: Path | None) -> bool:
    """Run all phases and print what happened; return whether nothing was wrong."""
    history = History()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with journal(history, *SHARED) as shared, journal(history, *PRIVATE) as private:
            config = write_config(folder, {SHARED[0]: shared, PRIVATE[0]: private}, private=PRIVATE)
            windows = Windows(config, folder, history)
            run = Soak(plan, windows, history)
            try:
                before, after = await run.load(folder / "watched")
                await windows.close()
                await run.kill()
                daemons = len(windows.daemons())
            finally:
                await windows.close()
            left = [process for each in (shared, private) for process in processes(each.args[-1].encode())]
            codes, alone = Counter(windows.exit_codes), windows.alone
    violations = show(run.violations, history.events, plan.seed)
    if file is not None:
        file.write_text(violations)  # noqa: ASYNC240 - a benchmark may write
    print(show_table([phase.row() for phase in run.phases]))
    print(f"before: {before}\nafter:  {after}")
    print(f"more than before: {after.growth(before) or 'nothing'}; servers left: {len(left)}; daemons: {daemons}")
    print(f"windows without a daemon: {alone}; exit codes: {codes}")
    print(violations.partition("\nthe history of")[0])
    return not (run.violations or after.growth(before) or left)


def main() -> None:
    """Read the options and run."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--windows", type=int, default=30)
    options.add_argument("--arrivals", type=int, default=200)
    options.add_argument("--window-kills", type=int, default=100)
    options.add_argument("--daemon-kills", type=int, default=100)
    options.add_argument("--history", type=Path, help="write what is wrong, with the events around it, to this file")
    chosen = options.parse_args()
    plan = CrowdPlan(
        chosen.seed,
        "s",
        chosen.windows,
        chosen.arrivals,
        chosen.window_kills,
        chosen.daemon_kills,
        spacing=1000,
        within_s=_WITHIN_S,
        patience_s=60.0,
    )
    raise SystemExit(0 if asyncio.run(soak(plan, chosen.history)) else 1)


if __name__ == "__main__":
    main()
