"""The whole protocol through real pipes and processes, where a process makes the difference."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from dynamic_mcp.mcp import wire
from tests.program import UPSTREAMS, full, running, serving, text_of

TEXT_OF_B = "dynamic-mcp://b/full%3A%2F%2Ftext"


@pytest.mark.both_hosts
async def test_no_server_starts_before_the_client_has_said_what_it_can_do_and_then_each_hears_its_words(
    tmp_path: Path,
) -> None:
    started, config = tmp_path / "started", tmp_path / "c.json"
    noticed = f"import runpy, sys; sys.argv[:1] = []; open({str(started)!r}, 'w').close(); "
    command = [sys.executable, "-c", f"{noticed}runpy.run_path(sys.argv[0], run_name='__main__')"]
    server = {"command": command[0], "args": [*command[1:], str(UPSTREAMS / "full.py")]}
    config.write_text(json.dumps({"mcpServers": {"a": {**server, "env": {"PYTHONPATH": str(UPSTREAMS)}}}}))
    said = (
        b'"capabilities":{"z":1,"elicitation":{"url":{} ,"form":{}},"experimental":{"twice":1,"twice":2},'
        b'"extensions":{"n":1234567890123456789012345678901234567890}},'
        b'"clientInfo":{"version":"1.0","name":"caf\\u00e9"}'
    )
    async with running(str(config)) as program:
        assert (await program.request("ping"))["result"] == {}
        assert not started.exists()
        await program.exchange("initialize", b'{"protocolVersion":"2025-11-25",%s}' % said)
        received = json.loads(text_of(await program.call("a", "record")))
        assert started.exists()
        hello = wire.member(received[0].encode(), "params")
        assert bytes(hello) == b'{"protocolVersion":"2025-11-25",%s}' % said


async def test_after_a_crash_the_client_is_still_subscribed_and_still_has_its_level(tmp_path: Path) -> None:
    async with serving(tmp_path, {"a": full("--name", "a"), "b": full("--name", "b")}) as program:
        await program.request("resources/list")
        await program.request("logging/setLevel", {"level": "error"})
        await program.request("resources/subscribe", {"uri": TEXT_OF_B})
        assert (await program.call("b", "crash"))["isError"] is True

        assert text_of(await program.call("b", "log", {"level": "debug"})) == "error"
        assert text_of(await program.call("b", "update", {"uri": "full://text"})) == "full://text"
        updated = await program.hears("notifications/resources/updated")
        assert updated["params"]["uri"] == TEXT_OF_B


async def test_servers_that_hang_and_crash_empty_no_list(tmp_path: Path) -> None:
    servers = {
        "hung": full("--hang", "initialize", timeout={"connect": "1s"}),
        "crashed": full("--name", "crashed", "--scheme", "crashed"),
        "good": full("--name", "good"),
    }
    async with serving(tmp_path, servers) as program:
        before = (await program.request("resources/list"))["result"]
        while len(before["resources"]) < 8:  # a server has taken its time to connect
            await program.hears("notifications/resources/list_changed")
            before = (await program.request("resources/list"))["result"]
        await program.call("crashed", "crash")
        after = (await program.request("resources/list"))["result"]
        assert after["resources"] == before["resources"]
        assert len(after["resources"]) == 8
        assert list(after["_meta"]["dynamic-mcp/missing"]) == ["hung"]


async def test_a_list_of_thousands_is_paged_and_read_from_its_pages(tmp_path: Path) -> None:
    async with serving(tmp_path, {"a": full("--many", "2500", "--page", "400")}) as program:
        uris: list[str] = []
        params: dict[str, str] = {}
        while True:
            page = (await program.request("resources/list", params))["result"]
            uris += [resource["uri"] for resource in page["resources"]]
            if not uris:  # the server has taken its time to connect
                await program.hears("notifications/resources/list_changed")
                continue
            if "nextCursor" not in page:
                break
            params = {"cursor": page["nextCursor"]}
        assert len(uris) == len(set(uris)) == 2504
