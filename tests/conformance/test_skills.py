"""The official conformance suite's scenarios for skills (SEP-2640), through the whole program over HTTP.

They need npm's `@modelcontextprotocol/conformance` 0.2.0-alpha.12 or newer in the node_modules that
DYNAMIC_MCP_TEST_CONFORMANCE_ALPHA names, and the Node that DYNAMIC_MCP_TEST_NODE names. Those for hosts, which verify
digests and ask their users, are not run: a proxy is no host.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.conformance.test_server import NODE, PROBLEMS, Suite
from tests.http_program import serving_http
from tests.program import UPSTREAMS, Json
from tests.upstream.skills.folders import write_skill

pytestmark = pytest.mark.full
SCENARIOS = ("enumeration", "manifest", "directory")
ERAS = ("2025-11-25", "2026-07-28")
# A listing should have no name twice; where two servers have one, a listing of both does.
SHARED_NAMES = {"sep-2640-names-should-be-unique"}


async def problems_of(url: str, era: str, folder: Path) -> set[str]:
    """Run the scenarios as a client of an era, and return the checks that a server did not pass."""
    found: set[str] = set()
    for scenario in SCENARIOS:
        selection = ("--scenario", f"sep-2640-skills-{scenario}", "--spec-version", era, "--force")
        suite = Suite("DYNAMIC_MCP_TEST_CONFORMANCE_ALPHA", selection, 1)
        if not (suite.script.is_file() and NODE.is_file()):
            pytest.skip(f"{suite.variable} names no node_modules, or DYNAMIC_MCP_TEST_NODE no Node")
        if "sep-2640" not in suite.script.read_text():
            pytest.skip("the conformance suite has no scenarios for skills: it is older than 0.2.0-alpha.12")
        problems = await suite.run(url, folder / f"{scenario}-{era}")
        found |= {each["id"] for checks in problems.values() for each in checks if each["status"] in PROBLEMS}
    return found


def folder_of_skills(folder: Path) -> Json:
    """Return an entry with a folder of skills."""
    write_skill(folder / "skills", "pdf-processing", "description: Fills PDFs\nlicense: MIT", templates__a_md="a")
    write_skill(folder / "skills", "acme/billing/refunds", "description: Refunds", x__x_bin=b"\x00\xff")
    return {"skills": [str(folder / "skills")]}


@pytest.mark.parametrize("era", ERAS)
async def test_a_folder_of_skills_passes_alone_and_behind_another_proxy(era: str, tmp_path: Path) -> None:
    for name in ("near", "far"):
        (tmp_path / name).mkdir()
    async with serving_http(tmp_path / "near", {"own": folder_of_skills(tmp_path)}) as near:
        assert await problems_of(near.url_of("own"), era, tmp_path / "direct") == set()
        async with serving_http(tmp_path / "far", {"far": {"url": near.url_of("own")}}) as far:
            assert await problems_of(far.url_of("far"), era, tmp_path / "alone") == set()
            assert await problems_of(far.url, era, tmp_path / "all") == set()


@pytest.mark.parametrize("era", ERAS)
async def test_two_servers_with_the_same_skills_pass_but_for_their_names(era: str, tmp_path: Path) -> None:
    skills = json.dumps({"refunds": {"x/email.md": "Dear customer"}, "only/here": {}})
    server = {"command": sys.executable, "args": [str(UPSTREAMS / "skills.py"), "it", skills]}
    async with serving_http(tmp_path, {"a": server, "b": server, "own": folder_of_skills(tmp_path)}) as program:
        assert await problems_of(program.url_of("b"), era, tmp_path / "alone") == set()
        assert await problems_of(program.url, era, tmp_path / "all") == SHARED_NAMES
