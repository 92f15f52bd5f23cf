"""`overrides` of a server: what is refused, and what follows for the rest of the config."""

from __future__ import annotations

from typing import Any

import pytest

from dynamic_mcp.config.access import ToolEffects
from tests.config.fixtures import ReadConfig, Refuse

Json = Any  # whatever JSON a test writes down


def _overrides(overrides: Json) -> Json:
    return {"mcpServers": {"a": {"command": "x", "overrides": overrides}}}


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ({"a": {"rename": "x"}, "b": {"rename": "x"}}, "two tools get the name `x`"),
        ({"a_*": {"rename": "x"}}, "is a glob"),
        ({"a": {"arguments": {"p": {"rename": "x"}, "q": {"rename": "x"}}}}, "two arguments of `a` get the name `x`"),
        ({"a": {"arguments": {"p": {"fixed": 1, "default": 2}}}}, "is fixed"),
        ({"a": {"arguments": {"p": {"fixed": 1, "rename": "x"}}}}, "is fixed"),
        ({"a": {"titel": "x"}}, "titel"),
        ({"a": {"annotations": {"readOnlyHint": "yes"}}}, "must be"),
    ],
)
def test_overrides_that_contradict_each_other_are_refused(refuse: Refuse, overrides: Json, why: str) -> None:
    error = refuse(_overrides(overrides))
    assert error.where.startswith("mcpServers.a.overrides")
    assert why in str(error)


def test_annotations_that_are_only_shown_say_nothing_of_the_effects(read_config: ReadConfig) -> None:
    config = read_config(_overrides({"*": {"annotations": {"readOnlyHint": True}}}))
    assert config.presentations["a"].effects == ToolEffects()
