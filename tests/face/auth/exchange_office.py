"""A proxy that serves persons over HTTP in front of a server that takes only tokens exchanged for it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from dynamic_mcp.config.auth import Jwt, Provider
from dynamic_mcp.config.resolved import OAuth, Remote, Timeouts, TokenExchange
from dynamic_mcp.features.cluster.config import Cluster
from tests.face.auth.office import Office
from tests.face.http.modern_parties import headers_for, modern
from tests.fakes import Json, PresentedGroup, group_config
from tests.http_client import HttpClient
from tests.journeys.remote_server import free_port
from tests.mcp_client import BOTH, McpClient
from tests.program import BOUND_S
from tests.upstreams.exchange_issuer import CLIENT, SECRET, ExchangeIssuer
from tests.upstreams.exchanged_mcp import ExchangedMcp


class ExchangeOffice:
    """The proxy, the issuer whose tokens its clients show, and the server `far`."""

    def __init__(self, office: Office, issuer: ExchangeIssuer, server: ExchangedMcp) -> None:
        self.office = office
        self.issuer = issuer
        self.server = server

    @property
    def url(self) -> str:
        return self.office.url

    @property
    def jwt(self) -> Jwt:
        return Jwt(issuer=self.issuer.issuer)

    @contextlib.asynccontextmanager
    async def client(self, token: str, path: str = "/mcp") -> AsyncIterator[McpClient]:
        """Greet a client that shows a token."""
        async with HttpClient(self.url) as http:
            client = McpClient(http, path, headers={"Authorization": f"Bearer {token}"})
            await client.initialize()
            yield client
            await client.delete()

    @contextlib.asynccontextmanager
    async def person(self, name: str, **more: Any) -> AsyncIterator[McpClient]:  # Any: of `token_of`
        """Greet a client of a person."""
        async with self.client(self.issuer.token_of(name, **more)) as client:
            yield client

    def leaks(self, text: str, *tokens: str) -> list[str]:
        """Return the tokens, of these and of all that were exchanged, of which a part is in a text."""
        return [each for each in (*tokens, *self.issuer.issued) if any(part in text for part in each.split(".")[1:])]


def show(client: McpClient, token: str) -> None:
    """Have a client show another token from now on."""
    client.headers["Authorization"] = f"Bearer {token}"


async def whoami(client: McpClient, nonce: str = "n", group: str = "far") -> str:
    """Return whom the server has served, or why it has not."""
    answer = await client.call(group, "whoami", {"nonce": nonce})
    text: str = answer["result"]["content"][0]["text"]
    return text


async def whoami_modern(url: str, token: str, nonce: str = "n") -> str:
    """Return the same for a client of 2026-07-28, which has no session."""
    arguments = {"group": "far", "name": "whoami", "args": {"nonce": nonce}}
    message = modern("tools/call", {"name": "call_dynamic_tool", "arguments": arguments})
    headers = {"Content-Type": "application/json", "Accept": BOTH, "Authorization": f"Bearer {token}"}
    async with HttpClient(url) as http:
        body = json.dumps(message).encode()
        response = await http.request("POST", "/mcp", {**headers, **headers_for(message)}, body)
        data = await response.read()
    answer = json.loads(data.partition(b"data:")[2] if response.is_stream else data)
    text: str = answer["result"]["content"][0]["text"]
    return text


def far(issuer: ExchangeIssuer, server: ExchangedMcp, name: str = "far", **oauth: Any) -> PresentedGroup:
    """Return the group of a server whose tokens an issuer exchanges."""
    own: Json = {"client_id": CLIENT, "client_secret": SECRET, "issuer": issuer.issuer, "scopes": ("read",)}
    config = OAuth(**{"grant": "token_exchange", "exchange": TokenExchange(), **own, **oauth})
    remote = Remote(kind="http", url=server.url, headers={}, oauth=config)
    return group_config(name, upstream=remote, attempts=0, timeouts=Timeouts(connect_s=BOUND_S, tools_s=BOUND_S))


@contextlib.asynccontextmanager
async def exchange_office(
    folder: Path, *auth: Provider, cluster: Cluster | None = None, **oauth: Any
) -> AsyncIterator[ExchangeOffice]:
    """Serve `far` to clients that show tokens of an issuer, or who they are in these ways, too."""
    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(ExchangeIssuer(f"http://127.0.0.1:{port}/mcp"))
        server = await stack.enter_async_context(ExchangedMcp(issuer.issuer, issuer.key_set()))
        issuer.targets.add(server.url)
        office = Office(folder, {"far": far(issuer, server, **oauth)}, port, cluster=cluster)
        stack.push_async_callback(office.close)
        place = ExchangeOffice(office, issuer, server)
        await office.serve(place.jwt, *auth)
        yield place
