"""What the status of a proxy says of its clients, and of who shares which instance of a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynamic_mcp.config.resolved import Share
from dynamic_mcp.groups.audience import Authentication, Principal
from dynamic_mcp.proxy.status import read_status
from tests.fakes import Client, Json, settled
from tests.groups.shared import SAMPLING
from tests.proxy.many_clients import Scene, able, scene

CONFIG = Path("/c.json")


async def join(on: Scene, name: str, version: str = "1.0") -> Client:
    """Greet one more client, which calls itself so."""
    client = Client(on.proxy)
    info = {"name": name, "version": version}
    await client.request(
        "initialize", {"protocolVersion": "2025-11-25", "capabilities": {"sampling": {}}, "clientInfo": info}
    )
    await settled()
    return client


def audiences(on: Scene) -> list[Json]:
    """Who shares each instance: the words for it, whether it is one client's, and its clients."""
    [group] = read_status(on.proxy, CONFIG).groups
    return [(each.shared_by, each.is_exclusive, each.clients) for each in group.instances]


async def test_each_session_is_there_with_its_client_and_the_requests_that_it_made() -> None:
    async with scene(able()) as on:
        ann, bob = await join(on, "ide", "2.1"), await join(on, "cli", "0.3")
        for _ in range(3):
            await ann.request("tools/list")
        await bob.request("ping")

        status = read_status(on.proxy, CONFIG)

        assert [(each.client, each.version, each.calls) for each in status.sessions] == [
            ("ide", "2.1", 4),
            ("cli", "0.3", 2),
        ]
        assert [each.since for each in status.sessions] == [ann.session.since, bob.session.since]
        assert status.clients == ["ide", "cli"]

        ann.session.close()
        assert [each.client for each in read_status(on.proxy, CONFIG).sessions] == ["cli"]


async def test_a_status_is_of_its_kind_and_a_daemon_has_its_socket() -> None:
    async with scene(able()) as on:
        stdio = read_status(on.proxy, CONFIG)
        daemon = read_status(on.proxy, CONFIG, kind="daemon", socket="/run/s")

        assert (stdio.config, stdio.kind, stdio.socket) == ("/c.json", "stdio", "")
        assert (daemon.config, daemon.kind, daemon.socket) == ("/c.json", "daemon", "/run/s")


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
