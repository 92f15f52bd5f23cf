"""Sessions over HTTP that come, go and vanish before one process and five servers: nothing is lost, doubled or left.

`tests/benchmarks/http_soak.py` runs the same with many more.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.history.checker import show
from tests.history.http_crowd import HttpCrowd, HttpCrowdPlan, crowded_program
from tests.history.http_sessions import HttpSessions, Leave
from tests.history.record import History
from tests.history.seeds import SOAK
from tests.history.windows import measure_at_rest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")

SEED = 1
# What the kept results and tasks of so few sessions cannot need.
MAX_DRIFT_MIB = 16.0


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(HttpCrowdPlan(SEED, "s", slots=4, arrivals=6, vanishing=2), id="some sessions"),
        pytest.param(
            HttpCrowdPlan(SEED, "s", slots=10, arrivals=30, vanishing=8, within_s=240), marks=SOAK, id="many sessions"
        ),
    ],
)
async def test_whatever_sessions_do_the_process_is_left_as_it_was(tmp_path: Path, plan: HttpCrowdPlan) -> None:
    history = History()
    async with crowded_program(tmp_path, history) as program:
        host = HttpSessions(program.url, history, SEED)
        crowd = HttpCrowd(plan, history, host)
        await crowd.warm_up()
        before = await measure_at_rest(program.pid, program.watched)
        kept_before = program.remote_connections()
        wrong = await crowd.run()
        after = await measure_at_rest(program.pid, program.watched)
        kept = program.remote_connections()

    assert not wrong, show(wrong, history.events, SEED)
    assert crowd.leaves == {Leave.DELETED: plan.arrivals - plan.vanishing, Leave.VANISHED: plan.vanishing}
    assert host.counts["resumptions"] > 0
    assert kept <= kept_before + plan.slots
    but_for_kept = replace(after, descriptors=after.descriptors - kept + kept_before)
    assert but_for_kept.growth(before) == ""
    assert after.memory - before.memory < MAX_DRIFT_MIB
    assert program.exit_code == 0
    assert "a bug" not in program.errors()
