"""Runs each test in the ways of `hosting.py`. Whatever the way, nothing that a test started is left at its end."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator

import pytest

from tests import hosting
from tests.hosting import ALONE, BOUND_S, DAEMON, Hosting


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test in both ways, or in the one that it is marked to be about.

    The first tier has the second way only of a test that is marked `both_hosts`.
    """
    if "_hosting" in metafunc.fixturenames:
        is_marked = metafunc.definition.get_closest_marker
        if is_marked("alone_only"):
            ways = [pytest.param(ALONE)]
        elif is_marked("daemon_only"):
            ways = [pytest.param(DAEMON)]
        else:
            again = () if is_marked("both_hosts") else pytest.mark.full
            ways = [pytest.param(ALONE), pytest.param(DAEMON, marks=again)]
        metafunc.parametrize("_hosting", ways, indirect=True)


@pytest.fixture(autouse=True)
def _hosting(request: pytest.FixtureRequest, _own_folders: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    has_proc = sys.platform == "linux"
    if request.param == DAEMON and not has_proc:
        pytest.skip("needs /proc, to look for daemons")
    monkeypatch.setattr(hosting, "hosting", Hosting(has_daemon=request.param == DAEMON))
    # a socket's path must be short, and tmp_path is not
    runtime = tempfile.mkdtemp(prefix="dm-")
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    yield
    assert hosting.hosting.may_serve_alone or "this client is served alone" not in hosting.daemon_log()
    if has_proc:
        deadline = time.monotonic() + BOUND_S
        while (left := hosting.survivors()) and time.monotonic() < deadline:
            hosting.wait_for_end(left[0][0], deadline - time.monotonic())
        assert not left
    shutil.rmtree(runtime)
