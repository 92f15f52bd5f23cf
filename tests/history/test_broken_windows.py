"""The checker is worth something only if it sees what is broken, also where daemons are killed.

Each of its rules is shown in memory by test_checker.py; these are runs of the program that break what it must see.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.history.broken_windows import (
    BREAKS,
    Break,
    BrokenWindows,
    cut_line,
    lose_answer,
    refuse_everything,
    send_again,
)
from tests.history.checker import Rule, show
from tests.history.crowd import PRIVATE, SHARED, Crowd, CrowdPlan
from tests.history.harness import journal
from tests.history.record import History
from tests.history.windows import Windows, write_config

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc"),
    pytest.mark.soak,
    pytest.mark.timeout(300),
]

# What may be in flight when a daemon dies; none of it waits for what the breaks take away.
PLAN = CrowdPlan(
    3,
    "s",
    slots=4,
    arrivals=4,
    window_kills=4,
    daemon_kills=3,
    operations=16,
    spacing=100,
    does=("echo", "work", "late", "late"),
)


# For what waits in vain.
_SHORT_PATIENCE_S = 5.0
_SEEDS = (3, 4, 5, 6)


async def _rules(plan: CrowdPlan, damage: Break, tmp_path: Path) -> set[Rule]:
    history = History()
    async with journal(history, *SHARED) as shared, journal(history, *PRIVATE) as private:
        config = write_config(tmp_path, {SHARED[0]: shared, PRIVATE[0]: private}, private=PRIVATE)
        windows = Windows(config, tmp_path, history)
        try:
            wrong = await Crowd(plan, history, windows, BrokenWindows(windows, damage)).run()
        finally:
            await windows.close()
        print(show(wrong, history.events, plan.seed))
    return {violation.rule for violation in wrong}


async def test_what_is_not_broken_is_not_reported(tmp_path: Path) -> None:
    assert await _rules(PLAN, lambda _, line: [line], tmp_path) == set()


@pytest.mark.parametrize("broken", BREAKS)
async def test_what_is_broken_when_a_daemon_dies_is_reported(broken: str, tmp_path: Path) -> None:
    damage, rule = BREAKS[broken]
    plan = PLAN
    if damage in (cut_line, lose_answer, send_again):
        plan = replace(PLAN, patience_s=_SHORT_PATIENCE_S)
    elif damage is refuse_everything:
        plan = replace(PLAN, daemon_kills=0)
    for seed in _SEEDS:  # a kill need not meet what is broken in every run
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        if Rule[rule] in await _rules(replace(plan, seed=seed), damage, folder):
            return
    pytest.fail(f"no run has shown {rule}")
