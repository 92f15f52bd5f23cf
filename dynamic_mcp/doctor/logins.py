"""Checks of who logs in where, as far as the config alone tells."""

from __future__ import annotations

from collections.abc import Iterator

from dynamic_mcp.config.keys import format_path
from dynamic_mcp.config.persons import has_personal_logins
from dynamic_mcp.config.resolved import Config, GroupConfig, Remote
from dynamic_mcp.doctor.findings import Finding, Level


def check_logins(config: Config) -> Iterator[Finding]:
    """Tell which servers act with one login for all, and whether persons can log in to the others."""
    knows_people = config.http is not None and bool(config.http.auth)
    for group in config.groups:
        if _is_one_for_all(group, knows_people=knows_people):
            where = format_path(("mcpServers", group.name))
            what = "one login is for all who may use this server, and it acts with the rights of that one"
            yield Finding(Level.NOTE, where, what, f"`dynamic-mcp auth login {group.name}` is the login")
    personal = [group.name for group in config.groups if has_personal_logins(group)]
    if knows_people and personal and config.http is not None and config.http.public_url is None:
        names = ", ".join(f"`{name}`" for name in personal)
        what = f"is not set, so clients over HTTP cannot be sent links to log in to {names}"
        yield Finding(Level.WARNING, "settings.http.public_url", what, "set it to the URL that clients connect to")


def _is_one_for_all(group: GroupConfig, *, knows_people: bool) -> bool:
    remote = group.upstream
    if not isinstance(remote, Remote) or not remote.oauth.needs_user or remote.has_own_authorization:
        return False
    return remote.oauth.is_shared or (knows_people and not has_personal_logins(group))
