"""The logins of the groups of one proxy."""

from __future__ import annotations

from pathlib import Path

from dynamic_mcp.config.resolved import OAuth, Remote
from dynamic_mcp.oauth.logins import Logins


async def test_groups_of_one_name_have_credentials_of_their_own_where_their_servers_differ(tmp_path: Path) -> None:
    ann, bob = (
        Remote(kind="http", url=f"https://{name}.test/mcp", headers={}, oauth=OAuth(account=name))
        for name in ("ann", "bob")
    )
    logins = Logins(tmp_path, lambda group: f"log in to {group}", None)

    first, second = (logins.authorization("up", remote) for remote in (ann, bob))

    assert first is not second
    assert logins.authorization("up", ann) is first
    assert logins.authorization("up", bob) is second
    assert logins.begin("other", ann) is None
    await logins.close()
