"""Whatever is typed, set, piped in or closed: an exit code that is documented, no traceback, and an end."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, note, settings

from tests import own_process
from tests.cli.fuzzing import LINES, Line, create_files, environment, find_faults

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runs are forks")

FEW, MANY, VERY_MANY = 40, 300, 10_000
RANDOM = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], print_blob=True
)
SAME_EACH_TIME = settings(RANDOM, derandomize=True)
ONCE_FOUND = settings(RANDOM, max_examples=1)  # and all that are kept


@pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=pytest.mark.full)])
def test_no_command_line_ends_in_a_traceback_or_not_at_all(examples: int) -> None:
    _search(settings(SAME_EACH_TIME, max_examples=examples))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_nor_does_one_of_very_many(pytestconfig: pytest.Config) -> None:
    """Others with each run, but for CI: what it tries depends on the change alone."""
    how = SAME_EACH_TIME if pytestconfig.getoption("soak_of_today") else RANDOM
    _search(settings(how, max_examples=VERY_MANY))


@pytest.mark.full
def test_nor_does_one_that_once_did_on_this_machine() -> None:
    _search(ONCE_FOUND)


def _search(how: settings) -> None:
    """Try command lines; what fails is kept for this file, whichever of its tests has found it."""
    how(given(LINES)(_run_fork))()


def _run_fork(line: Line) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        create_files(folder)
        done = own_process.run(
            *line.args,
            stdin=line.stdin,
            env=environment(folder, line.environment),
            cwd=folder,
            closed=line.closed,
            memory=4 << 30,
            timeout=own_process.BOUND_S,
        )
    _assert_faultless(line, done)


@pytest.mark.full
@settings(SAME_EACH_TIME, max_examples=10)
@given(LINES)
def test_nor_does_a_process_of_its_own(line: Line) -> None:
    signs = {0: "<&-", 1: ">&-", 2: "2>&-"}
    script = " ".join(['exec "$@"', *(signs[number] for number in line.closed)])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        create_files(folder)
        done = subprocess.run(
            ["/bin/sh", "-c", script, "sh", sys.executable, "-m", "dynamic_mcp", *line.args],
            input=line.stdin,
            capture_output=True,
            cwd=folder,
            env=environment(folder, line.environment),
            timeout=60,
            check=False,
        )
    _assert_faultless(line, done)


def _assert_faultless(line: Line, done: subprocess.CompletedProcess[bytes]) -> None:
    out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    note(f"{done.returncode}\n{out[-1000:]}\n{err[-3000:]}")
    assert find_faults(line, done.returncode, out, err) == []
