"""A result that was too long, as it is kept."""

from __future__ import annotations

from msgspec import Struct


class KeptText(Struct, frozen=True):
    """A text from `tools`, each after its group: a client that may not use one of them may not read it.

    If it `is_marked`, it is shown with the marks of `group`.
    """

    text: str
    media_type: str
    group: str
    tools: tuple[tuple[str, str], ...]
    is_marked: bool
