"""Noticing that the program was replaced while it runs, and never loading parts of another version."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from dynamic_mcp.errors import DynamicMcpError, Upgraded
from dynamic_mcp.system.installation import Installation, guard_imports

# Of this program, but loaded by nothing here.
OWN = "dynamic_mcp.search.not_loaded_yet"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "__init__.py"
    file.write_text("__version__ = '1'\n")
    return file


@pytest.fixture(autouse=True)
def _finders() -> Iterator[None]:
    before = [*sys.meta_path]
    yield
    sys.meta_path[:] = before


def replace(file: Path) -> None:
    other = file.with_suffix(".new")
    other.write_text("__version__ = '2'\n")
    other.replace(file)


def test_a_program_whose_files_stay_has_not_changed(file: Path) -> None:
    assert not Installation(str(file)).has_changed()


def test_a_program_that_was_replaced_has_changed(file: Path) -> None:
    installation = Installation(str(file))
    replace(file)
    assert installation.has_changed()


def test_a_program_that_was_removed_has_changed_and_one_that_came_back_as_another_file_too(file: Path) -> None:
    installation = Installation(str(file))
    file.unlink()
    assert installation.has_changed()
    file.write_text("__version__ = '2', 'longer'\n")
    assert installation.has_changed()


def test_before_an_upgrade_a_missing_module_is_a_missing_module(file: Path) -> None:
    guard_imports(Installation(str(file)))
    with pytest.raises(ModuleNotFoundError):
        import_module(OWN)
    with pytest.raises(ModuleNotFoundError):
        import_module("no_package_has_this_name")


def test_after_an_upgrade_a_module_of_the_new_version_is_not_loaded_and_the_error_says_to_restart(file: Path) -> None:
    guard_imports(Installation(str(file)))
    replace(file)
    module = "dynamic_mcp.cli.commands.undo"  # there is one
    sys.modules.pop(module, None)
    with pytest.raises(Upgraded, match="was upgraded: restart it") as caught:
        import_module(module)
    assert isinstance(caught.value, DynamicMcpError)
    assert module not in sys.modules


def test_after_an_upgrade_a_package_that_is_missing_now_is_said_to_be_upgraded_away(file: Path) -> None:
    guard_imports(Installation(str(file)))
    replace(file)
    with pytest.raises(Upgraded):
        import_module("no_package_has_this_name")


def test_after_an_upgrade_what_is_loaded_and_other_packages_are_imported_as_ever(file: Path) -> None:
    guard_imports(Installation(str(file)))
    replace(file)
    assert import_module("dynamic_mcp.errors") is sys.modules["dynamic_mcp.errors"]
    sys.modules.pop("colorsys", None)
    assert import_module("colorsys").rgb_to_hsv


def test_after_an_upgrade_a_plug_in_whose_name_begins_with_that_of_the_program_is_imported(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard_imports(Installation(str(file)))
    replace(file)
    (tmp_path / "dynamic_mcp_plugin_of_a_test.py").write_text("NAME = 'plug-in'\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert import_module("dynamic_mcp_plugin_of_a_test").NAME == "plug-in"


def test_code_that_does_without_a_package_that_is_missing_still_does(file: Path) -> None:
    guard_imports(Installation(str(file)))
    replace(file)
    with pytest.raises(ImportError):
        import_module("no_package_has_this_name")
