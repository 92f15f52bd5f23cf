"""Skills of two servers with colliding names, and of a folder, through the whole program."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.modern_client import INFO, PREFIX
from tests.program import BOUND_S, UPSTREAMS, Json, Program, running, serving
from tests.upstream.skills.folders import write_skill
from tests.upstreams.skills import digest

SKILLS = {"refunds": {"email.md": "Dear customer"}, "only/here": {}}


def servers(folder: Path) -> Json:
    """Return two servers whose skills collide, and the folder of another that collides with both."""
    write_skill(folder / "skills", "refunds", email_md="of the folder")
    both = {
        name: {"command": sys.executable, "args": [str(UPSTREAMS / "skills.py"), name, json.dumps(SKILLS)]}
        for name in ("a", "b")
    }
    return {**both, "own": {"skills": ["./skills"]}}


SERVED = 5  # skills

Ask = Callable[[str, Json], Awaitable[Json]]


async def check_skills(ask: Ask) -> None:
    """Read each file of each listed skill, and compare it with its digest."""
    entries: list[Json] = []
    async with asyncio.timeout(BOUND_S):
        while len(entries) < SERVED:  # a list does not wait long for servers that are still starting
            entries = (await ask("skills/list", {}))["skills"]
    assert [each["uri"] for each in entries] == [
        "skill://refunds/SKILL.md",
        "skill://only/here/SKILL.md",
        "skill://b/refunds/SKILL.md",
        "skill://b/only/here/SKILL.md",
        "skill://own/refunds/SKILL.md",
    ]
    for entry in entries:
        assert (await ask("skills/get", {"uri": entry["uri"]}))["skill"] == entry
        for file in entry["resources"]:
            (content,) = (await ask("resources/read", {"uri": file["uri"]}))["contents"]
            assert content["uri"] == file["uri"]
            assert (digest(content["text"]), len(content["text"].encode())) == (file["digest"], file["size"])
        root = entry["uri"].removesuffix("/SKILL.md")
        children = (await ask("resources/directory/read", {"uri": root}))["resources"]
        assert {each["uri"] for each in children} == {each["uri"] for each in entry["resources"]}


def asking(program: Program, *, is_modern: bool) -> Ask:
    """Return how a client of an era asks."""
    meta = {
        f"{PREFIX}protocolVersion": "2026-07-28",
        f"{PREFIX}clientInfo": INFO,
        f"{PREFIX}clientCapabilities": {},
    }

    async def ask(method: str, params: Json) -> Json:
        return (await program.request(method, {**params, "_meta": meta} if is_modern else params))["result"]

    return ask


@pytest.mark.parametrize("is_modern", [False, True])
async def test_every_skill_of_each_server_is_read_as_its_digests_say(tmp_path: Path, is_modern: bool) -> None:
    async with serving(tmp_path, servers(tmp_path)) as first:
        await first.request("skills/list", {})
        if not is_modern:
            await check_skills(asking(first, is_modern=False))
            return
    async with running(str(tmp_path / "dynamic-mcp.json")) as program:
        await check_skills(asking(program, is_modern=True))
