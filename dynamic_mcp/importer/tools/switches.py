"""Servers that a tool disables in another file than the one that defines them."""

from __future__ import annotations

from collections.abc import Iterator

from dynamic_mcp.importer.adapter import Adapter, SwitchFile, find_values
from dynamic_mcp.importer.formats import parser
from dynamic_mcp.importer.model import Machine, Scope
from dynamic_mcp.importer.tools import locations


def find_disabled(adapter: Adapter, machine: Machine, scope: Scope) -> tuple[str, ...]:
    """Return the names, or globs, of this scope's servers that the tool's other files disable."""
    files = (each for each in adapter.off_elsewhere if scope is not Scope.USER or not _is_project_file(each))
    return tuple(name for each in files for name in _read_names(each, machine))


def find_disabled_here(adapter: Adapter, machine: Machine) -> tuple[str, ...]:
    """Return the names, or globs, of the servers that a project's file disables."""
    return tuple(
        name for each in adapter.off_elsewhere if _is_project_file(each) for name in _read_names(each, machine)
    )


def _is_project_file(switches: SwitchFile) -> bool:
    return switches.path.startswith("./")


def _read_names(switches: SwitchFile, machine: Machine) -> Iterator[str]:
    file = locations.resolve_path(switches.path, machine)
    if file is None:
        return
    try:
        document = parser.load(file).value
    except parser.UnreadableError:  # only additional settings: the file with the servers reports its own errors
        return
    for path in switches.names:
        yield from (name for name in find_values(document, path) if isinstance(name, str))
    for path in switches.flags:
        for flags in find_values(document, path):
            for name, flag in flags.items() if isinstance(flags, dict) else ():
                if isinstance(flag, dict) and flag.get(switches.key) is False:
                    yield name
