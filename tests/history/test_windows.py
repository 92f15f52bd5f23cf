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
from tests.history.windows import Windows, measure_at_rest, processes, settle, write_config

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")

SEED = 1
# What the kept results and tasks of so few windows cannot need.
MAX_DRIFT_MIB = 16.0


async def test_whatever_windows_do_their_daemon_is_left_as_it_was(tmp_path: Path) -> None:
    history, watched = History(), tmp_path / "watched"
    async with journal(history, *SHARED) as shared, journal(history, *PRIVATE) as private:
        config = write_config(tmp_path, {SHARED[0]: shared, PRIVATE[0]: private}, private=PRIVATE)
        windows = Windows(config, tmp_path, history)
        try:
            await windows.start_watched(watched)
            pid = await windows.find_daemon()
            wrong = await Crowd(CrowdPlan(SEED, "w", slots=3, arrivals=3, window_kills=0), history, windows).run()
            before = await measure_at_rest(pid, watched)
            wrong += await Crowd(CrowdPlan(SEED, "s", slots=6, arrivals=15, window_kills=5), history, windows).run()
            after = await settle(pid, watched, before)
            sessions = await windows.sessions_at_rest()
        finally:
            await windows.close()

        assert not wrong, show(wrong, history.events, SEED)
        assert "; ".join(after.differences(before)) == ""
        assert after.memory - before.memory < MAX_DRIFT_MIB
        assert sessions == []
        assert processes(shared.args[-1].encode()) + processes(private.args[-1].encode()) == []


async def test_no_request_is_lost_doubled_or_sent_again_when_daemons_are_killed(tmp_path: Path) -> None:
    history = History()
    async with journal(history, *SHARED) as shared, journal(history, *PRIVATE) as private:
        config = write_config(tmp_path, {SHARED[0]: shared, PRIVATE[0]: private}, private=PRIVATE)
        windows = Windows(config, tmp_path, history)
        plan = CrowdPlan(SEED, "s", slots=6, arrivals=15, window_kills=5, daemon_kills=5)
        try:
            wrong = await Crowd(plan, history, windows).run()
            daemons = windows.daemons()
        finally:
            await windows.close()

        assert not wrong, show(wrong, history.events, SEED)
        assert history.kills == plan.daemon_kills
        assert len(daemons) == 1
        assert processes(shared.args[-1].encode()) + processes(private.args[-1].encode()) == []
