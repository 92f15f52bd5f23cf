"""The histories of sessions over HTTP, before two replicas behind a balancer that sends each request to the next."""

from __future__ import annotations

import pytest

from tests.history import checker, serve_http
from tests.history.test_broken_streams import *  # noqa: F403 - the same tests
from tests.history.test_http_sessions import *  # noqa: F403 - the same tests

pytestmark = pytest.mark.full


@pytest.fixture(autouse=True)
def _two_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_http, "replicas", 2)
    # an update that was sent before the answer to `resources/unsubscribe` may come after it, over another connection
    monkeypatch.setattr(checker, "streams_keep_order", False)
