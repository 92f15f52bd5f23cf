"""Programs to scan: scripts that note how they were run, and print help."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from dynamic_mcp.features.scan.runner import RunLimits, Runner
from dynamic_mcp.features.scan.scanner import SOURCES, Scan, Scanner, ScanTarget
from tests import windows

_SCRIPT = """\
import json, os, sys
with open({notes!r}, "a") as notes:
    started = {{
        "argv": sys.argv[1:],
        "env": dict(os.environ),
        "files": os.listdir("."),
        "stdin": sys.stdin.read(),
        "is_leader": not hasattr(os, "getpgrp") or os.getpgrp() == os.getpid(),
        # the NUL of Windows is a terminal to its C library
        "is_terminal": os.name != "nt" and any(os.isatty(number) for number in range(3)),
    }}
    notes.write(json.dumps(started) + "\\n")
texts = {texts!r}
words = " ".join(sys.argv[1:])
if words not in texts:
    sys.exit("unknown: " + words)
print(texts[words])
# {comment}
"""


class FakeProgram:
    """A program that prints a text for each of the words it knows."""

    def __init__(self, folder: Path, texts: dict[str, str], *, comment: str = "", name: str = "brew") -> None:
        self._notes = folder / "notes"
        script = _SCRIPT.format(notes=str(self._notes), texts=texts, comment=comment)
        self.file = windows.write_program(folder / name, script)

    @property
    def starts(self) -> list[dict[str, object]]:
        """How it was started, each time."""
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        return [json.loads(line) for line in lines]

    @property
    def words(self) -> list[object]:
        """The words that it was started with."""
        return [start["argv"] for start in self.starts]


async def scan(
    file: Path,
    folder: Path,
    *,
    environment: dict[str, str] | None = None,
    limits: RunLimits | None = None,
    sources: tuple[str, ...] = SOURCES,
    globs: tuple[str, ...] = ("*",),
    depth: int = 3,
) -> Scan:
    """Scan a program in an empty directory."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    environment = environment or {"PATH": "/usr/bin:/bin"}
    if sys.platform == "win32":  # where hardly a program starts without it
        environment = {**environment, "SYSTEMROOT": os.environ["SYSTEMROOT"]}
    runner = Runner(work, environment, limits=limits or RunLimits(run_s=20))
    target = ScanTarget(file=file, name=file.stem, depth=depth, globs=globs, sources=sources)
    return await Scanner(target, runner).scan()
