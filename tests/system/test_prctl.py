"""What Linux lets other processes of the same user see of this one."""

from __future__ import annotations

import subprocess
import sys

import pytest

if sys.platform != "linux":
    pytest.skip("prctl(2) is of Linux", allow_module_level=True)

# Root may read everything, so this becomes somebody else. Prints whether a child can read the environment: 0 or 1.
_SHOW = """
import ctypes, os, subprocess, sys
from dynamic_mcp.system.prctl import forbid_inspection
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # a process that changes its user has forbidden it already
def read(name):
    command = ["/bin/cat", f"/proc/{os.getpid()}/{name}"]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={}).returncode
before = read("environ")
forbid_inspection()
print(before, read("environ"), read("stat"))
"""
# Prints whether it can be inspected once it has started a server: 1, or 0.
_START = """
import asyncio, ctypes
from dynamic_mcp.config.resolved import Program
from dynamic_mcp.upstream.process.child import start
async def main():
    process = await start(Program("/bin/sh", ("-c", "read line"), {}, None))
    print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
    await process.end(grace_s=1, kill_within_s=1)
asyncio.run(main())
"""


def output_of(script: str, **environment: str) -> str:
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout.strip()


def test_another_process_of_the_user_reads_the_environment_no_more_but_still_what_status_shows() -> None:
    assert output_of(_SHOW) == "0 1 0"


def test_whatever_starts_servers_forbids_its_inspection_unless_a_person_wants_to_debug_it() -> None:
    assert output_of(_START) == "0"
    assert output_of(_START, DYNAMIC_MCP_TRACEABLE="1") == "1"
