"""The conformance suites before two replicas behind nginx that sends each request to the next."""

from __future__ import annotations

import pytest

from tests.conformance import test_server
from tests.conformance.test_server import *  # noqa: F403 - the same tests

pytestmark = [test_server.pytestmark, pytest.mark.usefixtures("two_replicas")]  # type: ignore[assignment]
