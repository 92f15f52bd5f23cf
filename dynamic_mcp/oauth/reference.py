"""Logins of the program that this one takes the place of: `~/.dynamic-mcp/oauth-servers/<name>.json`.

They are read and left where they are. Only a group whose config names a client had one, and its authorization server
was always the server itself.
"""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path

import msgspec

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.oauth.records import Login, Token
from dynamic_mcp.observe.log_output import group_logger

log = logging.getLogger(__name__)

MAX_BYTES = 1 << 20


class _Kept(msgspec.Struct):
    access_token: str
    refresh_token: str | None = None
    expires_at: datetime | None = None


def login_of(group: str, remote: Remote) -> Login | None:
    """Return the login that a group had there, if any."""
    if remote.oauth.client_id is None or remote.oauth.account is not None or set(group) & set("/\\:"):
        return None
    try:
        file = Path.home() / ".dynamic-mcp" / "oauth-servers" / f"{group}.json"
        if file.is_symlink() or file.stat().st_size > MAX_BYTES:
            return None
        kept = msgspec.json.decode(file.read_bytes(), type=_Kept)
    except (OSError, ValueError, RuntimeError):  # none, or not one; RuntimeError: nobody's home
        return None
    group_logger(log, group).info("group %s: its login was found in %s", group, file)
    expires_at = kept.expires_at.timestamp() if kept.expires_at else None
    token = Token(kept.access_token, file.stat().st_mtime, expires_at, kept.refresh_token)
    return Login(remote.url, token=token)
