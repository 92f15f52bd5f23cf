"""The pages of the documentation, and the fenced blocks in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
]
JSON_LANGUAGES = ("json", "jsonc", "json5")
SHELL_LANGUAGES = ("console", "sh", "bash")
_BLOCK = re.compile(r"((?:^<!-- [^\n]* -->\n)*)^( *)```(\w*)\n(.*?)^\2```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block; `marks` are the comments in the lines before it, which readers do not see."""

    line: int
    language: str
    text: str
    marks: tuple[str, ...]

    def find_mark(self, name: str) -> str | None:
        """Return the text of the mark of this name: of `<!-- not run: needs Docker -->`, `needs Docker`."""
        return next((mark.removeprefix(f"{name}: ") for mark in self.marks if mark.startswith(f"{name}: ")), None)


def find_blocks(document: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a document."""
    text = document.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        marks = tuple(re.findall(r"^<!-- (.*) -->$", match[1], re.MULTILINE))
        yield Block(text.count("\n", 0, match.start(3)) + 1, match[3], match[4], marks)


def blocks(document: Path, *languages: str) -> list[str]:
    """Return the texts of the fenced blocks in these languages."""
    return [block.text for block in find_blocks(document) if block.language in languages]
