"""Finds the files of a tool on a machine. Each system's paths can be resolved on every other system."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from dynamic_mcp.importer.adapter import Adapter, FileLocation
from dynamic_mcp.importer.model import Machine, ToolScope

_MOST_MATCHES = 200
_WORD = re.compile(r"\{(?P<name>[A-Za-z_]+)(?:\|(?P<otherwise>[^}]*))?\}")


def find_files(adapter: Adapter, machine: Machine, scopes: Collection[ToolScope]) -> list[tuple[FileLocation, Path]]:
    """Return the existing files, each once, in the order of the adapter's places, the project's nearest first."""
    found: dict[tuple[ToolScope, Path], FileLocation] = {}
    for place in adapter.places:
        if place.scope in scopes and machine.platform in place.systems:
            for file in _find_existing(place, machine):
                found.setdefault((place.scope, file), place)
    return [(place, file) for (_, file), place in found.items()]


def list_candidates(
    adapter: Adapter, machine: Machine, scopes: Collection[ToolScope]
) -> list[tuple[FileLocation, Path]]:
    """Return the files that a tool would read if they existed, except those with globs in their names.

    Where a package of the tool is installed, its file is the only one that counts.
    """
    candidates = [
        (place, file)
        for place in adapter.places
        if place.scope in scopes and machine.platform in place.systems
        for file in _list_candidates(place, machine)
    ]
    candidates = [each for each in candidates if each[0].packaged] or candidates
    return list({file: (place, file) for place, file in reversed(candidates)}.values())[::-1]


def _list_candidates(place: FileLocation, machine: Machine) -> list[Path]:
    path = resolve_path(place.path, machine)
    if path is None or ("*" in str(path) and not place.packaged):
        return []
    return _list_in_packages(path) if place.packaged else [path]


def _list_in_packages(pattern: Path) -> list[Path]:
    """Return the file of each package that is installed; the directory of the package has a glob in its name."""
    package = next(i for i, part in enumerate(pattern.parts) if "*" in part)
    folders = _glob(Path(*pattern.parts[: package + 1]))
    return [folder.joinpath(*pattern.parts[package + 1 :]) for folder in folders]


def resolve_path(template: str, machine: Machine) -> Path | None:
    """Return the path of a template; None if it starts with a variable that is not set."""
    filled = template
    if match := _WORD.match(template):
        base = _base_directory(match["name"], machine) or match["otherwise"]
        if not base:
            return None
        filled = base + template[match.end() :]
    if filled == "~" or filled.startswith(("~/", "~\\")):
        return machine.home / filled[2:]
    return machine.project / filled


def _base_directory(name: str, machine: Machine) -> str | None:
    home, environment = str(machine.home), machine.environment
    config = _if_absolute(environment.get("XDG_CONFIG_HOME")) or f"{home}/.config"
    match name, machine.platform:
        case "appdata", "darwin":
            return f"{home}/Library/Application Support"
        case "appdata", "win32":
            return environment.get("APPDATA") or f"{home}/AppData/Roaming"
        case "appdata" | "config", _:
            return config
        case "data", _:
            return _if_absolute(environment.get("XDG_DATA_HOME")) or f"{home}/.local/share"
        case "localappdata", _:
            return environment.get("LOCALAPPDATA") or f"{home}/AppData/Local"
        case "programdata", _:
            return environment.get("PROGRAMDATA") or environment.get("ProgramData") or "C:/ProgramData"
    return environment.get(name)


def _if_absolute(text: str | None) -> str | None:
    # the XDG specification: relative paths must be ignored
    return text if (text and text.startswith(("/", "~"))) or re.match(r"[A-Za-z]:[\\/]", text or "") else None


def _find_existing(place: FileLocation, machine: Machine) -> Iterator[Path]:
    wanted = resolve_path(place.path, machine)
    if wanted is None:
        return
    if "*" in place.path:
        yield from _glob(wanted)
        return
    if _WORD.fullmatch(place.path) and wanted.is_dir():
        return  # the variable is a directory, and another place names the file in it
    for file in [wanted, *(_iter_above(wanted, machine) if place.up else ())]:
        if _exists(file):
            yield file


def _exists(file: Path) -> bool:
    try:
        file.lstat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:  # no permission for the directory: reading the file reports that
        return True
    return True


def _iter_above(file: Path, machine: Machine) -> Iterator[Path]:
    """Yield the same file in the directories above the project, up to the root of its repository."""
    project = machine.project
    if not file.is_relative_to(project):
        return
    above = [project, *project.parents]
    root = next((i for i, directory in enumerate(above) if _exists(directory / ".git")), 0)
    for directory in above[1 : root + 1]:
        yield directory / file.relative_to(project)


def _glob(pattern: Path) -> list[Path]:
    """Return the files that match a path with globs, sorted; `*` matches one level only."""
    fixed = next(i for i, part in enumerate(pattern.parts) if "*" in part)
    base = Path(*pattern.parts[:fixed])
    try:
        found = sorted(base.glob("/".join(pattern.parts[fixed:])))
    except OSError:
        return []
    return found[:_MOST_MATCHES]
