"""Finds what tests leave behind: processes, and files outside of the folder of the run.

That folder has all temporary files, and for each test a home of its own, by which a process that is left tells which
test has started it. A run that leaves something fails. In the folders of the user who runs the tests, other programs
write at the same time: what appears there and is not named after this one is only shown.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.hosting import list_processes

FOLDER = "DYNAMIC_MCP_TEST_FOLDER"  # the variable that has the folder of the run
_POLL_S = 0.1
_OF_A_USER = (".", ".cache", ".config", ".local/share", ".local/state", ".cursor", ".claude")
_CHECKOUT = Path(__file__).parent.parent
_PLACES = (_CHECKOUT, *(Path.home() / name for name in _OF_A_USER))
_NOT_OURS = {
    ".coverage",
    ".hypothesis",
    ".import_linter_cache",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".venv",
    "build",
}


class Leftovers:
    """Looks at the end of a run for what its tests have left, in the process that collects the results."""

    def __init__(self, *, ends_within_s: float = 10.0) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="dm-run-"))
        self._ends_within_s = ends_within_s
        self._left: list[str] = []
        self._appeared: list[str] = []
        os.environ[FOLDER] = str(self._folder)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that leaves something."""
        self._left = self.find()
        self._appeared = list(self._find_files(of_us=False))
        if self._left and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def find(self) -> list[str]:
        """Return what is left, in words; what has just been told to end gets time for that."""
        deadline = time.monotonic() + self._ends_within_s
        while (left := list(self._find_processes())) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return [*left, *self._find_files(of_us=True)]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print it."""
        for each in self._left:
            terminalreporter.line(f"left behind: {each}", red=True)
        for each in self._appeared:
            terminalreporter.line(f"appeared, perhaps by another program: {each}")

    def pytest_unconfigure(self) -> None:
        """Remove the folder of the run."""
        shutil.rmtree(self._folder, ignore_errors=True)
        del os.environ[FOLDER]

    def _find_processes(self) -> Iterator[str]:
        homes = self._read("homes")
        for pid, home, arguments in list_processes():
            if Path(home).is_relative_to(self._folder):
                tests = homes.get(home, {"some test"})
                yield f"process {pid}, `{' '.join(arguments).strip()}`, by {' or '.join(tests)}"

    def _find_files(self, *, of_us: bool) -> Iterator[str]:
        for path, tests in self._read("files").items():
            if os.path.lexists(path) and _is_ours(Path(path)) == of_us:
                yield f"{path}, by {' or '.join(sorted(tests))}"

    def _read(self, kind: str) -> dict[str, set[str]]:
        """Return what the processes of this run have noted: paths, and the tests that they are of."""
        found: dict[str, set[str]] = defaultdict(set)
        for file in self._folder.glob(f"{kind}-*"):
            for line in file.read_text().splitlines():
                path, _, test = line.partition("\t")
                found[path].add(test)
        return found


def use_run_folder(worker: str) -> None:
    """Have temporary files of this process, and of those that it starts, in the folder of the run."""
    folder = Path(os.environ[FOLDER], worker)
    folder.mkdir(exist_ok=True)
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # what pytest itself keeps stays there
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)


def note_home(home: Path, test: str) -> None:
    """Note which test has this home."""
    _note("homes", str(home), test)


def list_files(places: Sequence[Path] = _PLACES) -> set[str]:
    """Return what is in the checkout, and in the folders of the user, each without what is below."""
    found = set[str]()
    for place in places:
        try:
            names = os.listdir(place)  # noqa: PTH208 - twice for each test
            found.update(f"{place}{os.sep}{name}" for name in names if name not in _NOT_OURS)
        except OSError:
            continue
    return found


def note_new_files(before: set[str], test: str, places: Sequence[Path] = _PLACES) -> None:
    """Note what is there since before a test."""
    for path in list_files(places) - before:
        _note("files", path, test)


def _is_ours(path: Path) -> bool:
    return path.is_relative_to(_CHECKOUT) or "dynamic-mcp" in path.name


def _note(kind: str, path: str, test: str) -> None:
    with Path(os.environ[FOLDER], f"{kind}-{os.getpid()}").open("a") as file:
        file.write(f"{path}\t{test}\n")
