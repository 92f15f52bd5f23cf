"""A client logs in at a service of two replicas, each step at another one, and both let it in."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest

from tests.features.cluster.store_servers import StoreServer
from tests.features.login_server.parties import CHALLENGE, REDIRECT, VERIFIER
from tests.http_client import HttpClient
from tests.http_program import HttpProgram, serving_http
from tests.journeys.diary import two_servers
from tests.journeys.remote_server import free_port
from tests.mcp_client import McpClient
from tests.program import BOUND_S, Json
from tests.web import web_client

pytestmark = [
    pytest.mark.full,
    pytest.mark.alone_only("it is a program that serves over HTTP, and nobody's window"),
    pytest.mark.timeout(240),
]
_FORWARDED = {"x-forwarded-user": "ann"}


class Visitor:
    """A client and the browser of its user, whose requests the balancer sends to the replicas by turns."""

    def __init__(self, program: HttpProgram, web: httpx2.AsyncClient, public_origin: str) -> None:
        self.program = program
        self.web = web
        self._public_origin = public_origin

    async def log_in(self) -> Json:
        """Return the tokens of a login, and the id of its client beside them."""
        fields = await self.begin()
        return {**await self.ask_for_tokens(**fields), "client_id": fields["client_id"]}

    async def begin(self) -> dict[str, str]:
        """Return the request of a new client for the tokens of its code, which a user has just allowed."""
        metadata = {"redirect_uris": [REDIRECT], "client_name": "Client"}
        registered = await self.web.post(f"{self.program.origin}/register", json=metadata)
        assert registered.status_code == 201, registered.text
        id = registered.json()["client_id"]
        code = await self._consent(await self._open(id))
        return {"grant_type": "authorization_code", "code": code, "client_id": id, "code_verifier": VERIFIER}

    async def _open(self, client_id: str) -> httpx2.Response:
        fields = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": REDIRECT,
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
        }
        url = f"{self.program.origin}/authorize?{urlencode(fields)}"
        page = await self.web.get(url, headers=_FORWARDED)
        assert page.status_code == 200, page.text
        return page

    async def _consent(self, page: httpx2.Response) -> str:
        """Press the button of a page, and return the code that the client gets."""
        tags = [dict(re.findall(r'(\w+)="([^"]*)"', tag)) for tag in re.findall(r"<input [^>]*>", page.text)]
        fields = {tag["name"]: unescape(tag["value"]) for tag in tags if "name" in tag}
        headers = {"origin": self._public_origin, "sec-fetch-site": "same-origin", **_FORWARDED}
        decided = await self.web.post(
            f"{self.program.origin}/consent", data={**fields, "decision": "allow"}, headers=headers
        )
        assert decided.status_code == 303, decided.text
        return parse_qs(urlsplit(decided.headers["location"]).query)["code"][0]

    async def ask_for_tokens(self, **fields: str) -> Json:
        answer = await self.web.post(f"{self.program.origin}/token", data=fields)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def renew(self, tokens: Json) -> Json:
        fields = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
        return {**tokens, **await self.ask_for_tokens(**fields, client_id=tokens["client_id"])}

    async def status_at(self, replica: HttpProgram, access: str) -> int:
        """Return what a replica itself answers who sends an access token."""
        headers = {"authorization": f"Bearer {access}", "accept": "application/json, text/event-stream"}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        answer = await self.web.post(f"{replica.own_origin}/mcp", json=ping, headers=headers)
        return answer.status_code


@pytest.mark.parametrize("two_replicas", ["round-robin"], indirect=True)
@pytest.mark.usefixtures("two_replicas")
async def test_a_login_is_begun_at_one_replica_and_finished_at_another(tmp_path: Path, redis: StoreServer) -> None:
    redis.ask("FLUSHALL")
    origin = f"http://127.0.0.1:{free_port()}"
    auth: Json = [{"kind": "login"}, {"kind": "forwarded", "trusted_proxies": ["127.0.0.1"]}]
    settings = {"http": {"public_url": f"{origin}/mcp", "auth": auth}, "cluster": {"store": redis.url}}
    serving = serving_http(tmp_path, two_servers(), settings=settings)
    async with serving as program, web_client() as web:
        visitor = Visitor(program, web, origin)
        tokens = await visitor.log_in()
        for _ in range(2):
            tokens = await visitor.renew(tokens)
        for replica in (program, *program.others):
            assert await visitor.status_at(replica, tokens["access_token"]) != 401
            assert await visitor.status_at(replica, f"{tokens['access_token']}x") == 401
        async with HttpClient(program.origin) as http:
            client = McpClient(http, headers={"authorization": f"Bearer {tokens['access_token']}"})
            await client.initialize()
            assert (await client.request("tools/list"))["result"]["tools"]
            await client.delete()
        fields = {"token": tokens["refresh_token"], "client_id": tokens["client_id"]}
        assert (await web.post(f"{program.origin}/revoke", data=fields)).status_code == 200
        for replica in (program, *program.others):
            async with asyncio.timeout(BOUND_S):
                while await visitor.status_at(replica, tokens["access_token"]) != 401:  # noqa: ASYNC110 - elsewhere
                    await asyncio.sleep(0.05)
