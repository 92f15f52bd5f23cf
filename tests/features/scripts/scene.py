"""A proxy that runs scripts, in front of fake servers, and a client of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from dynamic_mcp.config.resolved import Share
from dynamic_mcp.features.scripts.config import Scripts
from dynamic_mcp.proxy.chain import MakeStep
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.system.clock import Clock
from dynamic_mcp.upstream.open import OpenLink
from tests.fakes import Client, FakeUpstream, Json, Opener, config_of, group_config

P = ParamSpec("P")
T = TypeVar("T")

# A script starts a process, so it takes longer than what is only in memory.
SLOW_S = 30.0


async def patiently(wait: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Wait like this, which has a bound for what is only in memory, until a script has had its time."""
    async with asyncio.timeout(SLOW_S):
        while True:
            with contextlib.suppress(TimeoutError):
                return await wait(*args, **kwargs)


def text(value: Json) -> dict[str, Json]:
    """Return a result with one text; what is no text is written as JSON."""
    words = value if isinstance(value, str) else json.dumps(value)
    return {"content": [{"type": "text", "text": words}]}


class ScriptClient(Client):
    """A client that runs scripts."""

    async def run(self, code: str, input: Json = None, **params: Json) -> dict[str, Json]:  # noqa: A002
        """Run a script and return the result."""
        arguments = {"code": code, "input": input}
        answer = await self.request("tools/call", {"name": "run_dynamic_script", "arguments": arguments, **params})
        assert "result" in answer, answer
        result: dict[str, Json] = answer["result"]
        return result

    async def value(self, code: str, input: Json = None) -> Json:  # noqa: A002
        """Run a script that succeeds, and return the value that is its result."""
        result = await self.run(code, input)
        assert not result.get("isError"), result
        return json.loads(result["content"][0]["text"])

    async def failure(self, code: str, input: Json = None) -> str:  # noqa: A002
        """Run a script that fails, and return all that is said of it."""
        result = await self.run(code, input)
        assert result.get("isError"), result
        return "\n".join(each["text"] for each in result["content"])


class Scene:
    """A proxy in front of the servers `up` and `other`, of whose config `group` has members.

    `answer` answers the calls of both.
    """

    def __init__(
        self,
        answer: Callable[[Json], Json] | Json = None,
        *,
        scripts: Scripts | None = None,
        steps: Mapping[str, MakeStep] | None = None,
        clock: Clock | None = None,
        state_folder: Path | None = None,
        opener: OpenLink | None = None,
        group: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> None:
        answers: Mapping[str, Json] = {} if answer is None else {"tools/call": answer}
        self.upstream = FakeUpstream(answers, tools=("echo", "hidden"))
        self.other = FakeUpstream(answers, tools=("echo",))
        self.groups = [group_config(name, share=Share.ALL, **(group or {})) for name in ("up", "other")]
        self.config = config_of(*self.groups, scripts=scripts or Scripts(), **changes)
        self.proxy = Proxy(
            self.config,
            opener=opener or Opener(up=[self.upstream], other=[self.other]),
            steps=steps,
            clock=clock,
            state_folder=state_folder,
        )

    async def client(self, **options: Any) -> ScriptClient:
        client = ScriptClient(self.proxy, bound_s=SLOW_S, **options)
        await client.initialize()
        return client


@contextlib.asynccontextmanager
async def scripting(
    answer: Callable[[Json], Json] | Json = None, *, scripts: Scripts | None = None, **changes: Any
) -> AsyncIterator[tuple[Scene, ScriptClient]]:
    """Run such a proxy."""
    scene = Scene(answer, scripts=scripts, **changes)
    try:
        yield scene, await scene.client()
    finally:
        async with asyncio.timeout(SLOW_S):
            await scene.proxy.close()


def echo(params: Json) -> Json:
    """Answer a call with its arguments."""
    return text(params["arguments"])
