"""Servers one of whose lists fails or hangs: what needs it is missing, and everything else works."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.attacks.upstream_scene import Evil, attacked, tools_of
from tests.program import Json, Program, text_of

METHODS = ["tools/list", "resources/list", "resources/templates/list", "prompts/list"]
# Time enough for twelve servers to start at once.
TIMES: Json = {"connect": "5s", "resources": "3s", "prompts": "3s"}
# What is answered, though with nothing that is of use, is a list without entries.
ANSWERED = ("lies-0",)
WAYS: dict[str, Json] = {
    "fails": {"error": {"code": -32603, "message": "no network"}},
    "hangs": None,
    "lies": {"tools": 7, "resources": {}, "resourceTemplates": "x", "prompts": None},
}
WHOLE: Json = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
        "serverInfo": {"name": "evil", "version": "1"},
    },
    "resources/list": {"resources": [{"uri": "evil://a", "name": "a"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "evil://{x}", "name": "t"}]},
    "resources/read": {"contents": [{"uri": "evil://a", "text": "of a"}]},
    "prompts/list": {"prompts": [{"name": "greet"}]},
    "prompts/get": {"messages": []},
}


async def use(program: Program, name: str) -> None:
    """Everything that needs no list works, and so does what is in a list that can be read."""
    called, read, got = await asyncio.gather(
        program.call(name, "echo", {"text": name}),
        program.request("resources/read", {"uri": f"dynamic-mcp://{name}/evil%3A%2F%2Fa"}),
        program.request("prompts/get", {"name": f"{name}__greet"}),
    )
    assert text_of(called) == name or (name in ANSWERED and "no tool" in text_of(called))
    assert read["result"]["contents"][0]["text"] == "of a", read
    assert "result" in got or (name.endswith("-3") and "lies" in name), got


async def test_a_list_that_fails_or_hangs_does_so_alone(tmp_path: Path) -> None:
    evils = {f"{way}-{n}": Evil(tmp_path, f"{way}-{n}") for way in WAYS for n in range(len(METHODS))}
    for name, evil in evils.items():
        way, _, number = name.partition("-")
        evil.plays(**{**WHOLE, METHODS[int(number)]: WAYS[way]})
    servers = {name: evil.config(timeout=TIMES) for name, evil in evils.items()}
    async with attacked(tmp_path, servers) as program:
        await asyncio.gather(*(use(program, name) for name in evils))
        prompts = {each["name"] for each in (await program.request("prompts/list"))["result"]["prompts"]}
        uris = [each["uri"] for each in (await program.request("resources/list"))["result"]["resources"]]
        assert len(uris) == len(set(uris)) == len(WAYS) * (len(METHODS) - 1)
        for name in evils:
            fails = METHODS[int(name.partition("-")[2])]
            assert fails == "tools/list" or "echo" in {each["name"] for each in await tools_of(program, name)}
            assert (fails == "prompts/list") is (f"{name}__greet" not in prompts)
