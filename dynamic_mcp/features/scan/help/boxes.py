"""Takes the frames out of help texts that are drawn as boxes, as typer's are."""

from __future__ import annotations

import re

_TOP = re.compile(r"^\s*[╭┌+][─-]+ (?P<title>[^─]+?) [─-]+[╮┐+]\s*$")
_BOTTOM = re.compile(r"^\s*[╰└]─+[╯┘]\s*$")
_SIDES = re.compile(r"^\s*│(?P<inside>.*)│\s*$")
_COLUMNS = re.compile(
    r"^\s*(?P<star>\*?)\s+(?P<names>-\S+(?:\s+-\S+)*)(?:\s+(?P<takes>[A-Z<\[]\S*(?: RANGE)?))?(?=\s{2,}|$)"
)
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
        return "  " + _COLUMNS.sub(_join_columns, found["inside"].rstrip())
    return _BULLET.sub(r"\1 ", line)


def _join_columns(match: re.Match[str]) -> str:
    """Put the names of a flag and what it takes side by side; a star in front says that it must be given."""
    star = "[required] " if match["star"] else ""
    return f"{' '.join(match['names'].split())}{' ' + match['takes'] if match['takes'] else ''}   {star}"
