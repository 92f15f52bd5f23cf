"""Bad input on stdin gets the error that JSON-RPC has for it, loses nothing else, and never ends the program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import own_process
from tests.own_process import OWN
from tests.program import Program, odd, running, serving, text_of, window_command

SERVERS = {"good": odd()}


async def error_after(program: Program, line: bytes) -> dict[str, object]:
    """Send a line and return the error that comes back without an id."""
    program.send(line)
    answer = json.loads(await program.line(lambda written: b'"id":null' in written))
    program.lines.clear()
    error: dict[str, object] = answer["error"]
    return error


# Row 62 of the fault matrix.


WRONG_LINES = (
    (b"garbage\n", -32700),
    (b'{"jsonrpc":"2.0","id":1,\n', -32700),
    (b"\x00\xff\xfe\n", -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}\n', -32700),
    (b"[" * 100_000 + b"\n", -32700),
    (b"7\n", -32600),
    (b'"text"\n', -32600),
    (b"{}\n", -32600),
    (b"[]\n", -32600),
    (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n', -32600),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n', -32600),
    (b'{"jsonrpc":"2.0","id":{},"method":"ping"}\n', -32600),
)


async def test_a_line_that_is_no_request_gets_the_right_error(tmp_path: Path, subtests: pytest.Subtests) -> None:
    async with serving(tmp_path, SERVERS) as program:
        for line, code in WRONG_LINES:
            with subtests.test(line=line[:60]):
                assert (await error_after(program, line))["code"] == code
                assert (await program.request("ping"))["result"] == {}


async def test_invalid_utf8_inside_a_request_costs_one_character_and_nothing_else(tmp_path: Path) -> None:
    async with serving(tmp_path, SERVERS) as program:
        program.send(
            b'{"jsonrpc":"2.0","id":"u","method":"tools/call","params":{"name":"call_dynamic_tool","arguments":'
            b'{"group":"good","name":"echo","args":{"text":"a\xffb"}}}}\n'
        )
        answer = json.loads(await program.line(lambda line: b'"id":"u"' in line))
        assert text_of(answer["result"]) == "a\ufffdb"


async def test_an_oversized_request_is_answered_by_its_id_and_the_next_one_works(tmp_path: Path) -> None:
    async with serving(tmp_path, SERVERS, settings={"max_message_bytes": 100_000}) as program:
        program.send(b'{"jsonrpc":"2.0","id":"big","method":"ping","params":{"x":"' + b"x" * 50_000_000 + b'"}}\n')
        answer = json.loads(await program.line(lambda line: b'"id":"big"' in line))
        assert "max_message_bytes" in answer["error"]["message"]
        assert (await program.request("ping"))["result"] == {}


async def test_an_answer_to_nothing_and_unknown_notifications_are_not_answered(tmp_path: Path) -> None:
    async with serving(tmp_path, SERVERS) as program:
        program.lines.clear()
        program.send({"jsonrpc": "2.0", "id": 99, "result": {}})
        program.send({"jsonrpc": "2.0", "method": "notifications/nobody/knows"})
        program.send(b"\n\r\n  \n")
        assert (await program.request("ping"))["result"] == {}
        assert len([line for line in program.lines if b'"method"' not in line]) == 1


async def test_batches_are_answered_as_one_in_the_version_that_has_them(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"mcpServers": SERVERS}))
    async with running(str(file)) as program:
        await program.initialize(version="2025-03-26")
        batch = [
            {"jsonrpc": "2.0", "id": "a", "method": "ping"},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": "b", "method": "no/such"},
        ]
        program.send(batch)
        answers = json.loads(await program.line(lambda line: line.startswith(b"[")))
        assert sorted(answer["id"] for answer in answers) == ["a", "b"]


async def test_what_was_asked_before_the_end_of_input_is_answered(tmp_path: Path) -> None:
    async with serving(tmp_path, SERVERS) as program:
        call = {
            "name": "call_dynamic_tool",
            "arguments": {"group": "good", "name": "sleep", "args": {"seconds": 0.5}},
        }
        program.send({"jsonrpc": "2.0", "id": "last", "method": "tools/call", "params": call})
        program.end_input()
        assert await program.ends() == 0
        assert any(b'"id":"last"' in line and b'"result"' in line for line in program.lines)


async def test_the_end_of_input_in_mid_line_ends_the_program_cleanly(tmp_path: Path) -> None:
    async with serving(tmp_path, SERVERS) as program:
        program.send(b'{"jsonrpc":"2.0","id":5,"meth')
        program.end_input()
        assert await program.ends() == 0


async def test_a_last_request_without_its_newline_is_answered(tmp_path: Path) -> None:
    async with serving(tmp_path, SERVERS) as program:
        program.send(b'{"jsonrpc":"2.0","id":"tail","method":"ping"}')
        program.end_input()
        assert await program.ends() == 0
        assert any(b'"id":"tail"' in line for line in program.lines)


async def test_files_serve_as_stdin_and_stdout(tmp_path: Path) -> None:
    config, asked, answered = tmp_path / "c.json", tmp_path / "in", tmp_path / "out"
    config.write_text(json.dumps({"mcpServers": SERVERS}))
    asked.write_text('{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    with asked.open() as stdin, answered.open("w") as stdout:
        process = await own_process.start(
            *window_command(str(config))[len(OWN) :], stdin=stdin.fileno(), stdout=stdout.fileno()
        )
        await process.communicate()
    assert process.returncode == 0
    assert json.loads(answered.read_text()) == {"jsonrpc": "2.0", "id": 1, "result": {}}
