"""The programs that notify a user on Windows are found by their names, and end with all that they started."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from dynamic_mcp.features.approvals import notices as notices_module
from dynamic_mcp.features.approvals.config import Approval, Notify
from dynamic_mcp.features.approvals.notices import ApprovalNotices
from tests.features.approvals.queue_server import waiting
from tests.program import BOUND_S
from tests.windows import has_ended

pytestmark = pytest.mark.skipif(sys.platform != "win32", reason="test_notices.py is about other systems")

# Starts a program that runs on, and notes the process ids of both.
PROGRAM = """
import os, pathlib, subprocess, sys
started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
new = pathlib.Path(sys.argv[1] + ".new")
new.write_text(f"{os.getpid()} {started.pid}")
new.rename(sys.argv[1])
started.wait()
"""


async def test_a_program_that_hangs_is_killed_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices_module, "BOUND_S", BOUND_S)
    (tmp_path / "hook.py").write_text(PROGRAM)
    (tmp_path / "notify-me.cmd").write_text(f'@"{sys.executable}" "{tmp_path}\\hook.py" %1\n')
    noted = tmp_path / "pids"
    notices = ApprovalNotices({**os.environ, "PATH": str(tmp_path)})
    notices.notify(Approval(notify=Notify(desktop=False, command=("notify-me", str(noted)))), waiting())
    async with asyncio.timeout(BOUND_S):
        while not await asyncio.to_thread(noted.exists):
            pass
    await notices.close()
    for pid in map(int, noted.read_text().split()):
        assert await asyncio.to_thread(has_ended, pid, BOUND_S)
