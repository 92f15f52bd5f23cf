"""Errors about values in the config. A message never repeats a possible secret."""

from __future__ import annotations

from msgspec import Struct

from dynamic_mcp.system.text import replace_unprintable


class FlawError(ValueError):
    """An error about a value, worded to follow its name; `hint` says how to fix it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Problem(Struct, frozen=True):
    """One problem; `where` is a path such as `mcpServers.github.url`."""

    where: str
    message: str
    hint: str = ""


def printable(text: str) -> str:
    """Return a text for a message: shortened, and without recognizable secrets."""
    from dynamic_mcp.config.secrets import mask_text  # for errors only: its expressions are slow to compile

    return replace_unprintable(mask_text(text)[:200])
