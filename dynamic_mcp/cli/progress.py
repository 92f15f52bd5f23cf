"""What a command is waiting for, as one line: what is pending, for how long, and the latest progress message."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dynamic_mcp.system.text import escape

if TYPE_CHECKING:
    from rich.text import Text

_MOST_NAMED = 3
# A shorter wait shows no clock.
_CLOCK_AFTER_S = 1.0


class Progress:
    """One wait, for something or for each of these names; `note` is the latest progress message."""

    def __init__(self, what: str, names: Sequence[str] = (), now: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._pending = list(names)
        self._has_names = bool(names)
        self._now = now
        self._since = now()
        self.note = ""

    def complete(self, name: str) -> None:
        """Remove a name from those that are pending."""
        if name in self._pending:
            self._pending.remove(name)

    def __str__(self) -> str:
        elapsed_s = self._now() - self._since
        clock = f" ({elapsed_s:.0f} s)" if elapsed_s >= _CLOCK_AFTER_S else ""
        return f"{self._describe()}{clock}{': ' if self.note else ''}{self.note}"

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text(escape(str(self)), no_wrap=True, overflow="ellipsis")

    def _describe(self) -> str:
        if not self._has_names:
            return self._what
        if not self._pending:
            return "finishing"
        names = ", ".join(self._pending[:_MOST_NAMED])
        more = len(self._pending) - _MOST_NAMED
        return f"{self._what} {names}{f' and {more} more' if more > 0 else ''}"
