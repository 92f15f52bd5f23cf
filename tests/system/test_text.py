from __future__ import annotations

import pytest

from dynamic_mcp.system.text import pluralize


@pytest.mark.parametrize(("number", "words"), [(0, "0 groups"), (1, "1 group"), (2, "2 groups"), (500, "500 groups")])
def test_one_is_singular_and_every_other_number_plural(number: int, words: str) -> None:
    assert pluralize(number, "group") == words
