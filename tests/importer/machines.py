"""The case folders: what stands in a tool's file, where the file is on each system, and what becomes of it.

A folder holds the file itself, `expected.json`, and directories `home` and `project` with what lies beside it. In all
of them `<home>` and `<project>` stand for the directories of the machine that a case is put on.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dynamic_mcp.importer.model import Machine, Reading, ToolScope

DIRECTORY = Path(__file__).parent / "cases"
Platform = Literal["linux", "darwin", "win32"]
PLATFORMS: tuple[Platform, ...] = ("linux", "darwin", "win32")


@dataclass(frozen=True)
class Case:
    """One folder, on one system, with the file in one of its places."""

    folder: Path
    platform: Platform
    place: str

    @property
    def tool(self) -> str:
        """The tool whose file it is."""
        return self.folder.parent.name

    @property
    def expected(self) -> dict[str, Any]:  # Any: whatever JSON the case has
        """What is to come of it."""
        loaded: dict[str, Any] = json.loads((self.folder / "expected.json").read_text(encoding="utf-8"))
        return loaded

    def __str__(self) -> str:
        return f"{self.tool}-{self.folder.name}-{self.platform}-{self.place}"


def cases() -> list[Case]:
    """All folders, each on every system and in every place that it names."""
    return [
        Case(folder.parent, platform, place)
        for folder in sorted(DIRECTORY.glob("*/*/expected.json"))
        for platform, places in json.loads(folder.read_text(encoding="utf-8"))["at"].items()
        for place in places
    ]


def machine(root: Path, platform: Platform = "linux", **environment: str) -> Machine:
    """Return an empty machine under `root`."""
    for name in ("home", "project"):
        (root / name).mkdir(exist_ok=True)
    return Machine(root / "home", root / "project", environment, platform)


def put(case: Case, root: Path) -> Machine:
    """Return a machine that the case has been put on."""
    for directory in ("home", "project"):
        if (case.folder / directory).is_dir():
            # `copy2`, its default, needs what Wine lacks
            shutil.copytree(case.folder / directory, root / directory, copy_function=shutil.copy)
    made = machine(root, case.platform, **_filled(case.expected.get("environment", {}), root))
    file = root / case.place
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(case.folder / case.expected["file"], file)
    for copied in (file, *_files(case, root)):
        text = copied.read_text(encoding="utf-8")
        copied.write_text(_in_text(text, root, case.platform), encoding="utf-8")
    return made


def expected(case: Case, root: Path) -> dict[str, Any]:
    """What is to come of a case on the machine under `root`."""
    filled: dict[str, Any] = _filled(case.expected, root, file=str(root / case.place))
    return filled


def scope(case: Case) -> ToolScope:
    """The scope that the case is read in."""
    return ToolScope(case.expected["scope"])


def notices(readings: list[Reading]) -> list[str]:
    """All notices of readings and their servers."""
    return [
        str(notice)
        for reading in readings
        for notice in (*reading.notices, *(each for server in reading.servers for each in server.notices))
    ]


def _files(case: Case, root: Path) -> Iterator[Path]:
    for directory in ("home", "project"):
        for file in (case.folder / directory).rglob("*"):
            if file.is_file():
                yield root / file.relative_to(case.folder)


def comparable(value: Any) -> Any:
    """Return a value with one separator in all paths, which Windows has two of."""
    return json.loads(json.dumps(value).replace("\\\\", "/")) if sys.platform == "win32" else value


def _in_text(text: str, root: Path, platform: Platform = "win32") -> str:
    """Fill in the paths: on Windows with `/`, as Claude Code itself writes them, otherwise as they are, in JSON."""
    for name in ("home", "project"):
        path = root / name
        text = text.replace(f"<{name}>", path.as_posix() if platform == "win32" else json.dumps(str(path))[1:-1])
    return text


def _filled(value: Any, root: Path, file: str = "") -> Any:
    text = _in_text(json.dumps(value), root)
    return json.loads(text.replace("<file>", json.dumps(file)[1:-1]))
