"""A command line program behind the two tools: what a client sees of it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.workspace import SERVER_MARK
from dynamic_mcp.errors import Unreachable
from dynamic_mcp.upstream.open import open_link
from tests import windows
from tests.fake_parties import Ear
from tests.fakes import Client, Json, group_config, text_of
from tests.program import BOUND_S
from tests.upstream.cli.programs import MIRROR, command, line, serve

# Says how it goes on stderr, and then waits.
SLOW = """
import os, signal, sys
print("pid", os.getpid(), file=sys.stderr, flush=True)
signal.pause()
"""
needs_links = pytest.mark.posix_only("links need a right on Windows")
COMMANDS: list[Json] = [
    {"name": "run", "description": "Runs it.", "effect": "read", "stdin": True, "ok_exit_codes": [4]},
    {
        "name": "list all",
        "path": ["list"],
        "description": "Lists.",
        "effect": "destructive",
        "open_world": True,
        "environment": {"IT_MODE": "list"},
        "separator": True,
        "flags": [{"name": "--max-count", "type": "integer"}],
        "positionals": [{"name": "paths", "type": "path", "repeatable": True}],
    },
    {"name": "guess", "description": "Nobody knows."},
]


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """A pack of a program that shows how it was started."""
    return write_pack(tmp_path, MIRROR)


def write_pack(folder: Path, script: str, **members: Any) -> Path:  # Any: JSON
    pack = {"name": "it", "program": sys.executable, "description": "Does it.", "fixed": ["-c", script]}
    (folder / "it.json").write_text(json.dumps({**pack, "commands": COMMANDS, **members}))
    return folder / "it.json"


def entry(**cli: Json) -> Json:
    return {"use": "./it.json", "commands": ["*"], **cli}


def seen(result: Json) -> Json:
    """What the program says of how it was started."""
    assert not result.get("isError"), result
    return json.loads(result["structuredContent"]["stdout"])


async def test_a_command_is_a_tool_that_runs_the_program_with_its_words(tmp_path: Path, pack: Path) -> None:
    async with serve(tmp_path, entry()) as client:
        result = await client.call("it", "it_list_all", {"max_count": 3, "paths": ["-x", "a b"]})

    assert seen(result)["argv"] == ["list", "--max-count=3", "--", "-x", "a b"]
    assert result["structuredContent"]["exitCode"] == 0
    assert result["structuredContent"]["truncated"] is False


async def test_the_link_says_what_each_tool_does(pack: Path) -> None:
    destroying = command(name="drop", effect="destructive", open_world=True)
    unknown = command(name="guess", effect="unknown")
    writing = command(name="make", effect="write")
    link, hello = await open_link(
        group_config(upstream=line(command(), destroying, unknown, writing)), Ear(), ClientInfo()
    )
    try:
        answer = await link.request("tools/list", timeout_s=BOUND_S)
    finally:
        await link.close()

    hints = {each["name"]: each["annotations"] for each in json.loads(bytes(answer.result))["tools"]}
    assert hello.instructions == "It."
    assert hints == {
        "it_run": {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False},
        "it_drop": {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True},
        "it_guess": {"readOnlyHint": False, "openWorldHint": False},
        "it_make": {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False},
    }


async def test_only_few_variables_reach_the_program(tmp_path: Path, pack: Path) -> None:
    variables = {"PATH": os.environ["PATH"], "SECRET_TOKEN": "s3cret", "GIT_DIR": "x", "LD_PRELOAD": "", "OWN": "1"}
    async with serve(tmp_path, entry(env=["OWN"]), environment=variables) as client:
        env = seen(await client.call("it", "it_list_all", {}))["env"]

    if windows.is_wine():  # which gives each program these, where Windows gives those that were passed
        env = {name: value for name, value in env.items() if not name.startswith(("WINE", "SYSTEM"))}
    assert {*env} - {SERVER_MARK} <= {"PATH", "OWN", "PAGER", "NO_COLOR", "TERM", "IT_MODE", "LC_CTYPE"}
    assert (env["PAGER"], env["NO_COLOR"], env["TERM"], env["IT_MODE"]) == ("cat", "1", "dumb", "list")


async def test_a_command_that_is_not_named_does_not_exist(tmp_path: Path, pack: Path) -> None:
    async with serve(tmp_path, entry(commands=["list*"])) as client:
        result = await client.call("it", "it_run", {})

    assert result["isError"]
    assert "it_run" in text_of(result)


async def test_a_text_is_what_the_program_reads(tmp_path: Path, pack: Path) -> None:
    async with serve(tmp_path, entry()) as client:
        assert seen(await client.call("it", "it_run", {"stdin": "hello\n"}))["stdin"] == "hello\n"
        assert seen(await client.call("it", "it_run", {}))["stdin"] == ""
        refused = await client.call("it", "it_guess", {"stdin": "hello"})

    assert refused["isError"]


@pytest.mark.parametrize(("code", "is_error"), [(0, False), (4, False), (1, True), (5, True)])
async def test_an_exit_code_that_the_pack_does_not_list_is_an_error(
    tmp_path: Path, code: int, is_error: bool
) -> None:
    write_pack(tmp_path, f"import sys; print('out'); print('err', file=sys.stderr); sys.exit({code})")
    async with serve(tmp_path, entry()) as client:
        result = await client.call("it", "it_run", {})

    assert bool(result.get("isError")) is is_error
    assert result["structuredContent"]["exitCode"] == code
    assert result["structuredContent"]["stderr"] == f"err{os.linesep}"
    assert ("err" in text_of(result)) is is_error


async def test_arguments_are_checked_even_if_the_proxy_does_not(tmp_path: Path, pack: Path) -> None:
    async with serve(tmp_path, entry(), validate="off") as client:
        for arguments in (
            {"--output": "x"},
            {"max_count": "--x"},
            {"paths": ["a\0"]},
            {"cwd": "/"},
            {"paths": ["@f"]},
        ):
            result = await client.call("it", "it_list_all", arguments)
            assert result["isError"], arguments
            assert "the program was not run" in text_of(result)


# --- where it works ----------------------------------------------------------------------------------------------


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    """A root with a directory in it, a link out of it, and a secret outside."""
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("s")
    (tmp_path / "rootless").mkdir()
    if sys.platform != "win32":
        (root / "link").symlink_to(tmp_path / "outside")
        (root / "inner").symlink_to(root / "sub")
    return root


@needs_links
async def test_a_call_works_in_the_first_root_or_where_it_says_within_them(
    tmp_path: Path, pack: Path, roots: Path
) -> None:
    async with serve(tmp_path, entry(cwd={"roots": ["root"]})) as client:
        where = [
            seen(await client.call("it", "it_run", arguments))["cwd"]
            for arguments in ({}, {"cwd": "sub"}, {"cwd": str(roots / "sub")}, {"cwd": "inner"}, {"cwd": "."})
        ]

    assert where == [str(roots), *[str(roots / "sub")] * 3, str(roots)]


@pytest.mark.parametrize(
    "cwd",
    [
        *["..", "/", "sub/../..", "../rootless", "nowhere", "a\0b"],
        *[pytest.param(path, marks=needs_links) for path in ("link", "link/../outside")],
    ],
)
async def test_no_call_works_outside_of_the_roots(tmp_path: Path, pack: Path, roots: Path, cwd: str) -> None:
    async with serve(tmp_path, entry(cwd={"roots": ["root"]})) as client:
        result = await client.call("it", "it_run", {"cwd": cwd})

    assert result["isError"]
    assert "the program was not run" in text_of(result)


@pytest.mark.parametrize(
    "path",
    [
        *["../outside/secret", "/etc/passwd", "sub/../../outside", "new/../../x"],
        pytest.param("link/secret", marks=needs_links),
    ],
)
async def test_no_path_leads_out_of_the_roots(tmp_path: Path, pack: Path, roots: Path, path: str) -> None:
    async with serve(tmp_path, entry(cwd={"roots": ["root"]})) as client:
        result = await client.call("it", "it_list_all", {"paths": ["sub", path]})

    assert "`paths` must be in" in text_of(result)


@needs_links
async def test_a_path_in_the_roots_stays_as_it_was_written(tmp_path: Path, pack: Path, roots: Path) -> None:
    paths = ["inner/new", "./sub", str(roots / "sub"), "../sub"]
    async with serve(tmp_path, entry(cwd={"roots": ["root"]})) as client:
        assert seen(await client.call("it", "it_list_all", {"paths": paths, "cwd": "sub"}))["argv"][-4:] == paths


@needs_links
async def test_a_root_that_is_a_link_is_the_directory_behind_it(tmp_path: Path, pack: Path, roots: Path) -> None:
    (tmp_path / "alias").symlink_to(roots)
    async with serve(tmp_path, entry(cwd={"roots": ["alias"]})) as client:
        assert seen(await client.call("it", "it_run", {"cwd": "sub"}))["cwd"] == str(roots / "sub")


# --- time and output ---------------------------------------------------------------------------------------------


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def begin_slow(client: Client) -> int:
    """Begin a call of the slow program; return its pid, which comes as progress."""
    client.send(
        {
            "jsonrpc": "2.0",
            "id": "slow",
            "method": "tools/call",
            "params": {
                "name": "call_dynamic_tool",
                "arguments": {"group": "it", "name": "it_run", "args": {}},
                "_meta": {"progressToken": "t"},
            },
        }
    )
    progress = await client.hears("notifications/progress")
    assert progress["params"]["progressToken"] == "t"
    return int(progress["params"]["message"].removeprefix("pid "))


@pytest.mark.skipif(sys.platform == "win32", reason="the program waits for a signal")
async def test_stderr_is_progress_and_a_cancelled_call_ends_the_program(tmp_path: Path) -> None:
    write_pack(tmp_path, SLOW)
    async with serve(tmp_path, entry()) as client:
        pid = await begin_slow(client)
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "slow"}})
        async with asyncio.timeout(BOUND_S):
            while not has_ended(pid):  # noqa: ASYNC110 - the end of a process that is not ours tells nobody
                await asyncio.sleep(0.01)

        assert (await client.request("ping"))["result"] == {}


@pytest.mark.skipif(sys.platform == "win32", reason="the program waits for a signal")
async def test_the_end_of_the_proxy_ends_the_program(tmp_path: Path) -> None:
    write_pack(tmp_path, SLOW)
    async with serve(tmp_path, entry()) as client:
        pid = await begin_slow(client)

    assert has_ended(pid)


@pytest.mark.skipif(sys.platform == "win32", reason="the program waits for a signal")
async def test_a_program_that_takes_too_long_is_an_error_with_what_it_wrote(tmp_path: Path) -> None:
    write_pack(tmp_path, "print('so far', flush=True)" + SLOW)
    async with serve(tmp_path, entry(timeout="2s")) as client:
        result = await client.call("it", "it_run", {})

    assert result["isError"]
    assert result["structuredContent"]["exitCode"] is None
    assert text_of(result).startswith("so far\n")
    assert "did not end within 2 s" in text_of(result)


async def test_long_output_is_cut_to_both_of_its_ends(tmp_path: Path) -> None:
    write_pack(tmp_path, "print('begin'); print('x' * 50000); print('end')")
    async with serve(tmp_path, entry(output_limit=2000)) as client:
        result = await client.call("it", "it_run", {})

    structured = result["structuredContent"]
    assert structured["truncated"] is True
    assert structured["stdout"].startswith(f"begin{os.linesep}")
    assert structured["stdout"].endswith(f"end{os.linesep}")
    assert len(structured["stdout"]) < 2100
    assert "bytes left out" in text_of(result)


async def test_longer_results_are_kept_as_those_of_servers_are(tmp_path: Path) -> None:
    write_pack(tmp_path, "print('x' * 50000)")
    async with serve(tmp_path, entry(), result_limit=2000) as client:
        result = await client.call("it", "it_run", {})

    assert "structuredContent" not in result
    assert len(json.dumps(result)) < 5000
    assert "resource" in json.dumps(result)


# --- the program itself ------------------------------------------------------------------------------------------


async def test_a_program_that_is_not_there_is_unreachable() -> None:
    for missing in ("no-such-program-here", "/no/such/program"):
        with pytest.raises(Unreachable, match="was not found"):
            await open_link(group_config(upstream=_with_command(missing)), Ear(), ClientInfo())


def _with_command(name: str) -> Any:  # Any: the struct of `line`
    from msgspec.structs import replace

    return replace(line(), command=name)


@pytest.mark.skipif(sys.platform == "win32", reason="scripts of a shell")
async def test_a_program_is_never_taken_from_the_directory_of_a_call(tmp_path: Path) -> None:
    evil = tmp_path / "it-program"
    evil.write_text("#!/bin/sh\necho evil\n")
    evil.chmod(0o755)
    write_pack(tmp_path, MIRROR, program="it-program")
    variables = {"PATH": f".:{os.pathsep}::relative"}
    async with serve(tmp_path, entry(cwd={"roots": ["."]}), environment=variables) as client:
        result = await client.call("it", "it_run", {})

    assert result["isError"]
    assert "was not found" in text_of(result)


async def test_the_version_of_the_program_is_that_of_the_server() -> None:
    from msgspec.structs import replace

    versioned = replace(line(), version=("--version",), fixed=())
    link, hello = await open_link(group_config(upstream=versioned), Ear(), ClientInfo())
    await link.close()

    info = json.loads(bytes(hello.result["serverInfo"]))
    assert info["name"] == "it"
    assert info["version"].startswith("3.")
