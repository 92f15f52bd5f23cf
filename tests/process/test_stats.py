"""`dynamic-mcp stats` tells what the tools of a config cost, by what a client really gets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import own_process
from tests.cli.commands import CliRunner
from tests.program import full

if sys.platform != "win32":
    import pty

Json = Any  # whatever JSON a test writes down
pytestmark = pytest.mark.alone_only("the command starts the servers itself")

SERVER = """
import json, sys
group, tools = sys.argv[1], int(sys.argv[2])
schema = {"type": "object", "properties": {"target": {"type": "string", "description": "What to do it to"}}}
about = "Does a thing of one kind to a target. " + "More words. " * 30
named = [f"do_thing_{n}_of_{group}" for n in range(tools)]
hello = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
answers = {
    "initialize": hello,
    "tools/list": {"tools": [{"name": name, "description": about, "inputSchema": schema} for name in named]},
}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": answers.get(asked["method"], {})}
        print(json.dumps(answer), flush=True)
"""


def _config(folder: Path, *, groups: int, tools: int, **more: Json) -> Path:
    server = folder / "server.py"
    server.write_text(SERVER)
    each = {"command": sys.executable, "description": "Things that are done to targets"}
    servers = {f"group{n}": {**each, "args": [str(server), f"g{n}", str(tools)]} for n in range(groups)}
    file = folder / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": servers | more}))
    return file


def _environment(folder: Path, **more: str) -> Mapping[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), **more}


def _stats(file: Path, *args: str, code: int = 0, **more: str) -> dict[str, Json]:
    environment = _environment(file.parent, **more)
    done = own_process.run("stats", str(file), *args, env=environment, cwd=file.parent)
    assert done.returncode == code, done.stderr.decode()
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_five_hundred_tools_in_ten_groups_start_and_are_searched_in_fifteen_hundred_tokens(tmp_path: Path) -> None:
    found = _stats(_config(tmp_path, groups=10, tools=50))

    assert found["all"]["tools"] == 500
    assert found["all"]["direct"]["tokens"] > 50_000
    assert found["all"]["start"]["tokens"] <= 350 + 30 * 10
    call = len(json.dumps({"group": "group1", "name": "do_thing_1", "args": {"target": "x"}})) // 4 + 25
    assert found["all"]["after_search"]["tokens"] + call < 1500


def test_every_group_is_told_and_the_whole_is_their_sum(tmp_path: Path) -> None:
    found = _stats(_config(tmp_path, groups=2, tools=3))

    assert [each["group"] for each in found["groups"]] == ["group0", "group1"]
    assert found["tokens"] == "estimated: 4 characters a token"
    for each in found["groups"]:
        assert each["tools"] == 3
        assert each["direct"]["tokens"] == -(-each["direct"]["bytes"] // 4)
        assert each["search"]["tokens"] > 0
        assert each["full"]["tokens"] >= each["direct"]["tokens"]
    assert found["all"]["direct"]["bytes"] == sum(each["direct"]["bytes"] for each in found["groups"])
    assert found["all"]["after_search"]["tokens"] > found["all"]["start"]["tokens"]


def test_a_server_that_cannot_be_reached_is_told_and_costs_the_others_nothing(tmp_path: Path) -> None:
    file = _config(tmp_path, groups=1, tools=3, broken={"command": "no-such-command-anywhere"})

    found = _stats(file, code=5)

    assert found["groups"][0]["tools"] == 3
    assert "no-such-command-anywhere" in found["groups"][1]["error"]
    assert found["groups"][1]["tools"] == 0


def test_an_installed_tokenizer_counts(tmp_path: Path) -> None:
    (tmp_path / "tiktoken.py").write_text(
        "class E:\n    def encode_ordinary(self, text):\n        return text.split()\n"
        "def get_encoding(name):\n    return E()\n"
    )

    found = _stats(_config(tmp_path, groups=1, tools=2))

    assert found["tokens"] == "counted by tiktoken, o200k_base"
    assert 0 < found["all"]["start"]["tokens"] < found["all"]["start"]["bytes"] / 5


@pytest.mark.parametrize("body", ["raise ImportError", "def get_encoding(name):\n    raise OSError('no network')\n"])
def test_a_tokenizer_that_does_not_work_leaves_the_estimate(tmp_path: Path, body: str) -> None:
    (tmp_path / "tiktoken.py").write_text(body)

    found = _stats(_config(tmp_path, groups=1, tools=2))

    assert found["tokens"].startswith("estimated")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
def test_a_person_at_a_terminal_sees_a_table_with_bars(tmp_path: Path) -> None:
    file = _config(tmp_path, groups=2, tools=5)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "dynamic_mcp", "stats", str(file)],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=_environment(tmp_path, COLUMNS="120", TERM="xterm"),
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            shown += chunk
    except OSError:  # how a terminal says that the other side is gone
        pass
    os.close(ours)

    assert process.wait(30) == 0
    for words in (
        "group0",
        "group1",
        "█",
        "until a tool is needed",
        "after one search",
        "DIRECT: the tools without dynamic-mcp",
    ):
        assert words in shown.decode()
    assert "█" * 30 in shown.decode()
    assert "█" * 31 not in shown.decode(), "the longest bar is that of the largest figure"


@pytest.mark.parametrize(("tools", "is_said"), [(1, True), (50, False)])
def test_a_config_with_few_tools_is_told_that_a_search_saves_nothing_there(
    tmp_path: Path, tools: int, *, is_said: bool
) -> None:
    cli = CliRunner(tmp_path)
    file = _config(tmp_path, groups=2, tools=tools)
    shown = cli.run("stats", str(file), "--table").out
    assert ("With so few tools" in shown) is is_said
    assert "SHARE" in shown


def test_what_auto_lists_is_said_with_the_clients_that_get_it(tmp_path: Path) -> None:
    file = _config(tmp_path, groups=2, tools=3)
    written = json.loads(file.read_text())
    assert "auto" not in _stats(file)
    written["mcpServers"]["group1"]["direct"] = "auto"
    file.write_text(json.dumps(written))

    figures = _stats(file)

    assert figures["auto"]["tools"] == 3
    assert figures["auto"]["listed"] == figures["groups"][1]["direct"]
    assert "Claude Code" in figures["auto"]["clients"]
    assert "outside the context" in CliRunner(tmp_path).run("stats", str(file), "--table").out


def test_a_terminal_without_blocks_gets_bars_of_plain_characters(tmp_path: Path) -> None:
    cli = CliRunner(tmp_path)
    cli.configure({"full": full()})
    shown = cli.run_on_terminal("stats", width=40, PYTHONIOENCODING="ascii").out
    assert "###" in shown
    assert "\\u" not in shown
    assert "tokens: " in shown
