"""Takes what one server says in turns with everybody else: a flood delays no other server and no client for long."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

_LINES_A_TURN = 64


class Turns:
    """Passes lines to `receive`, so many in each turn of the loop; `pause` stops their source until `resume`."""

    def __init__(
        self, receive: Callable[[bytes], None], *, pause: Callable[[], None], resume: Callable[[], None]
    ) -> None:
        self._receive = receive
        self._pause = pause
        self._resume = resume
        self._lines = deque[bytes]()
        self._is_behind = False
        self._loop = asyncio.get_running_loop()

    def take(self, lines: Iterable[bytes]) -> None:
        """Take lines, in their order."""
        self._lines.extend(lines)
        if not self._is_behind:
            self._pass_on()

    def finish(self) -> None:
        """Pass on everything that is left."""
        while self._lines:
            self._receive(self._lines.popleft())

    def _pass_on(self) -> None:
        for _ in range(min(len(self._lines), _LINES_A_TURN)):
            self._receive(self._lines.popleft())
        was_behind, self._is_behind = self._is_behind, bool(self._lines)
        if self._is_behind:
            self._loop.call_soon(self._pass_on)
        if was_behind != self._is_behind:
            (self._pause if self._is_behind else self._resume)()
