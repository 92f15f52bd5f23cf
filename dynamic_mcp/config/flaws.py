"""The problem of a value in the config. A message never repeats a possible secret."""

from __future__ import annotations

from dynamic_mcp.system.text import replace_unprintable


class FlawError(ValueError):
    """The problem of a value, worded to follow its name; `hint` says how to fix it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def printable(text: str) -> str:
    """Return a text for a message: without secrets that can be recognised, and not too long."""
    from dynamic_mcp.config.secrets import mask_text  # for errors only: its expressions take a while to compile

    return replace_unprintable(mask_text(text)[:200])
