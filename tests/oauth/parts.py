"""What the tests of logins share."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from dynamic_mcp.config.resolved import OAuth, Remote
from dynamic_mcp.oauth.authorization import Challenge
from dynamic_mcp.oauth.bearer import BearerCredentials
from dynamic_mcp.oauth.credentials import ClientCredentials, Login, Token
from dynamic_mcp.oauth.store import LoginStore
from tests.upstreams.auth_server import AuthServer

COMMAND = "dynamic-mcp auth login up"


def remote(url: str, **oauth: Any) -> Remote:  # Any: fields of OAuth
    """Return the config of a server at a URL."""
    return Remote(kind=None, url=url, headers={}, oauth=OAuth(**oauth))


def bearer(config: Remote, folder: Path, **more: Any) -> BearerCredentials:  # Any: arguments of Bearer
    """Return the credentials of a server."""
    return BearerCredentials("up", config, folder, COMMAND, **more)


def issue_login(server: AuthServer, *, age_s: float = 0.0, **changes: Any) -> Login:  # Any: fields of Login
    """Return a login that this server has issued `age_s` ago."""
    tokens = server.issue()
    obtained_at = time.time() - age_s
    lifetime_s = tokens.get("expires_in")
    token = Token(
        tokens["access_token"],
        obtained_at,
        None if lifetime_s is None else obtained_at + lifetime_s,
        tokens.get("refresh_token"),
        tokens["scope"],
    )
    login = Login(
        server.mcp_url,
        server.url,
        f"{server.url}/token",
        f"{server.url}/revoke",
        server.mcp_url,
        ClientCredentials("test", "registered"),
        token,
    )
    return replace(login, **changes)


def store_login(folder: Path, config: Remote, login: Login) -> LoginStore:
    """LoginStore a login, as an earlier run would have."""
    store = LoginStore(folder, config)
    store.save(login)
    return store


def refusal(sent: str | None, *challenges: str, status: int = 401) -> Challenge:
    """Return what a transport reports about a request that was refused."""
    return Challenge(status, challenges or ("Bearer",), sent)
