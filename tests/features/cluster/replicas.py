"""Two replicas of one service on loopback, each with its own fake server, and a balancer that takes turns."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.config.auth import BearerAuth, NamedToken
from dynamic_mcp.config.http import Http
from dynamic_mcp.config.resolved import CallHandling, Remote
from dynamic_mcp.config.types import NO_LIMIT
from dynamic_mcp.features.cluster.config import Cluster
from dynamic_mcp.host.http_service import HttpService
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import FullUpstream, Opener, config_of, group_config
from tests.http_client import HttpClient, HttpConnection, Response
from tests.journeys.remote_server import free_port
from tests.mcp_client import McpClient
from tests.program import text_of

LONGEST = 16 << 20
KEY = "a-key-of-the-cluster-that-is-long-enough-0001"
TOKENS = {name: f"token-of-{name}-k3W9x2QmZ7vR4tLpB8nY5cJd6sHg1fAe" for name in ("ann", "bob")}
BEARER = BearerAuth(tuple(NamedToken(token, name) for name, token in TOKENS.items()))


def as_user(name: str) -> dict[str, str]:
    """Return the header with the token of a user."""
    return {"Authorization": f"Bearer {TOKENS[name]}"}


class Replica:
    """One replica: a proxy with one server, `up`, that listens on a port. `config` changes that of the proxy.

    The server is a fake one for each replica, of the class `server`, or at a URL, where `upstream` has one. Results
    are cut after `limit` bytes.
    """

    def __init__(self, name: str, port: int, peers: Sequence[str], **settings: Any) -> None:  # Any: fields of Cluster
        self.name = name
        self.peers = peers
        self.store_url: str | None = None
        self.url = f"http://127.0.0.1:{port}"
        self.opener = Opener(up=[settings.pop("server", FullUpstream)(name=name)])
        self._cluster = cluster = Cluster(peers=tuple(peers), keys=settings.pop("keys", (KEY,)), name=name)
        upstream, config = settings.pop("upstream", None), settings.pop("config", {})
        state_folder: Path | None = settings.pop("state_folder", None)
        limit = settings.pop("limit", NO_LIMIT)
        self._http = Http(listen=TcpAddress("127.0.0.1", port), **settings)
        group = group_config("up", answers=CallHandling(validate=None, limit=limit, compact=False))
        if upstream is not None:
            group = replace(group, upstream=Remote(kind=None, url=upstream, headers={}))
        self._config = config_of(
            replace(group, max_message_bytes=LONGEST), max_message_bytes=LONGEST, cluster=cluster, **config
        )
        opener = self.opener if upstream is None else None
        self.proxy = Proxy(self._config, opener=opener, state_folder=state_folder)
        self.service = HttpService(self.proxy)

    async def open(self) -> None:
        await self.service.serve(self._http, self._config)

    async def apply(self, *, listen: TcpAddress | None = None, **cluster: Any) -> None:  # Any: fields of Cluster
        """Serve with other settings of the cluster from now on, and at another address if there is one."""
        self.store_url = cluster.get("store")
        if listen is not None:
            self._http = replace(self._http, listen=listen)
        self._config = replace(self._config, cluster=replace(self._cluster, **cluster))
        await self.open()

    async def admit(self, *auth: BearerAuth) -> None:
        """Let in only whom this says, from now on."""
        self._http = replace(self._http, auth=auth)
        await self.open()

    async def close(self, within_s: float = 0) -> None:
        """End, after calls had so many seconds."""
        await self.service.finish(within_s)
        await self.proxy.close()


@contextlib.asynccontextmanager
async def replicas(*names: str, **settings: Any) -> AsyncIterator[list[Replica]]:  # Any: of Http and Cluster
    """Run replicas with these names that know each other, `a` and `b` without any."""
    ports = {name: free_port() for name in names or ("a", "b")}
    peers = [f"http://127.0.0.1:{port}" for port in ports.values()]
    running = [Replica(name, port, peers, **settings) for name, port in ports.items()]
    try:
        for each in running:
            await each.open()
        yield running
    finally:
        await asyncio.gather(*(each.close() for each in running))


async def received_by(origin: str) -> Counter[str]:
    """Return how often the server `up` of a program has got each text to echo."""
    async with HttpClient(origin) as http:
        client = McpClient(http, "/mcp/up")
        await client.initialize()
        answer = await client.request("tools/call", {"name": "record", "arguments": {}})
    lines = [json.loads(line) for line in json.loads(text_of(answer["result"]))]
    calls = [each["params"] for each in lines if each.get("method") == "tools/call"]
    return Counter(each["arguments"]["text"] for each in calls if each["name"] == "echo")


class RoundRobin(HttpClient):
    """A client behind a balancer that sends each request to the next replica, of those that listen."""

    def __init__(self, *urls: str) -> None:
        super().__init__(urls[0])
        self.clients = [HttpClient(each) for each in urls]
        self._turn = 0

    async def begin(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        is_fresh: bool = False,
    ) -> HttpConnection:
        self._turn += 1
        first = self._turn % len(self.clients)
        *before, last = [*self.clients[first:], *self.clients[:first]]
        for each in before:
            with contextlib.suppress(ConnectionRefusedError):
                return await each.begin(method, target, headers, body, is_fresh=is_fresh)
        return await last.begin(method, target, headers, body, is_fresh=is_fresh)

    def abort(self) -> None:
        for each in self.clients:
            each.abort()

    async def close(self) -> None:
        for each in self.clients:
            await each.close()


async def status_of(response: Response) -> int:
    """Read an answer, and return its status."""
    await response.read()
    return response.status
