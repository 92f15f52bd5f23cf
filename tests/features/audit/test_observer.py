"""Each use of a server has one line that says who, what, by which rule, and what came of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from dynamic_mcp.features.audit import days
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.proxy.request import Event
from tests.fakes import settled
from tests.features.audit.audited import Json, audited, read_lines
from tests.policy.rules import access_of, person

ANN = Authentication(Principal("https://idp.example", "ann"), "jwt", roles=("dev",))


async def test_a_call_has_one_line_with_all_that_is_known(tmp_path: Path) -> None:
    access = access_of(roles={"dev": [{"id": "getters", "tools": ["get_*"]}]})
    async with audited(tmp_path, access=access) as on:
        client = await on.join(ANN)
        await client.call("up", "get_thing", {"text": "hello"})
        (line,) = on.lines()
    del line["hash"], line["prev"], line["at"], line["pid"], line["n"]
    assert len(line.pop("id")) > 10
    assert len(line.pop("session")) == 16
    assert len(line.pop("definition")) == 64
    assert line.pop("ms") > 0
    assert line.pop("arguments")["names"] == ["text"]
    assert line == {
        "v": 1,
        "event": "call",
        "issuer": "https://idp.example",
        "subject": "ann",
        "roles": ["dev"],
        "auth": "jwt",
        "client": "tester",
        "client_version": "2.0",
        "request": "c2",
        "config": "/c.jsonc",
        "group": "up",
        "kind": "tool",
        "name": "get_thing",
        "access": "read",
        "decision": "allow",
        "rule": "getters",
        "result_bytes": 47,
        "upstream": "fake server",
        "upstream_version": "1.2.3",
    }


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("prompts/get", {"name": "up__review"}, {"event": "prompt", "kind": "prompt", "name": "review"}),
        ("resources/read", {"uri": "file:///a"}, {"event": "read", "kind": "resource", "name": "file:///a"}),
        (
            "tools/call",
            {"name": "get_dynamic_tools", "arguments": {"query": "x"}},
            {"event": "list", "kind": "search", "name": "get_dynamic_tools"},
        ),
        (
            "tools/call",
            {"name": "up__delete_thing"},
            {"name": "delete_thing", "shown": "up__delete_thing", "access": "write"},
        ),
        (
            "tools/call",
            {"name": "call_dynamic_tool", "arguments": '{"group":"up","name":"get_thing"}'},
            {"group": "up"},
        ),
    ],
)
async def test_other_uses_have_a_line_too(tmp_path: Path, method: str, params: Json, expected: Json) -> None:
    async with audited(tmp_path) as on:
        client = await on.join()
        await client.request("tools/list")
        await client.request(method, params)
        (line,) = on.lines()
    assert line.items() >= expected.items()
    assert line.get("outcome", "success") == "success"


HIDDEN = {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": "delete_thing", "args": {"a": 1}}}
NOWHERE = {"name": "call_dynamic_tool", "arguments": {"group": "prod", "name": "drop", "args": {"a": 1}}}


@pytest.mark.parametrize(
    ("params", "group", "ending"),
    [(HIDDEN, "up", ("denied", "AccessDenied")), (NOWHERE, "prod", ("failure", "NotFound"))],
)
async def test_what_is_hidden_or_nowhere_is_recorded_as_it_was_asked_for(
    tmp_path: Path, params: Json, group: str, ending: tuple[str, str]
) -> None:
    async with audited(tmp_path, access=access_of(roles={"dev": [{"tools": ["get_*"]}]})) as on:
        await (await on.join(ANN)).request("tools/call", params)
        (line,) = on.lines()
    assert (line["outcome"], line["error"]) == ending
    assert (line["group"], line["name"]) == (group, params["arguments"]["name"])
    assert line["arguments"]["names"] == ["a"]


async def test_a_call_that_the_rules_deny_by_its_arguments_says_by_which_rule(tmp_path: Path) -> None:
    rule = {"id": "small", "tools": ["get_*"], "arguments": {"$.text": {"pattern": "small"}}}
    async with audited(tmp_path, access=access_of(roles={"dev": [rule]})) as on:
        await (await on.join(ANN)).call("up", "get_thing", {"text": "large"})
        (line,) = on.lines()
    assert (line["outcome"], line["error"], line["decision"]) == ("denied", "AccessDenied", "deny")
    assert on.upstream.heard("tools/call") == []


async def test_an_error_of_the_upstream_is_a_failure_with_its_code(tmp_path: Path) -> None:
    async with audited(tmp_path) as on:
        client = await on.join()
        on.upstream.answers["tools/call"] = {"content": [], "isError": True}
        await client.call("up", "broken")
        del on.upstream.answers["tools/call"]
        call = asyncio.create_task(client.call("up", "broken"))
        sent = await on.upstream.hears("tools/call", 2)
        on.upstream.say({"jsonrpc": "2.0", "id": sent["id"], "error": {"code": -32000, "message": "no"}})
        await call
        lines = on.lines()
    assert [(line["outcome"], line["error"]) for line in lines] == [("failure", "tool_error"), ("failure", "-32000")]


async def test_a_cancelled_call_is_recorded(tmp_path: Path) -> None:
    async with audited(tmp_path) as on:
        client = await on.join()
        await client.call("up", "get_thing")
        del on.upstream.answers["tools/call"]
        client.send({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "up__silent"}})
        await on.upstream.hears("tools/call", 2)
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
        await settled()
        _, line = on.lines()
    assert (line["outcome"], line["request"], line["name"]) == ("cancelled", "7", "silent")


async def test_the_trace_of_the_client_is_recorded(tmp_path: Path) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    async with audited(tmp_path) as on:
        client = await on.join()
        await client.call("up", "get_thing", _meta={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
        await client.call("up", "get_thing", _meta={"traceparent": "nonsense"})
        first, second = on.lines()
    assert first["trace"] == trace
    assert "trace" not in second


async def test_each_session_has_an_id_of_its_own(tmp_path: Path) -> None:
    async with audited(tmp_path) as on:
        for client in (await on.join(ANN), await on.join(ANN)):
            await client.call("up", "get_thing")
            await client.call("up", "get_thing")
        sessions = [line["session"] for line in on.lines()]
    assert sessions == [sessions[0]] * 2 + [sessions[2]] * 2
    assert sessions[0] != sessions[2]


async def test_a_tool_with_control_characters_in_its_name_makes_one_line(tmp_path: Path) -> None:
    name = 'x"}\n{"v":1,"n":1}\n\x1b[2J\u2028\u202e'
    async with audited(tmp_path) as on:
        await (await on.join()).call("up", name)
        (line,) = on.lines()
    assert line["name"] == name
    (file,) = days.list_files(tmp_path)
    assert file.read_bytes().replace(b"\n", b"").decode("ascii").isprintable()


async def test_a_long_name_is_cut(tmp_path: Path) -> None:
    async with audited(tmp_path) as on:
        await (await on.join()).call("up", "x" * 5_000_000)
        (line,) = on.lines()
    assert len(line["name"]) == 1001


async def test_an_event_has_a_line(tmp_path: Path) -> None:
    async with audited(tmp_path) as on:
        assert on.proxy.observers is not None
        on.proxy.observers.note(Event("config.reload", {"groups": 2, "outcome": "success", "token": "hunter2"}))
        on.trail.close()
        line = read_lines(tmp_path)[-1]
    assert (line["event"], line["detail"]) == ("config.reload", {"groups": 2, "token": "***"})


async def test_calls_at_the_same_time_have_a_line_each(tmp_path: Path) -> None:
    async with audited(tmp_path) as on:
        client = await on.join()
        await asyncio.gather(*(client.call("up", "get_thing", {"n": n}) for n in range(200)))
        lines = on.lines()
    assert len({line["id"] for line in lines}) == len(lines) == 200
    assert len({line["arguments"]["digest"] for line in lines}) == 200


# --- arguments --------------------------------------------------------------------------------------------------

SECRETS = {"text": "see ghp_abcdefgh12345678", "password": "hunter2", "deep": [{"api_key": "k"}], "n": 1}
MASKED = {"text": "see ***", "password": "***", "deep": [{"api_key": "***"}], "n": 1}


async def test_arguments_are_names_and_a_digest_that_does_not_depend_on_secrets(tmp_path: Path) -> None:
    async with audited(tmp_path) as on:
        client = await on.join()
        for args in (SECRETS, {**SECRETS, "password": "other"}, {**SECRETS, "n": 2}):
            await client.call("up", "get_thing", args)
        first, second, third = (line["arguments"] for line in on.lines())
    assert first["names"] == ["text", "password", "deep", "n"]
    assert first["digest"].startswith("hmac:")
    assert first == second != third


@pytest.mark.parametrize(("mode", "recorded"), [("redacted", MASKED), ("full", SECRETS), ("off", None)])
async def test_arguments_are_recorded_as_the_settings_say(tmp_path: Path, mode: Json, recorded: Json) -> None:
    async with audited(tmp_path, arguments=mode) as on:
        await (await on.join()).call("up", "get_thing", SECRETS)
        (line,) = on.lines()
    assert line.get("arguments") == recorded


@pytest.mark.parametrize("mode", ["keys", "redacted", "full"])
async def test_large_arguments_do_not_fill_the_disk(tmp_path: Path, mode: Json) -> None:
    args = {"content": "x" * 10_000_000, "password": "hunter2" * 1000, "path": "a.txt"}
    async with audited(tmp_path, arguments=mode) as on:
        await (await on.join()).call("up", "get_thing", args)
        (line,) = on.lines()
    assert len(json.dumps(line)) < 4000
    assert "hunter2" not in json.dumps(line)
    if mode == "keys":
        assert line["arguments"]["bytes"] > 10_000_000
    else:
        assert line["arguments"]["path"] == "a.txt"
        assert line["arguments"]["content"] == {"cut": 10_000_002}


@pytest.mark.parametrize("mode", ["keys", "redacted", "full"])
async def test_odd_arguments_are_recorded_somehow(tmp_path: Path, mode: Json) -> None:
    deep = b"[" * 900 + b"]" * 900
    many = json.dumps({f"n{n}": n for n in range(5000)}).encode()
    async with audited(tmp_path, arguments=mode) as on:
        client = await on.join()
        for args in (b'{"a":"\\ud800"}', b'{"a":1e999}', b'{"a":%s}' % deep, many, b"[1]", b'"text"', b"null"):
            await client.request("tools/call", b'{"name":"up__get_thing","arguments":%s}' % args)
        lines = on.lines()
    assert len(lines) == 7
    assert max(len(json.dumps(line)) for line in lines) < 40_000


async def test_the_secrets_in_a_uri_are_masked(tmp_path: Path) -> None:
    async with audited(tmp_path) as on:
        await (await on.join()).request("resources/read", {"uri": "https://h/x?token=hunter2"})
        (line,) = on.lines()
    assert line["name"] == "https://h/x?token=***"


# --- while nothing can be recorded --------------------------------------------------------------------------------


async def test_what_may_change_something_is_not_sent_while_it_cannot_be_recorded(tmp_path: Path) -> None:
    directory = tmp_path / "audit"
    directory.write_text("no directory")
    async with audited(directory, stops_writes=True) as on:
        client = await on.join(person())
        refused = await client.call("up", "delete_thing")
        assert "audit log cannot be written" in json.dumps(refused)
        assert "isError" not in await client.call("up", "get_thing")
        directory.unlink()
        assert "isError" not in await client.call("up", "delete_thing")
        lines = on.lines()
    assert [each["params"]["name"] for each in on.upstream.heard("tools/call")] == ["get_thing", "delete_thing"]
    assert [(line["name"], line.get("outcome", "success")) for line in lines] == [
        ("delete_thing", "denied"),
        ("get_thing", "success"),
        ("delete_thing", "success"),
    ]


async def test_everything_goes_on_where_the_config_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "audit"
    directory.write_text("no directory")
    async with audited(directory) as on:
        client = await on.join()
        for _ in range(3):
            assert "isError" not in await client.call("up", "delete_thing")
        directory.unlink()
        await client.call("up", "delete_thing")
        lines = on.lines()
    assert len(lines) == 4
    assert caplog.text.count("cannot be written") == 1
    assert caplog.text.count("is written again") == 1
