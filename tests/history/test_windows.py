"""Windows that come, go, and are killed, before one daemon that is killed as well: nothing is lost, doubled or left.

`tests/benchmarks/soak_daemon.py` runs the same with many more.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.history.checker import show
from tests.history.crowd import PRIVATE, SHARED, Crowd, CrowdPlan
from tests.history.harness import journal
from tests.history.record import History
from tests.history.seeds import SOAK
from tests.history.windows import Windows, measure_at_rest, processes, settle, write_config
from tests.history.workload import ALL

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")

SEED = 1
# What is over once it was answered, so that a window that ends has nothing to wait for.
ENDING = tuple(each for each in ALL if each != "ask")
# What the kept results and tasks of so few windows cannot need.
MAX_DRIFT_MIB = 16.0


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(CrowdPlan(SEED, "s", slots=3, arrivals=4, window_kills=1), id="some windows"),
        pytest.param(
            CrowdPlan(SEED, "s", slots=6, arrivals=15, window_kills=5, within_s=240), marks=SOAK, id="many windows"
        ),
    ],
)
async def test_whatever_windows_do_their_daemon_is_left_as_it_was(tmp_path: Path, plan: CrowdPlan) -> None:
    history, watched = History(), tmp_path / "watched"
    async with journal(history, *SHARED) as shared, journal(history, *PRIVATE) as private:
        config = write_config(tmp_path, {SHARED[0]: shared, PRIVATE[0]: private}, private=PRIVATE)
        windows = Windows(config, tmp_path, history)
        try:
            await windows.start_watched(watched)
            pid = await windows.find_daemon()
            wrong = []
            for name in ("v", "w"):  # servers that the first ones see compared are shared by the second ones
                first = CrowdPlan(SEED, name, slots=3, arrivals=3, window_kills=0, does=ENDING, leaves_calls=False)
                wrong += await Crowd(first, history, windows).run()
            before = await measure_at_rest(pid, watched)
            wrong += await Crowd(plan, history, windows).run()
            after = await settle(pid, watched, before)
            sessions = await windows.sessions_at_rest()
        finally:
            await windows.close()

        assert not wrong, show(wrong, history.events, SEED)
        assert after.growth(before) == ""
        assert after.memory - before.memory < MAX_DRIFT_MIB
        assert sessions == []
        assert processes(shared.args[-1].encode()) + processes(private.args[-1].encode()) == []


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(
            CrowdPlan(SEED, "s", slots=3, arrivals=4, window_kills=1, daemon_kills=2, spacing=150), id="two daemons"
        ),
        pytest.param(
            CrowdPlan(SEED, "s", slots=6, arrivals=15, window_kills=5, daemon_kills=5, within_s=240),
            marks=SOAK,
            id="five daemons",
        ),
    ],
)
async def test_no_request_is_lost_doubled_or_sent_again_when_daemons_are_killed(
    tmp_path: Path, plan: CrowdPlan
) -> None:
    history = History()
    async with journal(history, *SHARED) as shared, journal(history, *PRIVATE) as private:
        config = write_config(tmp_path, {SHARED[0]: shared, PRIVATE[0]: private}, private=PRIVATE)
        windows = Windows(config, tmp_path, history)
        try:
            wrong = await Crowd(plan, history, windows).run()
            daemons = windows.daemons()
        finally:
            await windows.close()

        assert not wrong, show(wrong, history.events, SEED)
        assert history.kills == plan.daemon_kills
        assert len(daemons) == 1
        assert processes(shared.args[-1].encode()) + processes(private.args[-1].encode()) == []
