"""A proxy with a workspace for each client, as tests of windows that share a daemon need it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.read import ServedConfig, read_all
from dynamic_mcp.config.resolved import Broken, GroupConfig, Program
from dynamic_mcp.config.workspace import Workspace
from dynamic_mcp.errors import Unreachable
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.groups.group import Group
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.workspaces import Workspaces
from dynamic_mcp.upstream.handshake import Era, ServerInfo, initialize
from dynamic_mcp.upstream.link import Link, LinkOwner
from tests.fakes import Client, FakeUpstream, Json, settled, text_of

TOKEN: Json = {"command": "x", "env": {"TOKEN": "${TOKEN}"}}


class Server(FakeUpstream):
    """A server that shows the token that it was started with in all that it says."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.token = program.env.get("TOKEN", "none")
        hello = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "resources": {"subscribe": True}}}
        answers = {
            "initialize": hello,
            "tools/call": {"content": [{"type": "text", "text": f"token {self.token}"}]},
            "resources/list": {"resources": [{"uri": f"file:///{name}", "name": name} for name in "xy"]},
            "resources/templates/list": {"resourceTemplates": []},
            "resources/subscribe": {},
            "resources/unsubscribe": {},
        }
        super().__init__(answers, tools=("echo", f"tool_of_{self.token}"))


class Starter:
    """Starts a server for each program; the programs whose token is among the `mute` ones never say hello."""

    def __init__(self) -> None:
        self.servers: list[Server] = []
        self.mute: set[str] = set()

    async def __call__(
        self, config: GroupConfig, listener: LinkOwner, hello: ClientInfo, *, lacks: Era | None = None
    ) -> tuple[Link, ServerInfo]:
        match config.upstream:
            case Program() as program:
                server = Server(program)
            case Broken(reason=reason):
                raise Unreachable(config.name, reason, final=True)
            case _:
                raise AssertionError("only programs are started here")
        if server.token in self.mute:
            del server.answers["initialize"]
        self.servers.append(server)
        server.link = Link(config.name, server, listener)
        return server.link, await initialize(server.link, hello, config)

    @property
    def tokens(self) -> list[str]:
        """The tokens of all servers that were started, in order."""
        return [server.token for server in self.servers]


class Scene:
    """A config file, and the windows that share a proxy for it."""

    def __init__(self, file: Path, store: CatalogStore | None, *servers: Json) -> None:
        self.file = file
        self.starter = Starter()
        self._save(servers)
        configs = read_all(file, {})
        self.proxy = Proxy(configs.base, opener=self.starter, catalog_store=store, has_base=False)
        self.served = ServedConfig(configs)
        self.workspaces = Workspaces(self.served, self.proxy)
        self.served.listeners.append(self.workspaces.apply)

    async def join(self, directory: str = "/work", **environment: str) -> Client:
        """Open a window, and greet its client."""
        client = Client(self.proxy, await self.workspaces.enter(directory, environment))
        await client.initialize()
        await settled()
        return client

    async def leave(self, client: Client, *, is_command: bool = False) -> None:
        """Close a window, or end a command."""
        workspace = client.session.workspace
        assert workspace is not None
        client.session.close()
        self.workspaces.leave(workspace, is_command=is_command)
        await settled()

    async def reload(self, *servers: Json) -> None:
        """Save another config, and apply it."""
        self._save(servers)
        self.served.apply(read_all(self.file, {}, self.served.state.by_workspace))
        await settled()

    def group(self, client: Client, name: str = "s0") -> Group:
        return self.proxy.groups.of(client.session.workspace)[name]

    @property
    def known(self) -> list[Workspace]:
        return list(self.served.state.by_workspace)

    def _save(self, servers: tuple[Json, ...]) -> None:
        entries = {f"s{number}": server for number, server in enumerate(servers)}
        self.file.write_text(json.dumps({"mcpServers": entries}))


@contextlib.asynccontextmanager
async def windows(tmp_path: Path, *servers: Json, store: CatalogStore | None = None) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path / "dynamic-mcp.json", store, *servers)
    try:
        yield scene
    finally:
        scene.workspaces.close()
        await scene.proxy.close()


async def echo(client: Client, group: str = "s0") -> str:
    """Call a tool of a group and return what it says."""
    return text_of(await client.call(group, "echo"))


async def shown(client: Client, group: str = "s0") -> str:
    """Return all that a window is shown of a group's tools."""
    params = {"name": "get_dynamic_tools", "arguments": {"group": group}}
    return json.dumps([await client.request("tools/call", params), await client.request("tools/list")])
