"""Where login servers of tests keep what they know."""

from __future__ import annotations

import pytest

from tests.features.login_server import parties


@pytest.fixture(params=["in-a-file", "shared"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test twice: with what is kept in a file of one machine, and in a store that replicas share."""
    monkeypatch.setattr(parties, "is_shared", request.param == "shared")
