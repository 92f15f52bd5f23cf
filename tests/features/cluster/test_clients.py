"""Real clients before two replicas behind nginx that sends each request to the next."""

from __future__ import annotations

import pytest

from tests.journeys import test_http_clients
from tests.journeys.conftest import typescript as typescript
from tests.journeys.test_http_clients import *  # noqa: F403 - the same tests

pytestmark = [*test_http_clients.pytestmark, pytest.mark.full, pytest.mark.usefixtures("two_replicas")]
# Its requests have no session, and the servers have one for each replica: what one changes, the other does not hear.
del test_the_python_sdk_uses_all_of_it_without_a_session  # noqa: F821 - imported above
