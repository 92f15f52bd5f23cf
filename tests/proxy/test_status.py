"""What the status of a proxy says of its clients, and of who shares which instance of a server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dynamic_mcp.client import Transport
from dynamic_mcp.config.resolved import Program, Remote, Share
from dynamic_mcp.config.workspace import Workspace
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.observe.proxies import NO_SESSION, GroupStatus
from dynamic_mcp.proxy.status import read_status
from tests.fakes import Client, FakeUpstream, Json, config_of, group_config, settled
from tests.groups.shared import SAMPLING
from tests.policy.rules import person
from tests.proxy.many_clients import Scene, able, scene

CONFIG = Path("/c.json")
FILE = str(CONFIG.absolute())  # with its drive, on Windows


async def join(
    on: Scene, name: str, version: str = "1.0", *, transport: Transport = "stdio", **capabilities: Json
) -> Client:
    """Greet one more client, which calls itself so."""
    client = Client(on.proxy, transport=transport)
    info = {"name": name, "version": version}
    declared = {"sampling": {}, **capabilities}
    await client.request(
        "initialize", {"protocolVersion": "2025-11-25", "capabilities": declared, "clientInfo": info}
    )
    await settled()
    return client


def audiences(on: Scene) -> list[Json]:
    """Who shares each instance: the words for it, whether it is one client's, and its clients."""
    [group] = read_status(on.proxy, CONFIG).groups
    return [(each.shared_by, each.is_exclusive, each.clients) for each in group.instances]


async def test_each_session_is_there_with_its_client_and_what_it_asked_of_servers() -> None:
    async with scene(able()) as on:
        ann, bob = await join(on, "ide", "2.1"), await join(on, "cli", "0.3")
        for _ in range(3):
            await ann.call("up", "echo")
        await ann.request("tools/list")
        await bob.request("ping")

        status = read_status(on.proxy, CONFIG)

        assert [(each.client, each.version, each.calls) for each in status.sessions] == [
            ("ide", "2.1", 3),
            ("cli", "0.3", 0),
        ]
        assert [each.since for each in status.sessions] == [ann.session.since, bob.session.since]
        assert status.clients == ["ide", "cli"]

        ann.session.close()
        assert [each.client for each in read_status(on.proxy, CONFIG).sessions] == ["cli"]


async def test_a_status_is_of_its_kind_and_a_daemon_has_its_socket() -> None:
    async with scene(able()) as on:
        stdio = read_status(on.proxy, CONFIG)
        daemon = read_status(on.proxy, CONFIG, kind="daemon", socket="/run/s")

        assert (stdio.config, stdio.kind, stdio.socket) == (FILE, "stdio", "")
        assert (daemon.config, daemon.kind, daemon.socket) == (FILE, "daemon", "/run/s")


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (Share.AUTO, [("ide 1.0", False, ["ide 1.0", "ide 1.0"]), ("cli 1.0", False, ["cli 1.0"])]),
        (
            Share.SESSION,
            [("ide 1.0", True, ["ide 1.0"]), ("ide 1.0", True, ["ide 1.0"]), ("cli 1.0", True, ["cli 1.0"])],
        ),
        (Share.USER, [("user", False, ["ide 1.0", "ide 1.0", "cli 1.0"])]),
        (Share.ALL, [("everybody", False, ["ide 1.0", "ide 1.0", "cli 1.0"])]),
    ],
)
async def test_each_instance_says_who_shares_it(share: Share, expected: Json) -> None:
    async with scene(*(able() for _ in range(3)), share=share) as on:
        for name in ("ide", "ide", "cli"):
            await (await join(on, name)).call("up", "echo")

        assert audiences(on) == expected


async def test_an_instance_whose_server_has_asked_is_shared_no_more() -> None:
    upstream = able()
    async with scene(upstream, able()) as on:
        ann, bob = await join(on, "ide"), await join(on, "ide")
        await ann.call("up", "echo")
        await bob.call("up", "echo")
        assert audiences(on) == [("ide 1.0", False, ["ide 1.0", "ide 1.0"])]
        upstream.say(SAMPLING)
        await settled()
        await bob.call("up", "echo")

        assert sorted(audiences(on)) == [("ide 1.0", True, ["ide 1.0"])] * 2


async def test_an_instance_has_its_own_calls_and_the_group_has_those_of_all() -> None:
    async with scene(able(), able(), share=Share.SESSION) as on:
        ann, bob = await join(on, "ide"), await join(on, "cli")
        await ann.call("up", "echo")
        await ann.call("up", "echo")
        await bob.call("up", "echo")
        [group] = read_status(on.proxy, CONFIG).groups
        first, second = group.instances

        assert (first.calls, second.calls, group.calls) == (2, 1, 3)
        sessions = read_status(on.proxy, CONFIG).sessions
        assert {each.client: each.calls for each in sessions} == {"ide": 2, "cli": 1}, "the same are counted"
        assert first.state == second.state == group.state == "connected"
        assert first.p50_ms is not None
        assert second.p95_ms is not None
        assert first.pid is None, "the server is not a process"

        ann.session.close()
        await settled()
        [group] = read_status(on.proxy, CONFIG).groups
        assert ([each.calls for each in group.instances], group.calls) == ([1], 3)


async def test_an_endless_client_name_is_cut() -> None:
    async with scene(able()) as on:
        await join(on, "x" * 10_000, "9" * 10_000)
        status = read_status(on.proxy, CONFIG)

        assert len(status.sessions[0].client) < 100
        assert len(status.sessions[0].version) < 100
        assert len(status.groups[0].instances[0].clients[0]) < 100


async def test_a_session_names_who_has_authenticated() -> None:
    async with scene() as on:
        ann = Client(on.proxy, authentication=Authentication(Principal("token", "ann"), "bearer"))
        for each in (Client(on.proxy), ann):
            await each.initialize()

        assert [session.subject for session in read_status(on.proxy, CONFIG).sessions] == ["", "ann"]


async def test_a_configured_group_that_has_no_session_yet_is_shown_as_such() -> None:
    async with scene(able()) as on:
        known = read_status(on.proxy, CONFIG).groups
        status = read_status(on.proxy, CONFIG, configured=[known[0].name, "later"])
        assert status.groups == [*known, GroupStatus(name="later", state=NO_SESSION)]


async def test_who_shows_the_status_is_told_of_sessions_that_begin_and_end() -> None:
    async with scene(able()) as on:
        on.proxy.changed.clear()
        ann = await join(on, "ide")
        assert on.proxy.changed.is_set()
        on.proxy.changed.clear()
        ann.session.close()
        assert on.proxy.changed.is_set()


# --- why a server runs more than once -----------------------------------------------------------------------


def copies(on: Scene) -> list[str]:
    """Return why each group has several copies."""
    return [group.copies for group in read_status(on.proxy, CONFIG).groups]


async def compared(on: Scene, kinds: int) -> None:
    """Wait until it is known what so many kinds of clients are offered."""
    (group,) = on.proxy.groups
    while len(group.sharing.offers.digests) < kinds:  # noqa: ASYNC110 - a thread tells nobody
        await asyncio.sleep(0)


async def test_one_copy_needs_no_reason_and_says_that_any_ai_tool_shares_it() -> None:
    known = Program(command="mcp-server-time", args=(), env={}, cwd=None)
    async with scene(able(), upstream=known) as on:
        for name in ("ide", "cli"):
            await (await join(on, name, transport="socket")).call("up", "echo")

        assert copies(on) == [""]
        assert audiences(on) == [("any AI tool", False, ["ide 1.0", "cli 1.0"])]


async def test_copies_that_are_not_compared_or_offer_the_same_say_so() -> None:
    slow = able()
    del slow.answers["tools/list"]
    async with scene(able(), slow) as on:
        ide, cli = await join(on, "ide", transport="socket"), await join(on, "cli", transport="socket")
        await ide.call("up", "echo")
        call = asyncio.create_task(cli.call("up", "echo"))
        asked = await slow.hears("tools/list")
        await compared(on, 1)
        assert copies(on) == ["what it offers ide and cli is not compared yet"]

        slow.say({"jsonrpc": "2.0", "id": asked["id"], "result": able().answers["tools/list"]})
        await call
        await compared(on, 2)
        assert copies(on) == ["it offers ide and cli the same, and they share the next copy that is started for them"]


@pytest.mark.parametrize(
    ("second", "capabilities", "reason"),
    [
        (["echo", "more"], {}, "it offers ide and cli different things"),
        (["echo"], {"extensions": {"ui": {"x": 1}}}, "ide and cli declare different extensions"),
    ],
)
async def test_copies_that_cannot_be_shared_say_what_differs(
    second: list[str], capabilities: Json, reason: str
) -> None:
    other = FakeUpstream({"tools/call": {"content": []}}, tools=second)
    async with scene(FakeUpstream({"tools/call": {"content": []}}), other) as on:
        await (await join(on, "ide", transport="socket")).call("up", "echo")
        await (await join(on, "cli", transport="socket", **capabilities)).call("up", "echo")
        await compared(on, 2)

        assert copies(on) == [reason]


async def test_a_server_that_has_asked_says_that_this_is_why() -> None:
    upstream = able()
    async with scene(upstream, able()) as on:
        for client in [await join(on, name, transport="socket") for name in ("ide", "ide")]:
            await client.call("up", "echo")
        upstream.say(SAMPLING)
        await settled()
        for client in [await join(on, "ide", transport="socket")]:
            await client.call("up", "echo")

        assert copies(on) == ["it has asked its client something, so each session has its own"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"share": Share.SESSION}, "`share` is `session`"),
        (
            {"share": Share.SESSION, "upstream": Program(command="playwright-mcp", args=(), env={}, cwd=None)},
            "it keeps the state of one conversation, so each session has its own",
        ),
        ({"upstream": Remote(kind="http", url="https://a.test", headers={})}, "ide and cli have a connection each"),
    ],
)
async def test_copies_that_were_to_be_expected_say_why(changes: Json, reason: str) -> None:
    async with scene(able(), able(), **changes) as on:
        for name in ("ide", "cli"):
            await (await join(on, name, transport="socket")).call("up", "echo")

        assert copies(on) == [reason]


async def test_copies_of_different_users_say_so() -> None:
    async with scene(able(), able()) as on:
        for subject in ("ann", "bob"):
            client = Client(on.proxy, authentication=person(subject))
            await client.initialize()
            await client.call("up", "echo")

        assert copies(on) == ["each user has one"]


async def test_a_server_that_windows_start_differently_says_in_what() -> None:
    def started(cwd: str, **env: str) -> Program:
        return Program(command="x", args=(), env={"TERM": cwd, **env}, cwd=cwd)

    async with scene(able(), upstream=started("/a", PATH="/bin", SAME="1")) as on:
        other = group_config("up", upstream=started("/b", PATH="/usr/bin", SAME="1", TOKEN="secret"))
        on.proxy.add_workspace(Workspace("/b", {}), config_of(other))

        assert copies(on) == ["", "it is started with another directory, `PATH` and `TOKEN`"]
