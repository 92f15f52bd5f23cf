"""The first tier has a budget: ten minutes in all, and twenty seconds for a test."""

from __future__ import annotations

import pytest

from tests.fakes import FakeClock
from tests.run_report import RunReport


def phase(name: str, seconds: float) -> pytest.TestReport:
    return pytest.TestReport(name, ("it.py", 1, name), {}, "passed", None, "call", duration=seconds)


@pytest.mark.parametrize(
    ("phases", "minutes", "excesses"),
    [
        ([("a", 19.0), ("b", 19.0)], 9, []),
        ([("a", 11.0), ("a", 12.0)], 9, ["a took 23 s of 20"]),
        ([], 11, ["the first tier took 660 s of 600"]),
    ],
)
def test_an_excess_is_named(phases: list[tuple[str, float]], minutes: int, excesses: list[str]) -> None:
    clock = FakeClock()
    report = RunReport(is_first_tier=True, clock=clock.now)
    for each in phases:
        report.pytest_runtest_logreport(phase(*each))
    clock.time += 60 * minutes
    assert report.find_excesses() == excesses


def test_the_other_tiers_take_what_they_need() -> None:
    report = RunReport(is_first_tier=False)
    report.pytest_runtest_logreport(phase("a", 1000.0))
    assert report.find_excesses() == []


@pytest.mark.parametrize(
    ("platform", "ci", "fails"),
    [("linux", "true", True), ("linux", "", False), ("win32", "true", False), ("darwin", "true", False)],
)
def test_a_run_in_ci_fails_by_its_budget_on_linux(
    monkeypatch: pytest.MonkeyPatch, platform: str, ci: str, *, fails: bool
) -> None:
    monkeypatch.setenv("CI", ci)
    report = RunReport(is_first_tier=True, platform=platform)
    report.pytest_runtest_logreport(phase("a", 1000.0))
    assert report.must_fail() is fails
