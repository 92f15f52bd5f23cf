"""The check at the end of a run finds what a test has left, and says which test that was."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import leftovers
from tests.leftovers import Leftovers


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Leftovers]:
    """A run inside of this one."""
    monkeypatch.setenv(leftovers.FOLDER, os.environ[leftovers.FOLDER])  # which is put back afterwards
    run = Leftovers(ends_within_s=0)
    yield run
    run.pytest_unconfigure()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, to look for processes")
def test_a_process_that_is_left_is_found_until_it_ends(run: Leftovers) -> None:
    home = Path(os.environ[leftovers.FOLDER], "home")
    leftovers.note_home(home, "test_of_it")
    pipe, env = subprocess.PIPE, {**os.environ, "HOME": str(home)}
    with subprocess.Popen(["cat"], stdin=pipe, stdout=pipe, bufsize=0, env=env) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"x")
        assert process.stdout.read(1) == b"x"  # it has begun: before, nothing tells its environment
        assert run.find() == [f"process {process.pid}, `cat`, by test_of_it"]
    assert run.find() == []


def test_a_new_file_in_the_checkout_is_found_until_it_is_removed(run: Leftovers) -> None:
    before = leftovers.list_files()
    file = Path(__file__).parent.parent / f"left-by-a-test-{os.getpid()}"
    file.touch()
    leftovers.note_new_files(before, "test_of_it")
    assert [line for line in run.find() if str(file) in line] == [f"{file}, by test_of_it"]
    file.unlink()
    assert not [line for line in run.find() if str(file) in line]


def test_what_other_programs_write_in_the_folders_of_the_user_is_not_left_by_a_test(
    run: Leftovers, tmp_path: Path
) -> None:
    before = leftovers.list_files([tmp_path])
    (tmp_path / "of-another-program").touch()
    (tmp_path / "dynamic-mcp").mkdir()
    leftovers.note_new_files(before, "test_of_it", [tmp_path])
    assert [line for line in run.find() if str(tmp_path) in line] == [f"{tmp_path / 'dynamic-mcp'}, by test_of_it"]
