"""What a config says of one program, with absolute paths."""

from __future__ import annotations

from msgspec import Struct


class Restrictions(Struct, frozen=True):
    """What a program may use. `read` None is everything, and so is `hosts` None.

    `server` is the name of the server, by which its state is kept, and `home` the home of the user.
    """

    server: str
    home: str = ""
    read: tuple[str, ...] | None = None
    write: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    hosts: tuple[str, ...] | None = None
    container: str | None = None
    best_effort: bool = False

    @property
    def is_strict(self) -> bool:
        """Return whether more than writing is confined."""
        return self.read is not None or self.hosts is not None
