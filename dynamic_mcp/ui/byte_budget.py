"""The space that texts of others get on a page, so that no page grows beyond its bound whatever they say."""

from __future__ import annotations

import html

from dynamic_mcp.system.text import escape


class ByteBudget:
    """A number of bytes of HTML, which texts take from."""

    def __init__(self, size: int) -> None:
        self.left = size

    def take(self, text: str, longest: int) -> tuple[str, bool]:
        """Return as much of a text as there is space for, `longest` characters at most, and whether it is all."""
        shown = text[:longest]
        cost = measure(shown)
        while cost > self.left and shown:
            shown = shown[: min(len(shown) * max(self.left, 0) // cost, len(shown) - 1)]
            cost = measure(shown)
        self.left -= cost
        return shown, len(shown) == len(text)

    def spend(self, size: int) -> bool:
        """Take so many bytes, and return whether they were there."""
        if size > self.left:
            return False
        self.left -= size
        return True


def measure(text: str) -> int:
    """Return the number of bytes of a text on a page, where much of it is shown as escapes."""
    return len(html.escape(escape(text, keep="\n\t")).encode("utf-8", "replace"))
