"""Modern clients beside legacy sessions over HTTP, before servers over stdio and HTTP: nothing crosses or stays.

Clients of one name say the same of themselves, so to a proxy that knows no sessions they are one client.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.history.checker import show
from tests.history.http_crowd import crowded_program
from tests.history.http_sessions import HttpSessions
from tests.history.modern_client import Mixed
from tests.history.modern_http import ModernHttpSessions
from tests.history.modern_upstream import ModernNonceHttp
from tests.history.record import History, Kind
from tests.history.seeds import SEEDS
from tests.history.workload import EXTENSIONS, Plan, Run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")

DOES = ("echo", "work", "ask", "late", "big", "subscribe", "prompt", "complete", "search", "cancel", *EXTENSIONS)
REMOTE = ("c", "web", "modern")


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_crosses_between_clients_of_both_eras_over_http(tmp_path: Path, seed: int) -> None:
    history = History()
    plan = Plan(
        seed,
        ("a", "b", *REMOTE),
        unused=("own",),
        slots=10,
        does=DOES,
        must_update=True,
        patience_s=20.0,
        private=("web", "modern"),
        cancels_late=REMOTE,
        knows_sessions=False,
        leaves_questions=False,  # a client without a session cannot say that it will not come back
    )
    async with (
        ModernNonceHttp("modern", history).listening() as url,
        crowded_program(tmp_path, history, {"modern": url}) as program,
    ):
        legacy, modern = HttpSessions(program.url, history, plan.seed), ModernHttpSessions(program.url)
        host = Mixed(legacy, modern)
        wrong = await Run(plan, history).judge(host)
        await host.close()
        wrong += legacy.violations + modern.violations
    assert not wrong, show(wrong, history.events, plan.seed)
    asked = [event.party for event in history.events if event.kind is Kind.SENT and b'"inputRequests"' in event.line]
    resumed = [event for event in history.events if event.kind is Kind.SENT and b'"id": "q' in event.line]
    assert {name.partition("#")[0] for name in asked} == {"modern"}
    assert len(resumed) > 5
    assert program.exit_code == 0
    assert "a bug" not in program.errors()
