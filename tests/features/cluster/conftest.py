"""Two replicas behind nginx, for tests that are of one program elsewhere."""

from __future__ import annotations

import pytest

from tests import http_program
from tests.reverse_proxies import nginx_round_robin, skip_without


@pytest.fixture
def two_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve over HTTP by two replicas, behind nginx that sends each request to the next."""
    skip_without("nginx")
    monkeypatch.setattr(http_program, "balancer", nginx_round_robin)
