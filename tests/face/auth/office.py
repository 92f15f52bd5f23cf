"""A proxy that serves several persons over HTTP in front of a server that each of them logs in to, and browsers."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import httpx2
from msgspec import structs

from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.config.auth import BearerAuth, Forwarded, NamedToken, Provider
from dynamic_mcp.config.http import Http
from dynamic_mcp.config.resolved import Config, OAuth, Remote
from dynamic_mcp.features.cluster.config import Cluster
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.host.http_service import HttpService
from dynamic_mcp.oauth.logins import Logins
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Json, PresentedGroup, config_of, group_config
from tests.http_client import HttpClient
from tests.journeys.remote_server import free_port
from tests.mcp_client import McpClient
from tests.upstreams.auth_server import AuthServer
from tests.web import web_client

TOKENS = {name: f"front-token-of-{name}-k3W9x2QmZ7vR4tLpB8nY5cJd6sHg1fAe" for name in ("ann", "bob")}
BEARER = BearerAuth(tuple(NamedToken(token, name) for name, token in TOKENS.items()))
FORWARDED = Forwarded(trusted_proxies=("127.0.0.1",))
ASKS: Json = {"elicitation": {"form": {}, "url": {}}}
_LINK = re.compile(r"http://127\.0\.0\.1:[0-9]+/upstream-login/[A-Za-z0-9_.-]+[A-Za-z0-9_-]")


class Office:
    """The proxy, with its logins and catalogs in a folder. It may be a replica, to which browsers come by others."""

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, PresentedGroup],
        port: int,
        *,
        cluster: Cluster | None = None,
        public_url: str = "",
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.public_url = public_url or self.url
        self.logins = Logins(folder / "logins", lambda group: f"dynamic-mcp auth login {group}", None)
        self.proxy = Proxy(
            config_of(*config.values()),
            open_logins=lambda: self.logins,
            catalog_store=CatalogStore(folder / "catalogs"),
        )
        self.service = HttpService(self.proxy)
        file = folder / "dynamic-mcp.json"
        self.config = structs.replace(config_of(*config.values()), file=file, cluster=cluster)
        self._port = port

    async def serve(self, *auth: Provider, is_public: bool = True, config: Config | None = None) -> None:
        """Listen, for clients who say who they are in these ways."""
        self.config = self.config if config is None else config
        public_url = f"{self.public_url}/mcp" if is_public else None
        http = Http(listen=TcpAddress("127.0.0.1", self._port), public_url=public_url, auth=auth)
        await self.service.serve(http, self.config)

    async def close(self) -> None:
        """End everything."""
        await self.service.finish(0)
        await self.proxy.close()
        await self.logins.close()


def far(server: AuthServer, **oauth: object) -> dict[str, PresentedGroup]:
    """Return the config of a group `far`, which is this server."""
    remote = Remote(kind="http", url=server.mcp_url, headers={}, oauth=OAuth(**oauth))  # type: ignore[arg-type]
    return {"far": group_config("far", upstream=remote)}


@contextlib.asynccontextmanager
async def office(
    folder: Path, server: AuthServer, *auth: Provider, is_public: bool = True, **oauth: object
) -> AsyncIterator[Office]:
    """Serve a group `far`, which is this server."""
    place = Office(folder, far(server, **oauth), free_port())
    await place.serve(*(auth or (BEARER, FORWARDED)), is_public=is_public)
    try:
        yield place
    finally:
        await place.close()


@contextlib.asynccontextmanager
async def person(
    url: str, name: str, *, is_forwarded: bool = False, capabilities: object = None, path: str = "/mcp"
) -> AsyncIterator[McpClient]:
    """Greet a client of a person, who shows a token or comes through a reverse proxy."""
    shown = {"X-Forwarded-User": name} if is_forwarded else {"Authorization": f"Bearer {TOKENS[name]}"}
    async with HttpClient(url) as http:
        client = McpClient(http, path, headers=shown)
        await client.initialize(capabilities)
        yield client
        await client.delete()


async def echo(client: McpClient) -> str:
    """Call a tool of the server, and return what that says, or why it is not called."""
    answer = await client.call("far", "echo")
    text: str = answer["result"]["content"][0]["text"]
    return text


def link_in(text: str) -> str:
    """Return the link in what somebody was told."""
    found: set[str] = {*_LINK.findall(text)}
    (link,) = found
    return link


class Browser:
    """A browser of a person; `forwarded` is who the reverse proxy says that it is."""

    def __init__(self, forwarded: str = "") -> None:
        headers = {"X-Forwarded-User": forwarded} if forwarded else {}
        self.http = web_client(headers=headers)

    async def open(self, link: str, *, hops: int = 10) -> httpx2.Response:
        """Open a page, and follow so many redirects."""
        page = await self.http.get(link)
        return await self.follow(page, hops=hops)

    async def confirm(self, page: httpx2.Response, *, hops: int = 10) -> httpx2.Response:
        """Press the button of a page, and follow so many redirects."""
        found = re.search(r'name="token" value="([0-9a-f]+)"', page.text)
        assert found is not None, page.text
        pressed = await self.http.post(page.url, data={"token": found[1]}, headers={"Origin": _origin(page)})
        return await self.follow(pressed, hops=hops)

    async def follow(self, page: httpx2.Response, *, hops: int = 10) -> httpx2.Response:
        for _ in range(hops):
            if not page.is_redirect:
                break
            page = await self.http.get(page.headers["location"])
        return page

    async def log_in(self, link: str) -> httpx2.Response:
        """Open a link, agree, and log in."""
        return await self.confirm(await self.open(link))


def _origin(page: httpx2.Response) -> str:
    return f"{page.url.scheme}://{page.url.host}:{page.url.port}"


@contextlib.asynccontextmanager
async def browser(forwarded: str = "") -> AsyncIterator[Browser]:
    """Open a browser."""
    opened = Browser(forwarded)
    async with opened.http:
        yield opened
