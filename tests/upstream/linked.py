"""A link and its upstream, as tests of links use them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest
from msgspec import Raw

from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.upstream.link import Link
from tests.fakes import BOUND_S, FakeUpstream, Json


def begin(
    link: Link, method: str = "tools/call", params: Mapping[str, bytes] | None = None, **more: Json
) -> asyncio.Task[Frame]:
    """Begin a request; the answer is the task's result."""
    raw = {key: Raw(value) for key, value in (params or {}).items()}
    return asyncio.create_task(link.request(method, raw, **{"timeout_s": 5, **more}))


def ids_of(upstream: FakeUpstream) -> list[int]:
    return [message["id"] for message in upstream.heard("tools/call")]


def answer(upstream: FakeUpstream, id: object, result: Json) -> None:
    upstream.say({"jsonrpc": "2.0", "id": id, "result": result})


async def result_of(request: asyncio.Task[Frame]) -> Json:
    async with asyncio.timeout(BOUND_S):
        return json.loads(bytes((await request).result))


def pass_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let it be so much later for the loop of a test."""
    loop = asyncio.get_running_loop()
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + seconds)


def with_token(token: bytes) -> dict[str, bytes]:
    return {"name": b'"slow"', "_meta": b'{"trace":"t","progressToken":' + token + b',"n":1.50}'}


def report(upstream: FakeUpstream, token: object, **more: Json) -> None:
    params = {"progress": 1, "progressToken": token, **more}
    upstream.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


def ask(upstream: FakeUpstream, id: object, method: str = "sampling/createMessage") -> None:
    upstream.say({"jsonrpc": "2.0", "id": id, "method": method, "params": {"n": 1}})
