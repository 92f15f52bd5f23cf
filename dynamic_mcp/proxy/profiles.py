"""Profiles: which servers and tools a client sees of what the config presents. A profile never adds anything."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import structs

from dynamic_mcp.config.access import Profile
from dynamic_mcp.config.resolved import Config, Presentation, ToolFilter
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.errors import NotFound, closest


class ProfileFilter(ToolFilter, frozen=True):
    """The tools that a profile includes and excludes of a `server`, whose `own` filter must allow them too.

    `foreign` are those of the included globs that are of tools of another server.
    """

    server: str = ""
    base: ToolFilter = ToolFilter()
    foreign: frozenset[str] = frozenset()

    def allows(self, name: str) -> bool:
        if not self.base.allows(name):
            return False
        is_included = _matches(self.server, name, self.include, self.foreign)
        return is_included and not _matches(self.server, name, self.exclude)


class ProfileDirectTools(DirectTools, frozen=True):
    """The tools of a `server` that a profile lists directly. `foreign` are the globs of tools of another server."""

    server: str = ""
    foreign: frozenset[str] = frozenset()

    def names(self, tool: str) -> bool:
        return _matches(self.server, tool, self.globs, self.foreign)


def _matches(server: str, name: str, globs: tuple[str, ...], foreign: Collection[str] = ()) -> bool:
    """Return whether one of the globs matches a tool's name or, if it has `__`, `<server>__<tool>`.

    A server must not get a tool included by giving it the name that another server's tool has with its server.
    """
    full = f"{server}__{name}"
    return any(
        (glob not in foreign and fnmatchcase(name, glob)) or ("__" in glob and fnmatchcase(full, glob))
        for glob in globs
    )


def choose(profiles: Mapping[str, Profile], chosen: str | None, roles: Collection[str]) -> Profile | None:
    """Return the profile of a client: the one that it has chosen, else the first for one of its roles.

    If the config does not have the chosen one (any more), it is an empty one that says so.
    """
    if chosen is not None:
        return profiles.get(chosen) or _missing(chosen)
    return next((each for each in profiles.values() if not set(each.roles).isdisjoint(roles)), None)


def narrow(presentations: Mapping[str, Presentation], profile: Profile) -> dict[str, Presentation]:
    """Return what is presented in a profile, by server and in the same order."""
    servers = presentations.keys()
    return {
        name: _narrow(name, each, profile, servers - {name})
        for name, each in presentations.items()
        if profile.selects(name)
    }


def describe_emptiness(profile: Profile, config: Config) -> str:
    """Return why a client with a profile has no group."""
    if profile.name in config.profiles:
        return f"the profile `{profile.name}` has no group"
    return f"the profile `{profile.name}` is no longer in the config"


def require(config: Config, name: str) -> Profile:
    """Return a profile of the config. Raises NotFound with the closest names."""
    found = config.profiles.get(name)
    if found is None:
        raise unknown_profile(name, config.profiles, config.file)
    return found


def unknown_profile(name: str, profiles: Collection[str], file: str | Path) -> NotFound:
    """Return the error that a config has no such profile, with what may be meant."""
    names = ", ".join(f"`{each}`" for each in profiles)
    hint = f"the profiles of `{file}` are {names}" if names else f"`{file}` has no `profiles`"
    return NotFound("profile", name, closest(name, profiles), hint=hint)


def _narrow(server: str, presentation: Presentation, profile: Profile, others: Collection[str]) -> Presentation:
    direct, tools = presentation.direct, presentation.tools
    if profile.direct is not None:
        listed = profile.direct
        foreign = _find_foreign(listed.globs, others)
        direct = ProfileDirectTools(listed.is_all, listed.globs, listed.is_auto, server, foreign)
    if (profile.tools.include, profile.tools.exclude) != (("*",), ()):
        foreign = _find_foreign(profile.tools.include, others)
        tools = ProfileFilter(profile.tools.include, profile.tools.exclude, server, tools, foreign)
    return structs.replace(presentation, tools=tools, direct=direct)


def _find_foreign(globs: tuple[str, ...], others: Collection[str]) -> frozenset[str]:
    """Return the globs that begin with the name of another server."""
    return frozenset(glob for glob in globs if any(glob.startswith(f"{each}__") for each in others))


def _missing(name: str) -> Profile:
    why = (
        f"The profile `{name}`, with which this client was started, is no longer in the config of dynamic-mcp,"
        " so there are no servers here. Tell the user to add it again, or to choose another one with `--profile`."
    )
    return Profile(name, servers=(), instructions=why)
