"""Which servers each person logs in to, and what is started for one of them.

A server with OAuth acts with its user's rights. So each person who comes over HTTP has a login of their own there,
unless the config says that one login is for all. The local user, and whoever is taken for it, keeps the logins that
commands make.
"""

from __future__ import annotations

from msgspec.structs import replace

from dynamic_mcp.config.resolved import Config, GroupConfig, Remote, Share
from dynamic_mcp.identity import Principal


def has_personal_logins(group: GroupConfig) -> bool:
    """Tell whether each person has a login of their own to a server."""
    remote = group.upstream
    return (
        isinstance(remote, Remote)
        and remote.oauth.needs_user
        and not remote.oauth.is_shared
        and not remote.has_own_authorization
        and group.share is not Share.ALL
    )


def knows_persons(config: Config) -> bool:
    """Tell whether a config has a server that each person logs in to."""
    return any(has_personal_logins(group) for group in config.groups)


def for_person(config: Config, person: Principal) -> Config:
    """Return a config whose servers with logins of each person use those of this one."""
    return replace(config, groups=tuple(_for_person(group, person) for group in config.groups))


def _for_person(group: GroupConfig, person: Principal) -> GroupConfig:
    if not isinstance(group.upstream, Remote) or not has_personal_logins(group):
        return group
    return replace(group, upstream=replace(group.upstream, login_of=person))
