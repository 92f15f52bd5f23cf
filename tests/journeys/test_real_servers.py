"""The official servers from npm and PyPI, behind one proxy, driven as an AI tool drives them.

They are used where their commands are on the PATH: `npm install` the @modelcontextprotocol/server-… packages,
and `pip install mcp-server-time mcp-server-git`.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from tests.program import Json, Program, serving, text_of

pytestmark = pytest.mark.full


def command(name: str) -> str:
    """Return the path of a server's command, or skip the test."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"the command `{name}` is not on the PATH of this machine")
    return path


async def tools_of(program: Program, group: str) -> list[dict[str, Json]]:
    """Return what `get_dynamic_tools` shows of a group."""
    asked = {"name": "get_dynamic_tools", "arguments": {"group": group}}
    answer = await program.request("tools/call", asked)
    tools: list[dict[str, Json]] = json.loads(text_of(answer["result"]))["tools"]
    return tools


async def test_everything_answers_with_text_images_and_structured_content(tmp_path: Path) -> None:
    server = {"command": command("mcp-server-everything"), "args": ["stdio"]}
    async with serving(tmp_path, {"everything": server}) as program:
        names = {tool["name"] for tool in await tools_of(program, "everything")}
        assert {"echo", "get-sum", "get-tiny-image"} <= names
        assert text_of(await program.call("everything", "echo", {"message": "hello"})) == "Echo: hello"
        assert "7" in text_of(await program.call("everything", "get-sum", {"a": 3, "b": 4}))
        image = await program.call("everything", "get-tiny-image")
        assert {part["type"] for part in image["content"]} == {"text", "image"}
        structured = await program.call("everything", "get-structured-content", {"location": "New York"})
        assert set(structured["structuredContent"]) == {"temperature", "conditions", "humidity"}
        wrong = await program.call("everything", "get-summ")
        assert wrong["isError"] is True
        assert "get-sum" in text_of(wrong)


async def test_filesystem_reads_and_writes_within_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    server = {"command": command("mcp-server-filesystem"), "args": [str(folder)]}
    async with serving(tmp_path, {"files": server}) as program:
        path = str(folder / "a.txt")
        await program.call("files", "write_file", {"path": path, "content": "füür"})
        assert (folder / "a.txt").read_text() == "füür"
        assert "füür" in text_of(await program.call("files", "read_text_file", {"path": path}))
        refused = await program.call("files", "read_text_file", {"path": "/etc/passwd"})
        assert refused["isError"] is True


async def test_memory_keeps_what_it_is_told(tmp_path: Path) -> None:
    server = {"command": command("mcp-server-memory"), "env": {"MEMORY_FILE_PATH": str(tmp_path / "m.jsonl")}}
    async with serving(tmp_path, {"memory": server}) as program:
        ada = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
        await program.call("memory", "create_entities", {"entities": [ada]})
        assert "first program" in text_of(await program.call("memory", "read_graph"))


async def test_time_and_git_from_pypi_serve_side_by_side(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    await (await asyncio.create_subprocess_exec("git", "init", "-q", str(repository))).wait()
    servers = {
        "time": {"command": command("mcp-server-time"), "args": ["--local-timezone", "UTC"]},
        "git": {"command": command("mcp-server-git"), "args": ["--repository", str(repository)]},
    }
    async with serving(tmp_path, servers) as program:
        asked = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        assert "21:00" in text_of(await program.call("time", "convert_time", asked))
        (repository / "new.txt").write_text("new")
        assert "new.txt" in text_of(await program.call("git", "git_status", {"repo_path": str(repository)}))
        assert "git_status" in {tool["name"] for tool in await tools_of(program, "git")}


async def test_a_tools_own_name_works_where_only_one_group_has_it(tmp_path: Path) -> None:
    server = {"command": command("mcp-server-everything"), "args": ["stdio"]}
    async with serving(tmp_path, {"one": server, "two": {**server, "tools": {"exclude": ["echo"]}}}) as program:
        await tools_of(program, "one")
        await tools_of(program, "two")
        params = {"name": "echo", "arguments": {"message": "x"}}
        assert text_of((await program.request("tools/call", params))["result"]) == "Echo: x"
        params = {"name": "get-sum", "arguments": {"a": 1, "b": 2}}
        ambiguous = (await program.request("tools/call", params))["result"]
        assert ambiguous["isError"] is True
        assert "`one`, `two`" in text_of(ambiguous)
