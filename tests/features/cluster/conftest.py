"""Two replicas behind a balancer, for tests that are of one program elsewhere."""

from __future__ import annotations

import pytest

from tests import http_program
from tests.journeys.conftest import typescript
from tests.reverse_proxies import haproxy_pinned, nginx_pinned, nginx_round_robin, skip_without

__all__ = ["typescript"]

# What it needs, and whether it sends each request to the replica that the request names, or to the next.
BALANCERS = {
    "round-robin": ("nginx", nginx_round_robin),
    "pinned-nginx": ("nginx", nginx_pinned),
    "pinned-haproxy": ("haproxy", haproxy_pinned),
}


@pytest.fixture(params=list(BALANCERS))
def two_replicas(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Serve over HTTP by two replicas behind a balancer, whose kind this is."""
    kind: str = request.param
    needed, balancer = BALANCERS[kind]
    skip_without(needed)
    monkeypatch.setattr(http_program, "balancer", balancer)
    return kind
