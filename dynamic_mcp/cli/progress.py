"""What a command waits for, in words that grow with the time and shrink as answers come."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dynamic_mcp.observe.log_output import escaped

if TYPE_CHECKING:
    from rich.text import Text

_MOST_NAMED = 3
# What is over sooner needs no clock.
_CLOCK_AFTER_S = 1.0


class Waiting:
    """One wait: for something, or for each of these names; `note` is the latest that was heard."""

    def __init__(self, what: str, names: Sequence[str] = (), now: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._pending = list(names)
        self._has_names = bool(names)
        self._now = now
        self._since = now()
        self.note = ""

    def done(self, name: str) -> None:
        """Wait for this name no longer."""
        if name in self._pending:
            self._pending.remove(name)

    def __str__(self) -> str:
        waited_s = self._now() - self._since
        clock = f" ({waited_s:.0f} s)" if waited_s >= _CLOCK_AFTER_S else ""
        return f"{self._words()}{clock}{': ' if self.note else ''}{self.note}"

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text(escaped(str(self)), no_wrap=True, overflow="ellipsis")

    def _words(self) -> str:
        if not self._has_names:
            return self._what
        if not self._pending:
            return "finishing"
        named = ", ".join(self._pending[:_MOST_NAMED])
        more = len(self._pending) - _MOST_NAMED
        return f"{self._what} {named}{f' and {more} more' if more > 0 else ''}"
