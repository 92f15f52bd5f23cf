"""The whole program in front of a server that wants a login, for persons over HTTP and for the local user."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.face.auth.office import TOKENS, browser, echo, link_in, person
from tests.journeys.remote_server import free_port
from tests.process.http_client import serving_http, write_config
from tests.program import running, text_of
from tests.upstreams.auth_server import AuthServer

pytestmark = pytest.mark.alone_only("it starts no windows")

NOBODY = {"BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": "", "SSH_CONNECTION": "here"}


@pytest.fixture
async def server() -> AsyncIterator[AuthServer]:
    async with AuthServer() as server:
        server.manners.is_personal = True
        yield server


def config(folder: Path, server: AuthServer, port: int) -> Path:
    tokens = [{"token": token, "subject": name} for name, token in TOKENS.items()]
    http = {"public_url": f"http://127.0.0.1:{port}/mcp", "auth": [{"kind": "bearer", "tokens": tokens}]}
    return write_config(folder, {"far": {"url": server.mcp_url}}, http=http)


async def test_persons_log_in_each_for_itself_and_the_local_user_as_ever(server: AuthServer, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    file = config(tmp_path, server, port)
    async with serving_http(file, str(port)) as program:
        await program.says("over HTTP at")
        async with person(url, "ann") as ann, person(url, "bob") as bob:
            for number, client in enumerate((ann, bob)):
                async with browser() as own:
                    assert (await own.log_in(link_in(await echo(client)))).status_code == 200
                assert await echo(client) == f"grant {number}"
    log = await program.stderr()
    async with running(str(file), env=NOBODY) as program:
        await program.initialize()
        local = text_of(await program.call("far", "echo", {}))

    async with serving_http(file, str(port)) as program:
        await program.says("over HTTP at")
        async with person(url, "bob") as bob, person(url, "ann") as ann:
            assert [await echo(ann), await echo(bob)] == ["grant 0", "grant 1"]

    assert "auth login far" in local
    assert "is logged in for `ann` of `token`" in log
    assert "/upstream-login/" not in log
    everything = log + str([(each.headers, each.body, each.query) for each in server.requests])
    assert not any(token in everything for token in TOKENS.values())
