"""Noticing that the program was replaced while it runs, and never loading parts of another version."""

from __future__ import annotations

import shutil
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


def install(folder: Path) -> Path:
    """Make an installed program of two modules; return the first."""
    (folder / "dynamic_mcp").mkdir(parents=True)
    record = folder / "dynamic_mcp_proxy-1.dist-info" / "RECORD"
    record.parent.mkdir()
    (record.parent / "METADATA").write_text("Metadata-Version: 2.1\nName: dynamic-mcp-proxy\nVersion: 1\n")
    record.write_text("dynamic_mcp/__init__.py,,\ndynamic_mcp/last.py,,\n")
    for name in ("last.py", "__init__.py"):
        (folder / "dynamic_mcp" / name).write_text("")
    return folder / "dynamic_mcp" / "__init__.py"


def test_an_installed_program_is_complete_with_all_files_that_its_installer_lists(tmp_path: Path) -> None:
    file = install(tmp_path / "site-packages")
    installation = Installation(str(file))
    assert installation.is_complete()
    last = file.with_name("last.py")
    last.unlink()
    assert not installation.is_complete()
    last.write_text("")
    shutil.rmtree(file.parent.parent / "dynamic_mcp_proxy-1.dist-info")
    assert not installation.is_complete()


def test_a_program_that_was_not_installed_is_complete_if_it_runs(tmp_path: Path) -> None:
    file = install(tmp_path / "clone")
    shutil.rmtree(tmp_path / "clone" / "dynamic_mcp_proxy-1.dist-info")
    assert Installation(str(file)).is_complete()


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
