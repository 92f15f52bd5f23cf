"""Takes the frames out of help texts that are drawn as boxes, as typer's are."""

from __future__ import annotations

import re

_TOP = re.compile(r"^\s*[╭┌+][─-]+ (?P<title>[^─]+?) [─-]+[╮┐+]\s*$")
_BOTTOM = re.compile(r"^\s*[╰└]─+[╯┘]\s*$")
_SIDES = re.compile(r"^\s*│(?P<inside>.*)│\s*$")
_BULLET = re.compile(r"^(\s*)[○•●∙](?=\s)")


def without_boxes(text: str) -> str:
    """Return the text with a heading for each box, and without bullets in front of lines."""
    if "│" not in text and not any(mark in text for mark in "○•●∙"):
        return text
    return "\n".join(_open(line) for line in text.splitlines())


def _open(line: str) -> str:
    if found := _TOP.match(line):
        return f"{found['title']}:"
    if _BOTTOM.match(line):
        return ""
    if found := _SIDES.match(line):
        return (
            "  " + found["inside"].rstrip().replace(" * ", "   ", 1)
            if found["inside"].startswith(" *")
            else " " + found["inside"].rstrip()
        )
    return _BULLET.sub(r"\1 ", line)
