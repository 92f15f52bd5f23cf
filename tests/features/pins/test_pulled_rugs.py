"""A tool that says something else while it is used: held back at once, and there again once it is approved."""

from __future__ import annotations

import asyncio
import json

from tests.cli.commands import CommandResult
from tests.features.pins.calculator import EVIL, Calculator
from tests.program import BOUND_S, Json, Program, running, text_of


async def list_tools(program: Program) -> list[str]:
    arguments = {"group": "calc", "detail": "names"}
    answer = await program.request("tools/call", {"name": "get_dynamic_tools", "arguments": arguments})
    return [each["name"] for each in json.loads(text_of(answer["result"]))["tools"]]


async def call_until(program: Program, tool: str, *, is_held: bool) -> Json:
    """Call a tool again, as a model does that was told to, until it is held back, or is not."""
    async with asyncio.timeout(BOUND_S):
        while True:
            result = await program.call("calc", tool, {"a": 1, "b": 2})
            if bool(result.get("isError")) is is_held:
                return result
            await program.call("calc", "sub")


async def test_a_pulled_rug_is_held_back_until_a_person_approves_it(calc: Calculator) -> None:
    async with running(str(calc.cli.config)) as program:
        await program.initialize()
        assert text_of(await program.call("calc", "add", {"a": 1, "b": 2})) == "done"
        assert await list_tools(program) == ["add", "sub"]

        calc.pull_the_rug()
        held = text_of(await call_until(program, "add", is_held=True))
        assert "is held back" in held
        assert "dynamic-mcp pins diff calc" in held
        assert await list_tools(program) == ["sub"]
        assert text_of(await program.call("calc", "sub")) == "done"

        seen = await asyncio.to_thread(calc.pins, "diff", "calc", "--live")
        (difference,) = [each for each in seen.json[0]["differences"] if each["state"] == "changed"]
        assert (difference["name"], difference["held"]) == ("add", True)
        assert difference["after"]["definition"]["description"] == EVIL
        approved = await asyncio.to_thread(calc.pins, "approve", "calc", "--live", "--yes")
        assert approved.code == 0
        assert text_of(await call_until(program, "add", is_held=False)) == "done"
        assert await list_tools(program) == ["add", "sub"]


def test_what_a_command_finds_held_is_reviewed_and_approved_without_a_proxy(calc: Calculator) -> None:
    def call() -> CommandResult:
        return calc.cli.run("call", "calc", "add", "a=1", "b=2")

    calc.connect()
    assert (call().code, calc.pins("diff", "calc").json[0]["differences"]) == (0, [])

    calc.pull_the_rug()
    held = call()
    assert (held.code, "is held back" in held.err) == (3, True)
    assert "hint: ask the user to run `dynamic-mcp pins diff calc`" in held.err
    [difference] = calc.pins("diff", "calc").json[0]["differences"]
    assert (difference["name"], difference["held"]) == ("add", True)
    assert calc.pins("approve", "calc", "--yes").code == 0
    assert (call().code, calc.pins("verify").code) == (0, 0)
