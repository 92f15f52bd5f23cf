"""Splits a help text into its usage, its first lines, and the entries under its headings."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct, field

_USAGE = re.compile(r"^\s{0,8}(?:usage|synopsis)\s*:?(?:\s+|$)(?P<rest>.*)$", re.IGNORECASE)
_OR = re.compile(r"^\s*or:\s+")
_FLAG = re.compile(r"--?[A-Za-z0-9?#@\[!.][^\s]*|-<[^<>]+>, -")
_GAP = re.compile(r"\s{2,}|\t")
_HEADING = re.compile(
    r"^[A-Za-z(\[][^.]{0,70}:$|^[A-Z][A-Z0-9 ,/&()'-]{2,60}$|^[A-Z][\w'-]*(?: [A-Za-z/()'-]+){0,6}$"
)
_OVERSTRIKE = re.compile(".\x08")
_MAX_LINES = 20_000


class HelpEntry(Struct):
    """A line that starts with a flag or a word, and its description.

    `has_gap` is set if two spaces divide the two, as in a list; lines of prose have none.
    """

    head: str
    indent: int
    heading: str
    has_gap: bool = False
    lines: list[str] = field(default_factory=list)

    @property
    def description(self) -> str:
        return join(self.lines)


class Layout(Struct):
    """The parts of a help text. `first` is the text before any heading."""

    usage: list[str] = field(default_factory=list)
    first: list[str] = field(default_factory=list)
    flags: list[HelpEntry] = field(default_factory=list)
    words: list[HelpEntry] = field(default_factory=list)


def read_layout(text: str) -> Layout:
    """Split a help text into its parts."""
    text = _OVERSTRIKE.sub("", text).replace("\u2010", "-").replace("\u2011", "-").replace("\u2212", "-")
    lines = [line.expandtabs(8).rstrip() for line in text.splitlines()[:_MAX_LINES]]
    return _LayoutReader(lines).read()


def join(lines: Sequence[str]) -> str:
    """Join lines; a word that was hyphenated at the end of a line is joined without the hyphen's space."""
    text = ""
    for line in filter(None, map(str.strip, lines)):
        is_divided = re.search(r"\w-$", text) is not None and line[:1].islower()
        text += line if is_divided or not text else f" {line}"
    return text


class _LayoutReader:
    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._layout = Layout()
        self._heading = ""
        self._entry: HelpEntry | None = None
        self._has_entries = False

    def read(self) -> Layout:
        position = 0
        while position < len(self._lines):
            if not self._layout.usage and (found := _USAGE.match(self._lines[position])):
                position = self._read_usage(position, found["rest"])
            else:
                self._read_line(position)
                position += 1
        return self._layout

    def _read_usage(self, position: int, rest: str) -> int:
        """Read the lines of a usage, up to an empty line or a heading; return the position after it."""
        indent = _indent(self._lines[position])
        usage = [rest] if rest.strip() else []
        position += 1
        if not usage:
            while position < len(self._lines) and not self._lines[position]:
                position += 1
        while position < len(self._lines) and self._lines[position]:
            line = self._lines[position]
            if _indent(line) <= indent and not _OR.match(line):
                break
            if _FLAG.match(line.strip()) and _GAP.search(line.strip()):
                break
            text = _OR.sub("", line).strip()
            is_new = text.split(" ")[0] == (usage[0] if usage else text).split(" ")[0] or bool(_OR.match(line))
            if is_new or not usage:
                usage.append(text)
            else:
                usage[-1] += " " + text
            position += 1
        self._layout.usage += usage
        return position

    def _read_line(self, position: int) -> None:
        line = self._lines[position]
        if not line:
            if (
                self._entry is not None
                and self._entry.lines
                and _next_indent(self._lines, position) <= self._entry.indent
            ):
                self._entry = None
            return
        indent, text = _indent(line), line.strip()
        entry = self._entry
        if _FLAG.match(text) and not (entry is not None and _is_deeper(entry, indent, text)):
            self._begin(self._layout.flags, text, indent)
        elif entry is not None and indent > entry.indent:
            entry.lines.append(text)
        elif self._is_heading(position, indent, text):
            self._heading, self._entry = text.rstrip(":"), None
            self._has_entries = True
        elif self._heading and indent > 0:
            self._begin(self._layout.words, text, indent)
        else:
            self._entry = None
            if not self._has_entries:
                self._layout.first.append(text)

    def _begin(self, entries: list[HelpEntry], text: str, indent: int) -> None:
        head, description = _divide(text)
        lines = [description] if description else []
        self._entry = HelpEntry(head, indent, self._heading, has_gap=bool(description), lines=lines)
        entries.append(self._entry)
        self._has_entries = True

    def _is_heading(self, position: int, indent: int, text: str) -> bool:
        if indent > 4 or not _HEADING.match(text):
            return False
        following = _next_indent(self._lines, position)
        return following > indent or (following == indent and text.endswith(":"))


def _is_deeper(entry: HelpEntry, indent: int, text: str) -> bool:
    """Return whether a line that starts with a flag belongs to an entry's description: it is indented much deeper."""
    return indent > entry.indent + 8 and not (_GAP.search(text) and indent <= entry.indent + 10)


def _divide(text: str) -> tuple[str, str]:
    """Split a line at two spaces, unless more names of a flag follow."""
    position = 0
    while gap := _GAP.search(text, position):
        rest = text[gap.end() :]
        head = text[: gap.start()]
        if text.startswith("-") and rest.startswith("-") and re.match(r"-{1,2}[A-Za-z\[]", rest):
            text = f"{head} {rest}"
            position = len(head) + 1
            continue
        return head, rest
    return text, ""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _next_indent(lines: Sequence[str], position: int) -> int:
    return next((_indent(line) for line in lines[position + 1 :] if line), -1)
