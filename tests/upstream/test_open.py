"""Opening a link: the handshake, and the errors of upstreams that fail it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from msgspec import Raw

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.resolved import Broken, Grant, OAuth, Program, Timeouts
from dynamic_mcp.errors import ErrorAnswer, LinkLost, ProtocolViolation, TimedOut, Unreachable
from dynamic_mcp.mcp import revisions
from dynamic_mcp.mcp.revisions import LEGACY
from dynamic_mcp.upstream.handshake import ServerInfo, initialize
from dynamic_mcp.upstream.link import Link
from dynamic_mcp.upstream.open import open_link
from dynamic_mcp.upstream.opener import declare_login
from tests.fake_parties import Ear, link_to
from tests.fakes import FakeUpstream, Json, group_config
from tests.program import BOUND_S, UPSTREAMS

ENTERPRISE = "io.modelcontextprotocol/enterprise-managed-authorization"


def _upstream(**initialize: Json) -> FakeUpstream:
    """Return an upstream that answers `initialize` with these members."""
    return FakeUpstream({"initialize": {"protocolVersion": "2025-06-18", "capabilities": {}, **initialize}})


async def test_initialize_names_us_and_the_capabilities_of_the_client() -> None:
    upstream = _upstream()
    hello = ClientInfo(revisions.negotiate("2025-06-18"), capabilities=Raw(b'{"sampling":{}}'))

    await initialize(link_to(upstream), hello, group_config())

    params = upstream.sent[0]["params"]
    assert (params["protocolVersion"], params["capabilities"]) == ("2025-06-18", {"sampling": {}})
    assert params["clientInfo"]["name"] == "dynamic-mcp"
    assert [message["method"] for message in upstream.sent] == ["initialize", "notifications/initialized"]


@pytest.mark.parametrize("version", [revision.name for revision in LEGACY])
async def test_every_version_that_the_proxy_speaks_is_fine(version: str) -> None:
    upstream = _upstream(protocolVersion=version)

    await initialize(link_to(upstream), ClientInfo(), group_config())

    await upstream.hears("notifications/initialized")


@pytest.mark.parametrize(
    ("version", "served_as"),
    [
        ("1999-01-01", "2024-11-05"),
        ("2025-04-01", "2025-03-26"),
        ("2026-07-28", "2025-11-25"),
        ("9999-99-99", "2025-11-25"),
        ("1.0", "2024-11-05"),
        ("", "2024-11-05"),
        (None, "2024-11-05"),
        (5, "2024-11-05"),
        ({}, "2024-11-05"),
    ],
)
async def test_an_unknown_version_is_served_as_the_closest_older_one_with_one_warning(
    version: Json, served_as: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = group_config(f"says {version!r}")
    for _ in range(2):
        upstream = _upstream(protocolVersion=version)
        await initialize(link_to(upstream), ClientInfo(), config)
        assert upstream.heard("notifications/initialized") != []

    [warning] = [record.getMessage() for record in caplog.records]
    assert f"served as {served_as}" in warning


async def test_an_empty_answer_to_initialize_is_served() -> None:
    upstream = FakeUpstream({"initialize": {}})

    server = await initialize(link_to(upstream), ClientInfo(), group_config("says nothing"))

    assert not server.is_declared
    assert set(server.capabilities) == {"tools", "resources", "prompts"}


async def test_the_server_hello_is_what_the_upstream_says_about_itself() -> None:
    upstream = _upstream(
        capabilities={"tools": {"listChanged": True}, "x": 1},
        instructions="Be kind.",
        serverInfo={"name": "n", "title": "The Title"},
    )

    hello = await initialize(link_to(upstream), ClientInfo(), group_config())

    assert bytes(hello.capabilities["tools"]) == b'{"listChanged": true}'
    assert (hello.instructions, hello.title) == ("Be kind.", "The Title")


@pytest.mark.parametrize(
    "result",
    [
        {"capabilities": {}},
        {"capabilities": None, "instructions": None, "serverInfo": None},
        {"capabilities": [], "instructions": 5, "serverInfo": "me"},
        {"capabilities": {}, "serverInfo": {"name": "n", "title": []}},
    ],
)
def test_a_malformed_server_hello_counts_as_empty(result: Json) -> None:
    hello = ServerInfo({key: Raw(json.dumps(value).encode()) for key, value in result.items()})

    assert (hello.capabilities, hello.instructions, hello.title) == ({}, "", "")


async def test_an_upstream_that_answers_with_an_error_has_refused() -> None:
    upstream = FakeUpstream()
    del upstream.answers["initialize"]
    greeted = asyncio.create_task(initialize(link_to(upstream), ClientInfo(), group_config()))
    hello = await upstream.hears("initialize")

    upstream.say({"jsonrpc": "2.0", "id": hello["id"], "error": {"code": -32000, "message": "no licence"}})

    with pytest.raises(ErrorAnswer, match="no licence"):
        await greeted


async def test_a_result_that_is_not_an_object_is_a_violation() -> None:
    with pytest.raises(ProtocolViolation):
        await initialize(link_to(FakeUpstream({"initialize": []})), ClientInfo(), group_config())


async def test_an_upstream_that_says_nothing_times_out_and_initialize_is_not_cancelled() -> None:
    upstream = FakeUpstream()
    del upstream.answers["initialize"]

    with pytest.raises(TimedOut):
        await initialize(link_to(upstream), ClientInfo(), group_config(timeouts=Timeouts(0.01, 5, 5, 5)))

    # the specification (basic/utilities/cancellation) forbids it for this one request
    assert upstream.heard("notifications/cancelled") == []


async def test_an_upstream_that_dies_during_the_handshake_is_a_lost_link() -> None:
    upstream = FakeUpstream()
    del upstream.answers["initialize"]
    greeted = asyncio.create_task(initialize(link_to(upstream), ClientInfo(), group_config()))
    await upstream.hears("initialize")

    upstream.die("the server exited with code 3")

    with pytest.raises(LinkLost, match="exited with code 3"):
        await greeted


# --- the switch on the kind ----------------------------------------------------------------------------


async def test_a_group_that_cannot_be_started_says_why_and_is_not_worth_another_attempt() -> None:
    config = group_config("api", upstream=Broken("`API_URL` in `command` is not defined"))

    with pytest.raises(Unreachable, match="`API_URL` in `command` is not defined") as raised:
        await open_link(config, Ear(), ClientInfo())

    assert raised.value.final


async def test_a_command_that_does_not_exist_is_named() -> None:
    program = Program(command="no-such-command-anywhere", args=(), env={}, cwd=None)

    async with asyncio.timeout(BOUND_S):
        with pytest.raises(Unreachable, match="`no-such-command-anywhere` was not found"):
            await open_link(group_config(upstream=program), Ear(), ClientInfo())


async def test_a_command_with_its_arguments_in_it_is_told_where_these_belong() -> None:
    python, path = Path(sys.executable).name, str(Path(sys.executable).parent)
    program = Program(command=f"{python} -m server", args=(), env={"PATH": path}, cwd=None)

    async with asyncio.timeout(BOUND_S):
        with pytest.raises(Unreachable, match="was not found") as raised:
            await open_link(group_config(upstream=program), Ear(), ClientInfo())
    assert raised.value.hint == f'the arguments belong in `args`: `"command": "{python}", "args": ["-m", "server"]`'


async def test_a_link_knows_the_process_of_a_program_that_was_started_for_it() -> None:
    program = Program(command=sys.executable, args=(str(UPSTREAMS / "full.py"),), env={**os.environ}, cwd=None)

    async with asyncio.timeout(BOUND_S):
        link, _ = await open_link(group_config(upstream=program), Ear(), ClientInfo())
        try:
            assert link.pid is not None
            if sys.platform != "win32":  # which has jobs instead of groups
                assert os.getpgid(link.pid) == link.pid
                assert os.getpgid(link.pid) != os.getpgrp()
        finally:
            await link.close()


def test_a_client_hello_has_the_newest_version_by_default() -> None:
    assert ClientInfo().revision.name == max(revision.name for revision in LEGACY)
    assert bytes(ClientInfo().capabilities) == b"{}"


async def test_a_link_that_was_closed_takes_no_handshake() -> None:
    upstream = FakeUpstream()
    link: Link = link_to(upstream)
    await link.close()

    with pytest.raises(LinkLost):
        await initialize(link, ClientInfo(), group_config())

    assert upstream.closed


@pytest.mark.parametrize(
    ("grant", "name"),
    [("client_credentials", "io.modelcontextprotocol/oauth-client-credentials"), ("cross_app", ENTERPRISE)],
)
def test_the_extension_of_a_login_is_declared_beside_what_the_client_declares(grant: Grant, name: str) -> None:
    hello = ClientInfo(capabilities=Raw(b'{"roots":{"x":1},"extensions":{"a/b":{"c":2}}}'))

    declared = declare_login(hello, OAuth(grant=grant))

    assert json.loads(bytes(declared.capabilities)) == {
        "roots": {"x": 1},
        "extensions": {"a/b": {"c": 2}, name: {}},
    }
    assert (declared.revision, declared.client_info) == (hello.revision, hello.client_info)


@pytest.mark.parametrize("grant", ["authorization_code", "jwt_bearer"])
def test_a_login_without_an_extension_declares_none(grant: Grant) -> None:
    hello = ClientInfo()
    assert declare_login(hello, OAuth(grant=grant)) is hello


@pytest.mark.parametrize(
    "capabilities", [b'{"extensions":{"%s":{"own":1}}}' % ENTERPRISE.encode(), b'{"extensions":5}', b"[]"]
)
def test_what_the_client_says_of_the_extension_itself_is_left_alone(capabilities: bytes) -> None:
    hello = ClientInfo(capabilities=Raw(capabilities))
    assert declare_login(hello, OAuth(grant="cross_app")) is hello
