"""The data about tools hangs together, and the page about it is what the data says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from dynamic_mcp.importer.adapter import Adapter, find_values
from dynamic_mcp.importer.tools.catalog import ELSEWHERE, TOOLS
from dynamic_mcp.importer.tools.quirks import QUIRKS

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = "cursor opencode claude-desktop claude vscode cline kilocode codex gemini antigravity"
WANTED = """
windsurf devin zed roo-code continue goose amazon-q kiro copilot-cli copilot-jetbrains junie visual-studio
vscode-insiders vscodium qwen-code iflow crush trae lm-studio amp factory-droid warp augment librechat mcphub-nvim
grok-build hermes openhands pi kimi-code mistral-vibe codebuddy qoder zencoder mcporter 5ire boltai witsy shared
"""
ADAPTERS = [pytest.param(adapter, id=adapter.name) for adapter in TOOLS]


def test_every_tool_that_is_promised_is_there_the_best_known_first() -> None:
    names = [adapter.name for adapter in TOOLS]
    assert names[:10] == REFERENCE.split()
    assert set(WANTED.split()) <= set(names)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_each_tool_says_where_its_facts_are_from_and_when_they_were_checked(adapter: Adapter) -> None:
    assert re.match(r"https://[^/]+\..+", adapter.source)
    assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?", adapter.checked)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_each_tool_names_paths_and_a_quirk_that_there_are(adapter: Adapter) -> None:
    paths = [*adapter.servers, *adapter.fallback, *adapter.off, *adapter.allowed, *adapter.inputs]
    for path in (*paths, *(path for place in adapter.places for path in place.servers), *ELSEWHERE):
        assert find_values({}, path) == []
    assert not adapter.quirk or adapter.quirk in QUIRKS
    for place in adapter.places:
        assert place.path.startswith(("~/", "./", "{", "/", "C:/"))


def test_the_page_about_the_tools_is_what_the_data_says() -> None:
    page = runpy.run_path(str(DOCS / "import_tools.py"))
    assert (DOCS / "import-tools.md").read_text(encoding="utf-8") == page["text"]()
