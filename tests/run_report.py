"""What a run of the tests says at its end: the slowest tests, what was missing on the machine, and what it went over.

In CI (the variable CI is set) a run on Linux fails that goes over its budget; elsewhere it only says so. Other
systems cannot fork a program that is loaded, so each start of one takes longer there.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable

import pytest

_FIRST_TIER_S = 600.0
_TEST_S = 20.0
_SLOWEST = 10


class RunReport:
    """Adds up what the tests took, in the process that collects the results."""

    def __init__(
        self, *, is_first_tier: bool, clock: Callable[[], float] = time.monotonic, platform: str = sys.platform
    ) -> None:
        self._is_first_tier = is_first_tier
        self._clock = clock
        self._platform = platform
        self._started = clock()
        self._seconds: dict[str, float] = defaultdict(float)
        self._missing: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a phase of a test, which includes its subtests."""
        if not isinstance(report, pytest.SubtestReport):
            self._seconds[report.nodeid] += report.duration
        if report.skipped and isinstance(report.longrepr, tuple):
            self._missing[report.longrepr[2].removeprefix("Skipped: ")] += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run in CI that went over its budget."""
        if self.must_fail() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print it."""
        if len(self._seconds) > _SLOWEST:
            terminalreporter.section("slowest tests")
            for test, seconds in sorted(self._seconds.items(), key=lambda each: -each[1])[:_SLOWEST]:
                terminalreporter.line(f"{seconds:6.1f} s  {test}")
        for reason, count in self._missing.most_common():
            terminalreporter.line(f"skipped {count}: {reason}")
        for excess in self.find_excesses():
            terminalreporter.line(f"over budget: {excess}", red=True)

    def must_fail(self) -> bool:
        """Return whether the run is one that must keep its budget, and has not."""
        return self._platform == "linux" and bool(os.environ.get("CI") and self.find_excesses())

    def find_excesses(self) -> list[str]:
        """Return how the first tier went over its budget; the others have none."""
        if not self._is_first_tier:
            return []
        excesses = [
            f"{test} took {took:.0f} s of {_TEST_S:.0f}" for test, took in self._seconds.items() if took > _TEST_S
        ]
        if (took := self._clock() - self._started) > _FIRST_TIER_S:
            excesses.append(f"the first tier took {took:.0f} s of {_FIRST_TIER_S:.0f}")
        return excesses
