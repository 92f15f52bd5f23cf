"""Whatever is typed, set, piped in or closed: an exit code that is documented, no traceback, and an end.

`pytest tests/cli/test_fuzz.py --hypothesis-profile=long` tries 10,000 command lines.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, note, settings

from tests.cli.fuzzing import LINES, ForkServer, Line, create_files, environment, find_faults, fork_server

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="runs are forks")

IS_LONG = settings.get_current_profile_name() == "long"
CALM = settings(
    deadline=None,
    derandomize=not IS_LONG,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)


@pytest.fixture(scope="module", name="server")
def _server() -> Iterator[ForkServer]:
    with fork_server() as server:
        yield server


@pytest.mark.timeout(0 if IS_LONG else 600)
@settings(CALM, max_examples=10_000 if IS_LONG else 300)
@given(LINES)
def test_no_command_line_ends_in_a_traceback_or_not_at_all(server: ForkServer, line: Line) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        create_files(folder)
        done = server.run(line, folder)
    note(f"{done['code']}\n{done['out'][-1000:]}\n{done['err'][-3000:]}")
    assert find_faults(line, done["code"], done["out"], done["err"]) == []


@settings(CALM, max_examples=10)
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
    out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    note(err[-3000:])
    assert find_faults(line, done.returncode, out, err) == []
