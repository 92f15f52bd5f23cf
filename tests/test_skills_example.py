"""What `examples/skills.json` serves: the skill of its folder, beside the tools that the skill is about."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.own_process import OWN
from tests.program import BOUND_S, Program, started, text_of

CONFIG = Path(__file__).parent.parent / "examples" / "skills.json"


async def find_skill(program: Program) -> Any:  # Any: JSON
    """Return the only skill. A list does not wait long for servers that are still starting."""
    async with asyncio.timeout(BOUND_S):
        while not (found := (await program.request("skills/list", {}))["result"]["skills"]):
            pass
    (skill,) = found
    return skill


async def test_the_skill_is_found_read_and_says_which_tool_to_call() -> None:
    # the config says `python`
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    async with started(*OWN, str(CONFIG), env={**os.environ, "PATH": path}) as program:
        await program.initialize()
        skill = await find_skill(program)
        assert [each["uri"].rpartition("/")[2] for each in skill["resources"]] == ["SKILL.md", "days.md"]
        asked = {"name": "get_dynamic_tools", "arguments": {"query": "when does an order arrive"}}
        found = json.loads(text_of((await program.request("tools/call", asked))["result"]))
        assert [each["uri"] for each in found["skills"]] == [skill["uri"]]
        (content,) = (await program.request("resources/read", {"uri": skill["uri"]}))["result"]["contents"]
        tools = await program.request("tools/call", {**asked, "arguments": {"group": "dates"}})
        assert "`add_working_days`" in content["text"]
        assert '"add_working_days"' in text_of(tools["result"])
