"""Tools as the config has them shown, and the way back: what is called by a shown name reaches the server by its own.

What is shown is what arguments are checked against. What is fixed wins over the model, and what is hidden does not
exist for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Raw

from dynamic_mcp.config.rules import Override


class Overrides:
    """The overrides of one server."""

    def __init__(self, overrides: Sequence[Override]) -> None:
        self._overrides = tuple(overrides)

    def show(self, tools: Mapping[str, Raw]) -> Mapping[str, Raw]:
        """Return the tools as they are shown, by their shown names, in the same order."""
        return tools

    def find_own_name(self, shown: str, tools: Mapping[str, Raw]) -> str | None:
        """Return the server's name of a tool that is shown by this name; None if there is no such tool.

        `tools` are the server's, by its own names. A name that it does not have, and no override is about, stays.
        """
        return shown

    def restore(self, name: str, arguments: Raw | None) -> Raw | None:
        """Return the arguments for the server's tool of this name of what was given for the shown ones.

        Raises InvalidArguments for what is not shown.
        """
        return arguments
