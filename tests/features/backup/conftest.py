"""Backups whose passphrase takes no second of a processor."""

from __future__ import annotations

import pytest

from dynamic_mcp.features.backup import age

CHEAP = 10


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(age, "COST", CHEAP)
