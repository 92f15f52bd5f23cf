from __future__ import annotations

import sys
from pathlib import Path

import platformdirs
import pytest

from dynamic_mcp.system import user_dirs

KINDS = ("config", "state", "cache", "log")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "environment",
    [
        {"HOME": "/home/ann"},
        {"HOME": "/home/ann/"},
        {"HOME": "/home/ann", "XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s", "XDG_CACHE_HOME": "/k"},
        {"HOME": "/home/ann", "XDG_CONFIG_HOME": "c", "XDG_STATE_HOME": "./s", "XDG_CACHE_HOME": ""},
        {"HOME": "elsewhere"},
        {"XDG_STATE_HOME": "/s"},
        {},
    ],
)
def test_directories_are_those_of_platformdirs(
    environment: dict[str, str], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    expected = getattr(platformdirs, f"user_{kind}_dir")("dynamic-mcp", appauthor=False)
    assert Path(getattr(user_dirs, f"{kind}_dir")()) == Path(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_another_system_has_its_own(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platformdirs, f"user_{kind}_dir", lambda name, appauthor: f"/Library/{name}")
    assert getattr(user_dirs, f"{kind}_dir")() == "/Library/dynamic-mcp"
