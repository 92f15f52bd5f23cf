"""Orphans that have become our children are reaped once they have ended; children of other code are left to it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

if sys.platform != "linux":
    pytest.skip("only Linux has subreapers", allow_module_level=True)

from dynamic_mcp.upstream.process.strays import OrphanReaper


@pytest.fixture
def zombie() -> int:
    """A child that has ended and that nobody has reaped."""
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid


def is_reaped(pid: int) -> bool:
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def test_what_has_stayed_a_zombie_for_a_whole_turn_is_reaped(zombie: int) -> None:
    reaper = OrphanReaper(lambda pid: False)

    reaper.sweep()
    reaper.sweep()

    assert is_reaped(zombie)


def test_a_server_that_has_ended_is_left_unreaped(zombie: int) -> None:
    reaper = OrphanReaper(lambda pid: pid == zombie)

    reaper.sweep()
    reaper.sweep()

    assert not is_reaped(zombie)
    os.waitpid(zombie, 0)


def test_whoever_waits_for_a_child_gets_its_exit_code() -> None:
    reaper = OrphanReaper(lambda pid: False)
    child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    reaper.sweep()

    assert child.wait() == 3
