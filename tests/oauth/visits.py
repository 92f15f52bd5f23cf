"""A person at a browser, and a server that asks who it is, as tests of logins use them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.oauth.address_policy import AddressPolicy
from dynamic_mcp.oauth.challenges import BearerChallenge, parse_challenge
from dynamic_mcp.oauth.credentials import Login
from dynamic_mcp.oauth.login import Attempt, LoginAborted, begin_login
from tests.upstreams.auth_server import Request


async def browse(url: str) -> httpx2.Response:
    """Do what a browser does with a person who agrees: follow the link, and the redirect to us."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        return await browser.get(url)


async def asks(config: Remote) -> BearerChallenge:
    """Return what a server says when nobody is logged in."""
    async with httpx2.AsyncClient() as client:
        answer = await client.post(config.url, json={})
    return parse_challenge(answer.headers.get_list("www-authenticate"))


async def log_in(
    config: Remote, known: Login | None = None, policy: AddressPolicy | None = None
) -> tuple[Login, Attempt]:
    """Log in as a person would."""
    policy = policy or AddressPolicy(config.url)
    async with begin_login(config, policy, await asks(config), known) as attempt:
        login, page = await asyncio.gather(attempt.finish(), browse(attempt.url))
    assert page.status_code == 200
    return login, attempt


def sent(request: Request) -> dict[str, str]:
    return request.query or request.form


def all_written(folder: Path) -> bytes:
    """Return what is in all files of a folder."""
    return b"".join(file.name.encode() + file.read_bytes() for file in folder.iterdir())


async def free_port() -> int:
    """Return a port that was free just now."""
    probe = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port: int = probe.sockets[0].getsockname()[1]
    probe.close()
    return port


async def stopped(config: Remote, *, resolve: Any = None, wanted: BearerChallenge | None = None) -> str:
    """Try to log in, and return why that was stopped before a person was sent anywhere."""
    with pytest.raises(LoginAborted) as raised:
        async with begin_login(config, AddressPolicy(config.url, resolve), wanted or await asks(config), None):
            pytest.fail("the login went on")
    return str(raised.value)
