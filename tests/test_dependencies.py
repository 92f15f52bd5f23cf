"""The distributions that `pyproject.toml` declares are those that the package imports."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import import_module, metadata
from pathlib import Path

import grimp
import pytest

from tests.windows import OF_OTHER_SYSTEMS

ROOT = Path(__file__).parent.parent
# What pywin32 installs, which only Windows has.
OF_PYWIN32 = {"ntsecuritycon", "win32security"}
# Needed by another one without being imported here.
# The parser of ruamel.yaml whose events are read, and the program that runs scripts.
NOT_IMPORTED = {"ruamel-yaml-clib", "pydantic-monty-runtime"}


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    """Else the package would work only as long as another one happens to need the same."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    declared = {to_name(each) for each in [*project["dependencies"], *(each for extra in extras for each in extra)]}
    imported = imported_packages()
    installed = metadata.packages_distributions()
    of_windows = imported & OF_PYWIN32
    imported -= of_windows
    missing = {name for name in imported if name not in installed}
    if missing:
        pytest.skip(f"not installed: {', '.join(sorted(missing))}")
    sources = {name: {to_name(each) for each in installed[name]} for name in imported}
    sources |= {name: {"pywin32"} for name in of_windows}
    undeclared = {name: found for name, found in sources.items() if not found & declared}

    assert undeclared == {}
    assert declared - NOT_IMPORTED - set().union(*sources.values()) == set()


def test_every_module_can_be_imported() -> None:
    every = grimp.build_graph("dynamic_mcp", cache_dir=None).modules
    modules = sorted(every - {"dynamic_mcp.__main__"} - OF_OTHER_SYSTEMS)

    assert len(modules) > 500
    assert [import_module(name).__name__ for name in modules] == modules
    for name in OF_OTHER_SYSTEMS:
        assert name in every
        with pytest.raises((ImportError, AssertionError)):
            import_module(name)


def imported_packages() -> set[str]:
    """Return the top packages of others that are imported anywhere, in functions and for types too."""
    graph = grimp.build_graph("dynamic_mcp", include_external_packages=True, cache_dir=None)
    names = {module.partition(".")[0] for module in graph.modules if graph.is_module_squashed(module)}
    return names - set(sys.stdlib_module_names)


def to_name(requirement: str) -> str:
    """Return the normalized name of a distribution."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()
