"""A user with a browser, for the tests of logins."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.oauth.challenges import BearerChallenge, parse_challenge
from dynamic_mcp.oauth.credentials import Login
from dynamic_mcp.oauth.login import Attempt, LoginAborted, begin_login
from dynamic_mcp.web.address_policy import AddressPolicy
from tests.upstreams.auth_server import Request
from tests.web import web_client


async def browse(url: str) -> httpx2.Response:
    """Follow the link and the redirect to us, as the browser of a user who agrees."""
    async with web_client(follow_redirects=True) as browser:
        return await browser.get(url)


async def fetch_challenge(config: Remote) -> BearerChallenge:
    """Return the challenge of a server for a client that is not logged in."""
    async with web_client() as client:
        answer = await client.post(config.url, json={})
    return parse_challenge(answer.headers.get_list("www-authenticate"))


async def log_in(
    config: Remote, known: Login | None = None, policy: AddressPolicy | None = None
) -> tuple[Login, Attempt]:
    """Log in as a user would."""
    policy = policy or AddressPolicy(config.url)
    async with begin_login(config, policy, await fetch_challenge(config), known) as attempt:
        login, page = await asyncio.gather(attempt.finish(), browse(attempt.url))
    assert page.status_code == 200
    return login, attempt


def parameters(request: Request) -> dict[str, str]:
    return request.query or request.form


def read_all(folder: Path) -> bytes:
    """Return the names and contents of all files in a folder."""
    return b"".join(file.name.encode() + file.read_bytes() for file in folder.iterdir())


async def abort_reason(config: Remote, *, resolve: Any = None, challenge: BearerChallenge | None = None) -> str:
    """Try to log in, and return why that was aborted before the user was sent anywhere."""
    with pytest.raises(LoginAborted) as raised:
        async with begin_login(
            config, AddressPolicy(config.url, resolve), challenge or await fetch_challenge(config), None
        ):
            pytest.fail("the login went on")
    return str(raised.value)
