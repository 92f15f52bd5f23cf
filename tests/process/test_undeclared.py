"""A server that answers `initialize` with `{}` is asked for everything, and what it has is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.neighbours import assert_alive
from tests.program import odd, serving


@pytest.mark.parametrize("rest", [(), ("resources_and_prompts_only",)], ids=["with tools", "without tools"])
async def test_resources_and_prompts_of_a_server_that_declares_nothing_are_listed_and_got(
    tmp_path: Path, rest: tuple[str, ...]
) -> None:
    async with serving(tmp_path, {"odd": odd("undeclared", *rest), "good": odd()}) as program:
        resources = (await program.request("resources/list"))["result"]
        prompts = (await program.request("prompts/list"))["result"]
        templates = (await program.request("resources/templates/list"))["result"]
        read = await program.request("resources/read", {"uri": "odd://a"})
        got = await program.request("prompts/get", {"name": "odd__greet"})

        assert resources == {"resources": [{"uri": "odd://a", "name": "a"}]}
        assert prompts == {"prompts": [{"name": "odd__greet"}]}
        assert templates == {"resourceTemplates": []}
        assert read["result"]["contents"][0]["text"] == "of a"
        assert got["result"] == {"messages": []}
        if not rest:
            await assert_alive(program, "odd")
        await assert_alive(program, "good")
