"""Who in this process hears of the messages of a shared store."""

from __future__ import annotations

from collections.abc import Callable, Iterator

OnMessage = Callable[[bytes | None], object]


class Subscribers:
    """Functions by the space whose messages they are called with."""

    def __init__(self) -> None:
        self._by_space: dict[str, list[OnMessage]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter([*self._by_space])

    def add(self, space: str, on_message: OnMessage) -> Callable[[], None]:
        """Add a function; return what removes it."""
        listeners = self._by_space.setdefault(space, [])
        listeners.append(on_message)

        def remove() -> None:
            if on_message in listeners:
                listeners.remove(on_message)

        return remove

    def send(self, space: str, message: bytes) -> None:
        for each in [*self._by_space.get(space, ())]:
            each(message)

    def send_loss(self) -> None:
        """Say to all that messages may have been lost."""
        for listeners in [*self._by_space.values()]:
            for each in [*listeners]:
                each(None)
