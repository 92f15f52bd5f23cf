"""Assigns groups to workspaces: one group for each name and what would be started for it.

With share `user` and `all`, there is one group for all workspaces, started as the first of them would start it; but
never one for two users who have a login each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from dynamic_mcp.config.resolved import Broken, Config, GroupConfig, Share
from dynamic_mcp.config.workspace import Workspace, launch_of
from dynamic_mcp.groups.group import Group
from dynamic_mcp.identity import Principal

_IGNORING_WORKSPACES = frozenset({Share.USER, Share.ALL})

Create = Callable[[GroupConfig, Config], Group]

# The owner of groups: a workspace, or a person whose logins some of them use; None is the proxy itself.
Place = Workspace | Principal | None


class Space(Struct, frozen=True):
    """The groups of one place by name, in the order of the config that they come from."""

    config: Config
    groups: Mapping[str, Group]


Spaces = Mapping[Place, Space]


class Assignment(Struct, frozen=True):
    """The spaces after a reload: the groups in them that are new, and what each of the others goes on with."""

    spaces: dict[Place, Space]
    created: list[Group]
    kept: dict[Group, GroupConfig]


def find_match(config: GroupConfig, groups: Iterable[Group]) -> Group | None:
    """Return the group that can serve a workspace with this config, preferably one that works."""
    fitting = [group for group in groups if _fits(config, group.config)]
    return min(fitting, key=lambda each: isinstance(each.config.upstream, Broken), default=None)


def assign(before: Spaces, configs: Mapping[Place, Config], create: Create) -> Assignment:
    """Choose the groups for new configs: those that would start the same stay, the others are created."""
    chosen: dict[tuple[Place, str], Group] = {}
    created: list[Group] = []
    kept: dict[Group, GroupConfig] = {}
    for name in dict.fromkeys(each.name for config in configs.values() for each in config.groups):
        wanted = {key: found for key, config in configs.items() if (found := _find(config, name)) is not None}
        old = {key: space.groups[name] for key, space in before.items() if name in space.groups}
        candidates = [each for each in dict.fromkeys(old.values()) if _may_stay(each, before, wanted)]
        # what is broken for one workspace must not be what the others share
        for key in sorted(wanted, key=lambda each: isinstance(wanted[each].upstream, Broken)):
            previous = [each for each in candidates if each is old.get(key)]
            group = find_match(wanted[key], [*previous, *candidates])
            if group is None:
                group = create(wanted[key], configs[key])
                candidates.append(group)
                created.append(group)
            elif group not in created:
                kept.setdefault(group, replace(wanted[key], upstream=group.config.upstream))
            chosen[key, name] = group
    spaces = {
        key: Space(config, {each.name: chosen[key, each.name] for each in config.groups})
        for key, config in configs.items()
    }
    return Assignment(spaces, created, kept)


def _fits(config: GroupConfig, running: GroupConfig) -> bool:
    if config.share is not running.share or config.person != running.person:
        return False
    if config.share in _IGNORING_WORKSPACES and not isinstance(running.upstream, Broken):
        return True
    return launch_of(config.upstream) == launch_of(running.upstream)


def _may_stay(group: Group, before: Spaces, wanted: Mapping[Place, GroupConfig]) -> bool:
    """Return whether a group may stay; one of all workspaces may if nothing changes for the first of them."""
    if group.config.share not in _IGNORING_WORKSPACES:
        return True
    for key, space in before.items():
        after, config = wanted.get(key), _find(space.config, group.name)
        if after is None or config is None or space.groups[group.name] is not group:
            continue
        if not isinstance(after.upstream, Broken):
            return launch_of(after.upstream) == launch_of(config.upstream)
    return isinstance(group.config.upstream, Broken)


def _find(config: Config, name: str) -> GroupConfig | None:
    return next((each for each in config.groups if each.name == name), None)
