"""How many examples a property is tried with: a share in the first tier, always the same ones; all in `full`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

_Test = TypeVar("_Test", bound=Callable[..., object])
_SHARE = 6
_is_first_tier = False

# How long an example takes says something about the machine, and nothing about the code.
settings.register_profile("without clocks", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True)


def choose_profile(*, is_first_tier: bool) -> None:
    """Choose how examples are made in this run."""
    global _is_first_tier
    _is_first_tier = is_first_tier
    settings.load_profile("repeatable" if _is_first_tier else "without clocks")


def examples(count: int, **more: Any) -> Callable[[_Test], _Test]:  # Any: settings of Hypothesis
    """Try a property with so many examples, and with a share of them in the first tier; both tiers have the test."""

    def decorate(test: _Test) -> _Test:
        if _is_first_tier:
            return settings(max_examples=max(2, count // _SHARE), **more)(test)
        marked: _Test = pytest.mark.full(test)
        return settings(max_examples=count, **more)(marked)

    return decorate
