"""Which groups have their definitions pinned; where all are trusted, nothing is loaded for that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dynamic_mcp.config.resolved import Config, Pinning
from dynamic_mcp.groups.group import Group
from dynamic_mcp.proxy.request import Event

if TYPE_CHECKING:  # loaded with the first group whose definitions are not trusted
    from dynamic_mcp.proxy.definitions import Definitions


class PinnedGroups:
    """The groups of one proxy. `folder` is that of lock files; None pins nothing.

    `note` takes events, and `announce` tells clients of a group whose lists are others now.
    """

    def __init__(
        self, config: Config, folder: Path | None, note: Callable[[Event], None], announce: Callable[[Group], None]
    ) -> None:
        self._config = config
        self._folder = folder
        self._note = note
        self._announce = announce
        self._definitions: Definitions | None = None

    def pin(self, group: Group, pinning: Pinning) -> None:
        """Have the definitions of a group pinned as the config says."""
        if self._definitions is None:
            if self._folder is None or pinning.policy == "trust":
                return
            from dynamic_mcp.proxy.definitions import Definitions

            self._definitions = Definitions(self._config, self._folder, note=self._note, announce=self._announce)
        self._definitions.attach(group, pinning)

    def apply(self, config: Config) -> None:
        """Pin as another config says from now on."""
        self._config = config
        if self._definitions is not None:
            self._definitions.apply(config)

    async def close(self) -> None:
        """Write what is not written yet."""
        if self._definitions is not None:
            await self._definitions.close()
