"""Each shipped pack, driven through the two tools against the real program."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dynamic_mcp.packs import library
from dynamic_mcp.packs.model import Command, Flag, Positional
from dynamic_mcp.upstream.cli.argv import build
from tests.fakes import Client, Json, text_of
from tests.program import BOUND_S
from tests.upstream.cli.programs import git, require, serve

# How programs say that they do not know a flag.
_UNKNOWN = (
    "unknown option",
    "unknown switch",
    "unrecognized",
    "invalid option",
    "wasn't expected",
    "ambiguous option",
)
# What a flag or a word takes, where `x` would not do.
_VALUES = {
    **dict.fromkeys(
        ("--points-at", "--contains", "--no-contains", "--merged", "--no-merged", "--ignore-rev"), "HEAD"
    ),
    "--encoding": "utf-8",
    "--type": "py",
    "--type-not": "py",
    "--max-filesize": "1M",
    "--diff-filter": "A",
    "-L": "1,1:file",
    "-X": "ours",
    "url": "https://127.0.0.1:1/",
    "repository": "origin",
    "filter": ".",
}


@contextlib.asynccontextmanager
async def client_of(folder: Path, program: str) -> AsyncIterator[Client]:
    """A client of all commands of a program, in the directory `work`."""
    require(program)
    names = {f"GIT_{who}_{what}": "a@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **names}
    (folder / "work").mkdir()
    async with serve(
        folder, {"use": program, "commands": ["*"], "cwd": {"roots": ["work"]}}, environment=environment
    ) as client:
        yield client


def run(*words: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a program as a person would."""
    return subprocess.run(words, cwd=cwd, env=env, check=True, capture_output=True, text=True).stdout


async def output_of(client: Client, tool: str, arguments: Json | None = None) -> str:
    """The output of a call that works."""
    result = await client.call("it", tool, arguments or {})
    assert not result.get("isError"), text_of(result)
    return str(result["structuredContent"]["stdout"])


async def test_git_makes_a_repository_and_tells_its_history(tmp_path: Path) -> None:
    async with client_of(tmp_path, "git") as client:
        await output_of(client, "git_init", {"initial_branch": "main"})
        (tmp_path / "work" / "-file").write_text("one\n")
        await output_of(client, "git_add", {"paths": ["-file"]})
        assert await output_of(client, "git_status", {"short": True}) == "A  -file\n"
        await output_of(client, "git_commit", {"message": ["First @file", "-x"]})
        await output_of(client, "git_branch_create", {"name": "other"})
        await output_of(client, "git_switch", {"branch": "other"})
        (tmp_path / "work" / "-file").write_text("two\n")
        assert "+two" in await output_of(client, "git_diff", {"unified": 0})
        await output_of(client, "git_commit", {"message": ["Second"], "all": True})

        assert await output_of(client, "git_log", {"format": "%s", "revisions": ["main..@"]}) == "Second\n"
        assert await output_of(client, "git_log", {"format": "%s %b", "grep": ["First"]}) == "First @file -x\n\n"
        assert "-one\n+two" in await output_of(client, "git_show", {"paths": ["-file"]})
        assert await output_of(client, "git_show", {"objects": ["main:-file"]}) == "one\n"
        assert "two" in await output_of(client, "git_blame", {"path": "-file"})
        assert await output_of(client, "git_grep", {"pattern": "t.o", "line_number": True}) == "-file:1:two\n"
        assert await output_of(client, "git_ls_files") == "-file\n"
        assert "main" in await output_of(client, "git_branch", {"merged": "main"})
        assert (await output_of(client, "git_rev_list", {"revisions": ["HEAD"], "count": True})) == "2\n"
        await output_of(client, "git_tag_create", {"name": "v1", "message": "One"})
        assert await output_of(client, "git_tag", {"patterns": ["v*"]}) == "v1\n"
        assert await output_of(client, "git_describe") == "v1\n"
        await output_of(client, "git_switch", {"branch": "main"})
        await output_of(client, "git_merge", {"revisions": ["other"], "no_ff": True, "message": "-m"})
        await output_of(client, "git_reset", {"hard": True, "revision": "HEAD~1"})
        assert await output_of(client, "git_show", {"objects": ["HEAD:-file"]}) == "one\n"


async def test_git_says_what_is_wrong(tmp_path: Path) -> None:
    async with client_of(tmp_path, "git") as client:
        result = await client.call("it", "git_log", {})

    assert result["isError"]
    assert result["structuredContent"]["exitCode"] == 128
    assert "not a git repository" in text_of(result)


async def test_rg_searches_and_lists_files(tmp_path: Path) -> None:
    async with client_of(tmp_path, "rg") as client:
        folder = tmp_path / "work"
        (folder / "a.py").write_text("import os\n--pre=evil\n")
        (folder / "b.txt").write_text("import\n")
        (folder / "outside").symlink_to(tmp_path)

        found = await output_of(client, "rg_search", {"pattern": "imp.rt", "type": ["py"], "line_number": True})
        assert found == "a.py:1:import os\n"
        assert await output_of(client, "rg_search", {"pattern": "--pre=evil", "no_filename": True}) == "--pre=evil\n"
        assert await output_of(client, "rg_search", {"pattern": "nowhere"}) == ""
        assert sorted((await output_of(client, "rg_files")).split()) == ["a.py", "b.txt"]
        assert "py: " in await output_of(client, "rg_types")
        assert (await client.call("it", "rg_search", {"pattern": "("}))["isError"]
        assert (await client.call("it", "rg_search", {"pattern": "x", "paths": ["outside"]}))["isError"]


async def test_rg_runs_no_preprocessor_whatever_its_config_says(tmp_path: Path) -> None:
    require("rg")
    mark = tmp_path / "it-ran"
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch '{mark}'\ncat \"$1\"\n")
    evil.chmod(0o755)
    (tmp_path / "ripgreprc").write_text(f"--pre={evil}\n")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a").write_text("x\n")
    variables = {"PATH": os.environ["PATH"], "RIPGREP_CONFIG_PATH": str(tmp_path / "ripgreprc")}
    run("rg", "x", "work", cwd=tmp_path, env=variables)
    assert mark.exists()
    mark.unlink()

    cli = {"use": "rg", "commands": ["*"], "cwd": {"roots": ["work"]}, "env": ["RIPGREP_*"]}
    async with serve(tmp_path, cli, environment=variables) as client:
        assert "x" in await output_of(client, "rg_search", {"pattern": "x"})

    assert not mark.exists()


async def test_jq_filters_texts_and_files(tmp_path: Path) -> None:
    async with client_of(tmp_path, "jq") as client:
        (tmp_path / "work" / "-data.json").write_text('{"a": [1, 2]}')

        assert await output_of(client, "jq_filter", {"filter": ".a[]", "files": ["-data.json"]}) == "1\n2\n"
        given: Json = {"filter": "-.a + $x # why", "stdin": '{"a": 3}', "argjson": {"x": "5"}}
        assert await output_of(client, "jq_filter", given) == "2\n"
        given = {"filter": "[$p, $q]", "null_input": True, "compact_output": True, "arg": {"p": "--x=1", "q": ""}}
        assert (await client.call("it", "jq_filter", given))["isError"]
        given["arg"]["p"] = "@x"
        assert await output_of(client, "jq_filter", given) == '["@x",""]\n'
        assert (await client.call("it", "jq_filter", {"filter": ".a", "stdin": "{"}))["isError"]


@pytest.mark.parametrize("text", ['import "m" as m; m::x', 'include "m"; x', 'import "d" as $d; $d'])
async def test_jq_reads_no_module(tmp_path: Path, text: str) -> None:
    async with client_of(tmp_path, "jq") as client:
        (tmp_path / "work" / "m.jq").write_text('def x: "secret";')
        (tmp_path / "work" / "d.json").write_text('"secret"')
        assert "secret" in run("jq", "-n", "-L", ".", text, cwd=tmp_path / "work")
        searched = text.replace('"m"', '"m" ', 1).replace(";", ' {search: "./"};', 1)

        for each in (text, searched, f"1) | ({text}"):
            result = await client.call("it", "jq_filter", {"filter": each, "null_input": True})
            assert result["isError"]
            assert "secret" not in text_of(result)


# --- flags -------------------------------------------------------------------------------------------------------


def _value(each: Flag | Positional) -> object:
    match each.type:
        case "boolean":
            return True
        case "integer" | "number":
            return max(1, int(each.minimum or 0))
        case "enum":
            value: object = (each.values or [""])[0]
        case "pairs":
            return {"a": "1"}
        case _:
            value = _VALUES.get(each.name, "file")
    return [value] if each.repeatable else value


def _required(command: Command) -> dict[str, object]:
    every: list[Flag | Positional] = [*command.flags, *command.positionals]
    return {each.argument: _value(each) for each in every if each.required}


@pytest.mark.parametrize("program", ["git", *(pytest.param(each, marks=pytest.mark.full) for each in ("jq", "rg"))])
def test_the_program_knows_every_flag_of_its_pack(tmp_path: Path, program: str) -> None:
    require(program)
    pack = library.read_shipped(program)
    (tmp_path / "file").write_text("1\n")
    if program == "git":
        git(tmp_path, "init", "--quiet", "--initial-branch=main")
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "--quiet", "--message", "one")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **pack.environment}
    refused = []
    for command in pack.commands:
        for flag in command.flags:
            needed = {"revisions": ["HEAD"]} if flag.name == "--merge-base" else {}
            argv = build(command, {**_required(command), **needed, flag.argument: _value(flag)}).argv
            done = subprocess.run(
                [program, *pack.fixed, *argv],
                cwd=tmp_path,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=BOUND_S,
            )
            if any(words in done.stderr.lower() for words in _UNKNOWN):
                refused.append((command.name, flag.name, done.stderr[:100]))

    assert refused == []
