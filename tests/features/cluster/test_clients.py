"""Real clients and the conformance suites, before two replicas behind nginx that sends each request to the next."""

from __future__ import annotations

import pytest

from tests import http_program
from tests.conformance.test_server import *  # noqa: F403 - the same tests
from tests.journeys import test_http_clients
from tests.journeys.conftest import typescript as typescript
from tests.journeys.test_http_clients import *  # noqa: F403 - the same tests
from tests.reverse_proxies import find_program, nginx_round_robin

pytestmark = [pytest.mark.full, *test_http_clients.pytestmark]
# Its requests have no session, and the servers have one for each replica: what one changes, the other does not hear.
del test_the_python_sdk_uses_all_of_it_without_a_session  # noqa: F821 - imported above


@pytest.fixture(autouse=True)
def _two_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_program("nginx") is None:
        pytest.skip("nginx is not installed")
    monkeypatch.setattr(http_program, "balancer", nginx_round_robin)
