"""The installed files that this process was started from, which an upgrade replaces while it runs.

A process never mixes two versions: after its files were replaced, it imports no further modules of this program.
Only builtins are imported at the start, to keep the start of a window fast.
"""

from __future__ import annotations

import os
import sys

import dynamic_mcp

# As in `typing`, which takes longer to load than all of this.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_PACKAGE = "dynamic_mcp"
_DISTRIBUTION = "dynamic-mcp-proxy"
# The directories that installers write to; a program elsewhere was not installed.
_INSTALLED_IN = ("site-packages", "dist-packages")
# The time limit for the new program to print its version, or to start a daemon.
_RUN_WITHIN_S = 10.0


class Installation:
    """The state of the package in `file` when this object was created. Every installer rewrites that file."""

    def __init__(self, file: str | None = dynamic_mcp.__file__) -> None:
        self._file = file or ""
        self._started_from = _identify(self._file)

    def has_changed(self) -> bool:
        """Return whether the files were replaced or removed."""
        return _identify(self._file) != self._started_from

    def is_complete(self) -> bool:
        """Return whether the program can be started now. Runs it, which takes a moment.

        An installer that is not done may have written what `--version` needs, and not yet what serving needs.
        """
        return self._has_all_files() and self.run("--version")

    def _has_all_files(self) -> bool:
        """Return whether all files are there that the installer has listed, which it does at its end."""
        import csv
        from importlib.metadata import distributions
        from pathlib import Path

        folder = Path(self._file).parent.parent
        found = [*distributions(name=_DISTRIBUTION, path=[str(folder)])]
        if not found:
            return folder.name not in _INSTALLED_IN
        records = [
            (each.read_text("RECORD") or "").splitlines() for each in found
        ]  # `files` leaves out what is missing
        return all((folder / row[0]).exists() for record in records for row in csv.reader(record) if row)

    def run(self, *arguments: str) -> bool:
        """Run the currently installed program; return whether it succeeds in time."""
        import subprocess

        command = [sys.executable, "-P", "-m", _PACKAGE, *arguments]
        quiet = subprocess.DEVNULL
        try:
            status = subprocess.run(
                command, stdin=quiet, stdout=quiet, stderr=quiet, timeout=_RUN_WITHIN_S, cwd="/", check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return status.returncode == 0


def guard_imports(installation: Installation) -> None:
    """From now on, raise Upgraded for each import that would load part of another version."""
    sys.meta_path.insert(0, _OwnModules(installation))
    sys.meta_path.append(_MissingModules(installation))


class _OwnModules:
    """The first import hook: refuses modules of this program."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.startswith(f"{_PACKAGE}.") and self._installation.has_changed():
            _refuse(fullname)
        return None


class _MissingModules(_OwnModules):
    """The last import hook: refuses modules that were not found, such as a package that came with another version."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if self._installation.has_changed():
            _refuse(fullname)
        return None


def _refuse(module: str) -> None:
    from dynamic_mcp.errors import Upgraded  # loaded long ago wherever imports are guarded

    raise Upgraded(module)


def _identify(file: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(file)  # noqa: PTH116 - pathlib takes as long to load as all of this
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
