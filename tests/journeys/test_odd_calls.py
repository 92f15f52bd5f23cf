"""What a published server takes by itself it takes through the proxy, and what it refuses is explained.

Each server is called by itself and through the proxy, with everything odd that a model may write.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.journeys.odd_calls import SERVERS, Json, OddCall, PublishedServer, odd_calls, placed
from tests.program import Program, serving, started

pytestmark = [pytest.mark.full, pytest.mark.alone_only]

GROUP = "up"
REPAIRED = "dynamic-mcp/repaired"
# How these servers say that it is the arguments that they do not take.
ABOUT_ARGUMENTS = re.compile(r"Invalid arguments|validation error")


class Answer(NamedTuple):
    """What came of a call: the texts of its result or its error."""

    is_error: bool
    texts: list[str]
    is_repaired: bool = False


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.command)
async def test_what_a_server_takes_goes_through_and_what_it_refuses_is_explained(
    tmp_path: Path, server: PublishedServer
) -> None:
    folders = [_prepare(tmp_path / name) for name in ("direct", "through")]
    configs = [server.config(folder) for folder in folders]

    async with _alone(configs[0], folders[0]) as alone, serving(tmp_path, {GROUP: configs[1]}) as proxy:
        tools = (await alone.request("tools/list"))["result"]["tools"]
        calls = odd_calls(tools, server.calls)
        direct, through = await asyncio.gather(
            _answers(alone, None, calls, folders[0]), _answers(proxy, GROUP, calls, folders[1])
        )

    masked = [
        [each._replace(texts=[server.mask(text, folder) for text in each.texts]) for each in answers]
        for answers, folder in zip((direct, through), folders, strict=True)
    ]
    faults = [
        f"{call.tool}, {call.oddity}: {fault}"
        for call, one, other in zip(calls, *masked, strict=True)
        if (fault := _find_fault(one, other))
    ]
    assert faults == []


def _find_fault(direct: Answer, through: Answer) -> str:
    """Say in what an answer through the proxy is worse than that of the server itself; empty if in nothing."""
    if not direct.is_error:
        if through.is_error:
            return f"the server takes it, and through the proxy it is {through.texts}"
        is_same = through.is_repaired or through.texts == direct.texts
        return "" if is_same else f"{direct.texts} became {through.texts}"
    if through.is_repaired:
        return ""
    words = "\n".join(through.texts)
    if through.is_error and direct.texts[0] not in words:
        return f"{direct.texts} is not in {words}"
    if through.is_error and ABOUT_ARGUMENTS.search(words) and "its input schema: {" not in words:
        return f"it is not explained: {words}"
    return ""


def _prepare(folder: Path) -> Path:
    """Make the folder that a server works in: some files, in a repository."""
    (folder / "empty").mkdir(parents=True)
    for name in "abc":
        (folder / f"{name}.txt").write_text(f"{name}\nsecond line\n")
    for command in (["init", "-q", "-b", "main"], ["add", "c.txt"], ["commit", "-q", "-m", "first"]):
        options = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
        subprocess.run(["git", *options, *command], cwd=folder, check=True)
    return folder


@contextlib.asynccontextmanager
async def _alone(config: Json, folder: Path) -> AsyncIterator[Program]:
    environment = {**os.environ, **config["env"]}
    async with started(config["command"], *config["args"], env=environment, cwd=folder, terminate=True) as program:
        await program.initialize()
        yield program


async def _answers(program: Program, group: str | None, calls: Sequence[OddCall], folder: Path) -> list[Answer]:
    return [await _answer(program, group, call.tool, placed(call.arguments, folder)) for call in calls]


async def _answer(program: Program, group: str | None, tool: str, arguments: Json) -> Answer:
    params = {"name": tool, "arguments": arguments}
    if group is not None:
        params = {"name": "call_dynamic_tool", "arguments": {"group": group, "name": tool, "args": arguments}}
    answer = await program.request("tools/call", params)
    if "error" in answer:
        return Answer(is_error=True, texts=[answer["error"]["message"]])
    result = answer["result"]
    texts = [block.get("text", block["type"]) for block in result["content"]]
    return Answer(bool(result.get("isError")), texts, REPAIRED in result.get("_meta", {}))
