"""A run in a fork is seen from outside as a program that was started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests import own_process
from tests.hosting import processes_at


@pytest.mark.skipif(sys.platform != "linux", reason="there are no forks elsewhere")
async def test_a_run_is_found_by_its_home_while_it_lasts(tmp_path: Path) -> None:
    config = tmp_path / "dynamic-mcp.json"
    config.write_text('{"mcpServers": {}}')
    process = await own_process.start(str(config))
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    await process.stdout.readline()

    assert [pid for pid, _ in processes_at(Path(os.environ["HOME"]))] == [process.pid]

    process.stdin.close()
    await process.communicate()
    assert processes_at(Path(os.environ["HOME"])) == []
