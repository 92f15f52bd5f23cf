"""Logins of the program that this one replaces: `~/.dynamic-mcp/oauth-servers/<name>.json`.

They are only read. That program supported logins only for groups whose config names a client, and its authorization
server was always the server itself.
"""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path

import msgspec

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.oauth.credentials import Login, Token
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.system.decoding import decode_as

log = logging.getLogger(__name__)

MAX_BYTES = 1 << 20


class _StoredToken(msgspec.Struct):
    access_token: str
    refresh_token: str | None = None
    expires_at: datetime | None = None


def find_login(group: str, remote: Remote) -> Login | None:
    """Return the login that a group had there, if any."""
    if remote.login_of is not None:  # the login there is the local user's
        return None
    if remote.oauth.client_id is None or remote.oauth.account is not None or set(group) & set("/\\:"):
        return None
    try:
        file = Path.home() / ".dynamic-mcp" / "oauth-servers" / f"{group}.json"
        if file.is_symlink() or file.stat().st_size > MAX_BYTES:
            return None
        stored = decode_as(file.read_bytes(), _StoredToken)
    except (OSError, ValueError, RuntimeError):  # no such file, or not a token; RuntimeError: no home directory
        return None
    group_logger(log, group).info("group %s: using the login in %s", group, file)
    expires_at = stored.expires_at.timestamp() if stored.expires_at else None
    token = Token(stored.access_token, file.stat().st_mtime, expires_at, stored.refresh_token)
    return Login(remote.url, token=token)
