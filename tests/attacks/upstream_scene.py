"""The running program with a good server beside hostile ones, which must neither stop nor delay it.

Whatever the hostile ones do, the good one is called again and again meanwhile; afterwards the log tells of no bug of
the program, and no process of theirs is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tests import hosting
from tests.program import BOUND_S, Json, Program, odd, serving, text_of

SERVER = Path(__file__).parent / "upstream_server.py"
# The good server answers within milliseconds; this leaves room for a busy machine, and none for a stall.
AT_ONCE_S = 5.0
_PAUSE_S = 0.05
_nonces = itertools.count()


class Evil:
    """A hostile server's script, which can change while it runs."""

    def __init__(self, folder: Path, name: str = "evil", *mode: str) -> None:
        self.script = folder / f"{name}.script.json"
        self._mode = mode
        self.plays()

    def plays(self, *, tools: Json = (), **results: Json) -> None:
        """Offer these tools too, and answer these methods so: `tools_list` is `tools/list`."""
        named = {method.replace("_", "/"): result for method, result in results.items()}
        complete = self.script.with_suffix(".new")
        complete.write_text(json.dumps({"tools": list(tools), "results": named}))
        complete.replace(self.script)

    def config(self, **members: Json) -> dict[str, Json]:
        """Return the config of the server."""
        return {"command": sys.executable, "args": [str(SERVER), str(self.script), *self._mode], **members}


@contextlib.asynccontextmanager
async def attacked(
    folder: Path, servers: Json, *, capabilities: Json = None, may_have_tracebacks: bool = False, **root: Json
) -> AsyncIterator[Program]:
    """Run the program with these servers beside `good`, and see to it that they do it no harm."""
    async with serving(folder, {**servers, "good": odd()}, capabilities=capabilities, **root) as program:
        await call_good(program, within_s=BOUND_S)  # which has to start first
        calling = asyncio.create_task(_call_on(program))
        try:
            yield program
            assert not calling.done(), calling
        finally:
            calling.cancel()
            await asyncio.wait([calling])
        await call_good(program)
        program.end_input()
        assert await program.ends() == 0
    log = await program.stderr()
    assert "a bug:" not in log, log
    assert may_have_tracebacks or "Traceback" not in log, log
    await nothing_is_left()


async def call_good(program: Program, *, within_s: float = AT_ONCE_S) -> None:
    """The good server answers at once, with the nonce that it was given."""
    nonce = f"nonce {next(_nonces)}"
    async with asyncio.timeout(within_s):
        assert text_of(await program.call("good", "echo", {"text": nonce})) == nonce


async def _call_on(program: Program) -> None:
    while True:
        await call_good(program)
        await asyncio.sleep(_PAUSE_S)


async def nothing_is_left() -> None:
    """Wait until no process is left that a program of this test has started."""
    if sys.platform != "linux":
        return
    async with asyncio.timeout(BOUND_S):
        while hosting.survivors():  # noqa: ASYNC110 - they are children of others
            await asyncio.sleep(0.01)


async def tools_of(program: Program, group: str, **arguments: Json) -> list[dict[str, Json]]:
    """Return the tools of a group as a model is shown them."""
    result = await program.request(
        "tools/call", {"name": "get_dynamic_tools", "arguments": {"group": group, **arguments}}
    )
    tools: list[dict[str, Json]] = json.loads(text_of(result["result"]))["tools"]
    return tools


def cpu_s(pid: int) -> float:
    """Return how long a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
