"""A proxy whose clients come from several persons, each with a login of its own at a server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.access import Access
from dynamic_mcp.config.resolved import GroupConfig, OAuth, Remote
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.identity import LOCAL_USER, Authentication, Principal
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.upstream.handshake import Era, ServerInfo, initialize
from dynamic_mcp.upstream.link import Link, LinkOwner
from tests.fakes import Client, FakeUpstream, Json, PresentedGroup, config_of, group_config, settled

ANN = Authentication(Principal("token", "ann"), "bearer")
BOB = Authentication(Principal("token", "bob"), "bearer")


def remote(**oauth: object) -> Remote:
    """Return a server to log in to."""
    return Remote(kind="http", url="https://far.test/mcp", headers={}, oauth=OAuth(**oauth))  # type: ignore[arg-type]


class Far(FakeUpstream):
    """A server that shows in all that it says whose login it was reached with."""

    def __init__(self, name: str, who: str) -> None:
        self.name = name
        self.who = who
        answers = {"tools/call": {"content": [{"type": "text", "text": f"as {who}"}]}}
        super().__init__(answers, tools=("echo", f"tool_of_{who}"))


class Connector:
    """Connects to servers; those who are among the `mute` ones get no hello, and others `tools_of` their own."""

    def __init__(self) -> None:
        self.servers: list[Far] = []
        self.mute: set[str] = set()
        self.tools_of: Callable[[str], list[Json]] | None = None

    def forget(self) -> None:
        """Hold on to no server any more."""
        self.servers.clear()

    async def __call__(
        self, config: GroupConfig, listener: LinkOwner, hello: ClientInfo, *, lacks: Era | None = None
    ) -> tuple[Link, ServerInfo]:
        login_of = config.upstream.login_of if isinstance(config.upstream, Remote) else None
        server = Far(config.name, "nobody" if login_of is None else login_of.subject)
        if server.who in self.mute:
            del server.answers["initialize"]
        if self.tools_of is not None:
            server.answers["tools/list"] = {"tools": self.tools_of(server.who)}
        self.servers.append(server)
        server.link = Link(config.name, server, listener)
        return server.link, await initialize(server.link, hello, config)

    def reached(self, name: str) -> list[str]:
        """Return with whose logins a server was reached, in order."""
        return [server.who for server in self.servers if server.name == name]


class Desk:
    """A proxy, and the clients of persons."""

    def __init__(
        self,
        *groups: PresentedGroup,
        store: CatalogStore | None = None,
        access: Access | None = None,
    ) -> None:
        self.connector = Connector()
        config = config_of(*groups, access=access)
        self.proxy = Proxy(config, opener=self.connector, catalog_store=store)

    async def join(self, who: Authentication = LOCAL_USER, *, only: str | None = None) -> Client:
        """Greet a client of a person."""
        client = Client(self.proxy, authentication=who, only=only)
        await client.initialize()
        await settled()
        return client

    async def leave(self, client: Client) -> None:
        """Let a client go."""
        client.session.close()
        await settled()

    async def reload(self, *groups: PresentedGroup) -> None:
        """Serve other groups."""
        self.proxy.apply(config_of(*groups))
        await settled()


@contextlib.asynccontextmanager
async def desk(
    *groups: PresentedGroup,
    store: CatalogStore | None = None,
    access: Access | None = None,
) -> AsyncIterator[Desk]:
    scene = Desk(*(groups or (group_config("far", upstream=remote()),)), store=store, access=access)
    try:
        yield scene
    finally:
        await scene.proxy.close()
