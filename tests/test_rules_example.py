"""What `examples/rules.json` says happens to calls, with the servers of the example."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.own_process import OWN
from tests.program import Program, started, text_of

Json = Any  # whatever JSON a test writes down
CONFIG = Path(__file__).parent.parent / "examples" / "rules.json"


@pytest.fixture
async def program() -> AsyncIterator[Program]:
    # the config says `python`
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    async with started(*OWN, str(CONFIG), env={**os.environ, "PATH": path}) as program:
        await program.initialize()
        yield program


async def test_overridden_tools_are_shown_as_the_config_says_and_take_what_it_fixes(program: Program) -> None:
    asked = {"name": "get_dynamic_tools", "arguments": {"group": "dates", "detail": "full"}}
    tools: Json = json.loads(text_of((await program.request("tools/call", asked))["result"]))["tools"]
    assert [each["name"] for each in tools] == ["now", "days_between", "delivery_date"]
    schema = tools[-1]["inputSchema"]
    assert (list(schema["properties"]), schema["required"]) == (["ordered_on", "days"], ["ordered_on"])

    result = await program.call("dates", "delivery_date", {"ordered_on": "2026-12-23"})
    assert result["structuredContent"]["date"] == "2026-12-29"  # three working days without the holiday that is fixed
    for hidden in ("add_working_days", "convert_time"):
        assert (await program.call("dates", hidden, {}))["isError"]
