"""Ends the login to a server: its tokens are revoked where that is possible, and deleted here."""

from __future__ import annotations

from msgspec import Struct

from dynamic_mcp.errors import LoginFailed
from dynamic_mcp.oauth.bearer import BearerCredentials
from dynamic_mcp.system.text import os_reason


class LogoutOutcome(Struct, frozen=True):
    """What came of it. `warning` says why a token that was deleted may still be valid at the server."""

    was_logged_in: bool
    warning: str = ""


async def log_out(bearer: BearerCredentials) -> LogoutOutcome:
    """Revoke and delete the tokens of a server. Raises LoginFailed if they cannot be deleted."""
    login = await bearer.load_login()
    if login is None or login.token is None:
        return LogoutOutcome(was_logged_in=False)
    warning = ""
    if login.revocation_endpoint is not None and login.client is not None:
        from dynamic_mcp.oauth.tokens import TokenEndpoint
        from dynamic_mcp.web.documents import open_documents
        from dynamic_mcp.web.endpoints import TokenRequestFailed

        try:
            async with open_documents(bearer.policy) as web:
                await TokenEndpoint(web, login, bearer.remote.oauth).revoke(login.token)
        except TokenRequestFailed as exc:
            why = f"`{login.revocation_endpoint}` {exc}"
            warning = f"the token was deleted here, but not revoked: {why}"
    try:
        await bearer.forget()
    except OSError as exc:
        raise LoginFailed(bearer.group, f"the token cannot be deleted: {os_reason(exc)}") from exc
    return LogoutOutcome(was_logged_in=True, warning=warning)
