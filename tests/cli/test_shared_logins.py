"""A command with a proxy of its own uses the logins that replicas share, and not those of its machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dynamic_mcp.features.cluster.local_store import LocalStore
from dynamic_mcp.oauth.credentials import Login
from dynamic_mcp.oauth.replica_logins import ReplicaLogins
from dynamic_mcp.oauth.user_logins import login_folder
from tests.cli.commands import CliRunner, CommandResult
from tests.features.cluster.replicas import KEY
from tests.oauth.parts import issue_login, remote, store_login
from tests.upstreams.auth_server import AuthServer

AGED = 4000.0  # a token that was issued so long ago has expired


@pytest.fixture
async def server() -> AsyncIterator[AuthServer]:
    async with AuthServer() as server:
        yield server


@pytest.fixture
async def logins(tmp_path: Path) -> AsyncIterator[ReplicaLogins]:
    """The logins of a replica."""
    store = LocalStore(tmp_path / "store.sqlite")
    logins = ReplicaLogins(store)
    yield logins
    await logins.close()
    await store.close()


async def list_tools(cli: CliRunner, server: AuthServer) -> CommandResult:
    store = f"sqlite:///{cli.folder / 'store.sqlite'}"
    cluster = {"store": store, "keys": [KEY], "peers": ["http://127.0.0.1:1"], "name": "a"}
    cli.configure({"up": {"url": server.mcp_url}}, settings={"cluster": cluster})
    return await asyncio.to_thread(lambda: cli.run("tools", "--json"))


async def known(logins: ReplicaLogins, server: AuthServer) -> Login:
    login = await logins.open(remote(server.mcp_url)).read()
    assert login is not None
    return login


async def test_a_login_of_the_replicas_is_used_and_renewed_for_all(
    cli: CliRunner, state: Path, server: AuthServer, logins: ReplicaLogins
) -> None:
    old = issue_login(server, age_s=AGED)
    await logins.open(remote(server.mcp_url)).write(old, is_new=True)
    done = await list_tools(cli, server)
    assert done.code == 0, done.err
    assert server.count_refreshes() == 1
    renewed = await known(logins, server)
    assert renewed.token is not None
    assert old.token is not None
    assert renewed.token.refresh != old.token.refresh
    assert not login_folder().exists(), "nothing is on the disk"
    again = await list_tools(cli, server)
    assert again.code == 0, again.err
    assert server.count_refreshes() == 1


async def test_a_login_on_the_disk_is_not_used(cli: CliRunner, state: Path, server: AuthServer) -> None:
    store_login(login_folder(), remote(server.mcp_url), issue_login(server))
    done = await list_tools(cli, server)
    assert "auth login up" in done.err
