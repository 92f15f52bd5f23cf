"""The names of a config, and the directory of a window: the same for each way in which Windows writes a path."""

from __future__ import annotations

import ntpath
import os
from pathlib import Path

import pytest

from dynamic_mcp.config.location import config_key, identify, working_directory


def test_on_windows_a_config_has_one_name_whatever_the_case_of_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    spellings = ["c:\\Work\\dynamic-mcp.json", "C:\\work\\dynamic-mcp.json", "C:/work/sub/../dynamic-mcp.json"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "path", ntpath)
        keys = {config_key(each) for each in spellings}
        shown = identify(spellings[0])
    assert len(keys) == 1
    assert shown == "C:\\Work\\dynamic-mcp.json"


@pytest.mark.parametrize(("spelling", "wanted"), [("c:\\Work", "C:\\Work"), ("\\\\nas\\me", "\\\\nas\\me")])
def test_a_window_is_in_the_same_directory_whatever_the_case_of_its_drive(
    monkeypatch: pytest.MonkeyPatch, spelling: str, wanted: str
) -> None:
    monkeypatch.setattr(os, "getcwd", lambda: spelling)
    assert working_directory() == wanted


@pytest.mark.posix_only("names are the same in either case on Windows")
def test_elsewhere_the_case_of_a_path_counts(tmp_path: Path) -> None:
    one, other = tmp_path / "a.json", tmp_path / "A.json"
    assert config_key(one) == str(one)
    assert config_key(one) != config_key(other)
