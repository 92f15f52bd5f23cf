"""Walks through the causes of an exception."""

from __future__ import annotations

from collections.abc import Iterator

_DEEPEST = 8


def iter_causes(exc: BaseException, depth: int = 0) -> Iterator[BaseException]:
    """Yield the causes of an exception, the innermost first, then itself; a group has one for each of its members."""
    wrapped = [*exc.exceptions] if isinstance(exc, BaseExceptionGroup) else []
    for each in [*wrapped, exc.__cause__, exc.__context__, *exc.args]:
        if isinstance(each, BaseException) and depth < _DEEPEST:
            yield from iter_causes(each, depth + 1)
    yield exc
