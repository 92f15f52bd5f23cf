"""All groups, in the order of the config."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import NotFound
from dynamic_mcp.group import Group, Observer, OpenLink
from dynamic_mcp.upstream.open import Greeting, open_link


class Groups:
    """The groups of one config."""

    def __init__(self, config: Config, observer: Observer, *, opener: OpenLink = open_link) -> None:
        self._groups = {each.name: Group(each, observer, opener=opener) for each in config.groups}

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def __getitem__(self, name: str) -> Group:
        """Return the group of this name. Raises NotFound with the closest names and all that there are."""
        try:
            return self._groups[name]
        except KeyError:
            raise NotFound("group", name, closest(name, self.names()), hint=self.all_named()) from None

    def names(self) -> list[str]:
        """Return the names, in config order."""
        return list(self._groups)

    def all_named(self) -> str:
        """Say which groups there are."""
        named = ", ".join(f"`{name}`" for name in self._groups)
        return f"the groups are {named}" if named else "no group is configured"

    def start(self, greeting: Greeting) -> None:
        """Begin every group's life; none is waited for."""
        for group in self:
            group.start(greeting)

    async def close(self) -> None:
        """End every group, all at once."""
        await asyncio.gather(*(group.close() for group in self))


def closest(name: str, names: list[str]) -> list[str]:
    """Return up to three of `names` that are most like `name`, best first, whatever their case."""
    from difflib import get_close_matches  # only when somebody got a name wrong

    by_folded = {each.casefold(): each for each in reversed(names)}
    return [by_folded[match] for match in get_close_matches(name.casefold(), by_folded, n=3, cutoff=0.5)]
