"""Counts how often a function is called: the work that must not grow with what there is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def counting(function: Callable[..., object]) -> Iterator[list[None]]:
    """Note each call of a function."""
    calls: list[None] = []
    before = sys.getprofile()

    def follow(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code is function.__code__:
            calls.append(None)

    sys.setprofile(follow)
    try:
        yield calls
    finally:
        sys.setprofile(before)
