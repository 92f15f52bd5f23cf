"""The fuzzer `mcp-fuzzer` of PyPI against the program over HTTP; it is used where $DYNAMIC_MCP_TEST_FUZZER names it.

It reports as `accepted_malformed` whatever gets an answer that is no error, and most of that is valid: for the server
used here it reports about 60 of these in its mode `protocol` by itself, and about 55 through the program. Nothing
else may be found: no crash, no leaked traceback, no answer that does not come.

    mcp-fuzzer --mode all --protocol streamablehttp --endpoint http://127.0.0.1:8808/mcp --no-network --seed 1
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.http_program import HttpProgram, serving_http
from tests.program import UPSTREAMS, Json

FUZZER = os.environ.get("DYNAMIC_MCP_TEST_FUZZER", "")
SERVER = {"command": sys.executable, "args": [str(UPSTREAMS / "conformance.py")]}
OPTIONS = ("--runs", "10", "--runs-per-type", "3", "--timeout", "3", "--seed", "1", "--no-network", "--no-corpus")
HARMLESS = {
    "accepted_malformed",
    "server_rejected",
    "exceptions",
}  # an exception of the fuzzer is an error it was told

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not FUZZER, reason="DYNAMIC_MCP_TEST_FUZZER does not name `mcp-fuzzer`"),
]


class Report(NamedTuple):
    """How often the fuzzer has tried, what it has found, and how many of the tools' answers were of which kind."""

    runs: int
    findings: list[Json]
    outcomes: dict[str, int]


async def fuzz(mode: str, url: str, folder: Path) -> Report:
    """Let the fuzzer at a server."""
    process = await asyncio.create_subprocess_exec(
        *(FUZZER, "--mode", mode, "--protocol", "streamablehttp", "--endpoint", url, *OPTIONS),
        *("--output-dir", str(folder)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 280)
    assert process.returncode == 0, output.decode()
    summary = json.loads((folder / "run_summary.json").read_text())
    assert summary["status"] == "completed"
    outcomes: dict[str, int] = {}
    for tool in summary["tools"]["by_name"].values():
        for kind, count in tool["outcomes"].items():
            outcomes[kind] = outcomes.get(kind, 0) + count
    findings = json.loads((folder / "findings.json").read_text())["findings"]
    return Report(summary["protocols"]["total_runs"] + sum(outcomes.values()), findings, outcomes)


async def _assert_unharmed(program: HttpProgram, report: Report) -> None:
    assert report.runs > 0, "the fuzzer has not reached the server"
    assert [each for each in report.findings if each["category"] != "accepted_malformed"] == []
    assert {kind for kind, count in report.outcomes.items() if count} <= HARMLESS
    assert "Traceback (most recent call last)" not in json.dumps(report.findings)
    assert "a bug:" not in program.log()
    assert await program.count_sessions() > 0


@pytest.mark.parametrize("path", ["", "/up"], ids=["all groups", "one group"])
async def test_malformed_messages_do_no_harm(path: str, tmp_path: Path) -> None:
    async with serving_http(tmp_path, {"up": SERVER}) as program:
        await _assert_unharmed(program, await fuzz("protocol", program.url + path, tmp_path))


async def test_malformed_arguments_of_our_own_tools_do_no_harm(tmp_path: Path) -> None:
    async with serving_http(tmp_path, {"up": SERVER}) as program:
        await _assert_unharmed(program, await fuzz("tools", program.url, tmp_path))
