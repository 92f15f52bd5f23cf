"""A service with an OpenAPI document behind the whole program, as one more server: rules, reload, restart."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.program import BOUND_S, Json, Program, serving, text_of
from tests.upstream.openapi.mirror import Mirror, Reply, document

THING: Json = {"operationId": "get", "path": "/thing", "parameters": [{"name": "q", "in": "query", "schema": {}}]}
MAKE: Json = {"operationId": "make", "path": "/thing", "method": "post"}


async def call(program: Program, tool: str, arguments: Json | None = None) -> Json:
    return await program.call("it", tool, arguments or {})


async def list_tools(program: Program) -> list[str]:
    asked = {"name": "get_dynamic_tools", "arguments": {"group": "it"}}
    found = json.loads(text_of((await program.request("tools/call", asked))["result"]))
    return [each["name"] for each in found["tools"]]


def entry(mirror: Mirror, **more: Json) -> Json:
    return {"it": {"openapi": "./it.json", "url": mirror.origin, **more}}


@pytest.mark.both_hosts
async def test_it_is_listed_called_and_ruled_like_any_server(tmp_path: Path) -> None:
    (tmp_path / "it.json").write_text(json.dumps(document(THING, MAKE)))
    rules: Json = {
        "guards": [{"tools": ["get"], "argument": "$.q", "deny": "drop"}],
        "overrides": {"get": {"rename": "look"}},
        "cache": [{"tools": ["get"], "ttl": "1h"}],
        "tools": {"exclude": ["make"]},
    }
    async with Mirror() as mirror, serving(tmp_path, entry(mirror, **rules)) as program:
        mirror.replies["/thing"] = Reply(body=b'{"n": 1.50}')
        assert await list_tools(program) == ["look"]
        assert (await call(program, "look", {"q": "a"}))["structuredContent"] == {"n": 1.5}
        assert text_of(await call(program, "look", {"q": "a"})) == '{"n": 1.50}'
        assert len(mirror.received) == 1, "the second answer is the cached one"
        assert (await call(program, "look", {"q": "drop it"}))["isError"]
        assert (await call(program, "make"))["isError"]
        assert len(mirror.received) == 1


async def test_a_changed_document_takes_effect_while_it_runs(tmp_path: Path) -> None:
    file = tmp_path / "it.json"
    file.write_text(json.dumps(document(THING)))
    async with Mirror() as mirror, serving(tmp_path, entry(mirror)) as program:
        assert await list_tools(program) == ["get"]
        file.write_text(json.dumps(document(THING, MAKE)))
        async with asyncio.timeout(BOUND_S):
            while await list_tools(program) != ["get", "make"]:
                pass
        assert not (await call(program, "make")).get("isError")
        assert mirror.received[-1].method == "POST"
