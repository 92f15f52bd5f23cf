"""Values that may hold secrets, and do not show them."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct


class Private(Struct, frozen=True):
    """What may hold secrets: a `repr` has the fields that are `shown`, and no other."""

    shown: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        members = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.shown)
        return f"{type(self).__name__}({members})"
