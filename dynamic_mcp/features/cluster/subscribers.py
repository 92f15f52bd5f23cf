"""Who in this process hears of the messages of a shared store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

OnMessage = Callable[[bytes | None], object]


class Subscribers:
    """Functions by the space whose messages they are called with."""

    def __init__(self) -> None:
        self._by_space: dict[str, list[OnMessage]] = {}

    def add(self, space: str, on_message: OnMessage) -> Callable[[], None]:
        """Add a function; return what removes it."""
        listeners = self._by_space.setdefault(space, [])
        listeners.append(on_message)

        def remove() -> None:
            if on_message in listeners:
                listeners.remove(on_message)

        return remove

    def send(self, space: str, message: bytes) -> None:
        loop = asyncio.get_running_loop()
        for each in self._by_space.get(space, ()):
            loop.call_soon(each, message)  # one that fails must not keep it from others

    def send_loss(self) -> None:
        """Say to all that messages may have been lost."""
        loop = asyncio.get_running_loop()
        for listeners in self._by_space.values():
            for each in listeners:
                loop.call_soon(each, None)
