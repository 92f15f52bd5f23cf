"""What the documents show on a terminal is what happens there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.documents import DOCUMENTS, ROOT, SHELL_LANGUAGES, find_blocks
from tests.shown_commands import Machine

PAGES = [
    page
    for page in DOCUMENTS
    if any(block.language in SHELL_LANGUAGES and not block.find_mark("not run") for block in find_blocks(page))
]


@pytest.mark.skipif(os.name != "posix", reason="the programs that stand in are scripts of a shell")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_do_what_it_shows(page: Path, tmp_path: Path) -> None:
    assert Machine(tmp_path).run_page(page) > 0


def test_what_is_shown_with_a_prompt_is_marked_as_the_console_and_a_reason_names_a_test_that_exists() -> None:
    for page in DOCUMENTS:
        for block in find_blocks(page):
            where = f"{page.name}:{block.line}"
            assert block.language in SHELL_LANGUAGES or not re.search(r"^\$ ", block.text, re.MULTILINE), where
            for test in re.findall(r"\b(?:tests|guides)/[\w./-]+", block.find_mark("not run") or ""):
                assert (ROOT / test).exists() or (ROOT / "docs" / test).exists(), where
