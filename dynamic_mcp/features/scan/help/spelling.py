"""Parses how a help text spells a flag: `-f, --file=FILE`, `--[no-]color`, `-o [a|b]`, `--log-level string`."""

from __future__ import annotations

import re

from msgspec import Struct

_NAME = re.compile(
    r"(?P<dashes>--?)(?P<no>\[no-?\])?(?P<name>[A-Za-z0-9?#@](?:[A-Za-z0-9_-]|\.(?!\.))*|[!:%^.])(?P<group>\[[a-z-]+\])?"
)
_SEPARATOR = re.compile(r"\s*(?:,|\||/|\bor\b)\s*(?=-)|\s+(?=--?[A-Za-z0-9\[])")
_GROUP = re.compile(
    r"<[^<>]*(?:<[^<>]*>[^<>]*)*>|\{[^{}]*\}|\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]|'[^']*'|\"[^\"]*\""
)
_BARE = re.compile(r"[^\s,\[\]]+(?:\|[^\s,]+)*")
# `-<number>, ` before the names
_NUMBER = re.compile(r"^-<[^<>]+>,\s*")
# With two levels of nested brackets.
_OPTIONAL = re.compile(r"\[=?((?!=)(?:[^\[\]]|\[(?:[^\[\]]|\[[^\[\]]*\])*\])+)\]")
_JOINED = re.compile(r"<[^<>]+>")
_GLUED = re.compile(r"(?:[^\s,|:][^\s,]*)?")


class Spelling(Struct, frozen=True, kw_only=True):
    """The spelling of a flag. `placeholder` is None if it takes no value. `rest` is the rest of the line.

    `off` are the names with the opposite meaning: `--color / --no-color`.
    """

    names: tuple[str, ...]
    placeholder: str | None = None
    second: str | None = None
    is_optional: bool = False
    sign: str = ""
    rest: str = ""
    off: tuple[str, ...] = ()


def read_spelling(text: str) -> Spelling | None:
    """Return the flag at the beginning of a text; None if there is none. `sign` joins name and value."""
    text = _NUMBER.sub("", text)
    names: list[str] = []
    off: list[str] = []
    value = _ValueSpelling()
    position, is_off = 0, False
    while match := _NAME.match(text, position):
        name = match["dashes"] + match["name"]
        (off if off or is_off else names).append(name)
        if match["no"]:
            off.append(f"{match['dashes']}no-{match['name']}")
        position = value.read(text, match.end())
        separator = _SEPARATOR.match(text, position)
        if separator is None:
            break
        is_off = separator[0].strip() == "/" and separator[0].startswith(" ")
        position = separator.end()
    if not names:
        return None
    rest = text[position:]
    if rest and not rest[0].isspace() and rest[:1] not in (",", ":", "."):
        return None
    return Spelling(
        names=tuple(name for name in dict.fromkeys(names) if name not in off and not _is_off(name, names)),
        off=tuple(dict.fromkeys([*off, *(name for name in names if _is_off(name, names))])),
        placeholder=value.placeholder,
        second=value.second,
        is_optional=value.is_optional,
        sign=value.sign,
        rest=rest.lstrip(" ,:."),
    )


class _ValueSpelling:
    """The value of a flag, while its names are parsed."""

    def __init__(self) -> None:
        self.placeholder: str | None = None
        self.second: str | None = None
        self.is_optional = False
        self.sign = ""

    def read(self, text: str, position: int) -> int:
        """Parse a value after a name; return where it ends."""
        if match := _OPTIONAL.match(text, position):  # `--color[=WHEN]`, `-C[<n>]`
            self._take(match[1].strip("<>"), "=")
            self.is_optional = True
            return match.end()
        if match := _JOINED.match(text, position):  # `-U<n>`
            self._take(match[0], "")
            return match.end()
        if text[position : position + 1] in ("=", ":") and text[position + 1 : position + 2].strip():
            match = _GROUP.match(text, position + 1) or re.compile(r"[^\s]+").match(text, position + 1)
            if match is not None and text[position] == "=":
                self._take(match[0].rstrip(",:") if match[0] != ":" else "", "=")
                return position + 1 + len(match[0].rstrip(",") if not match[0].endswith(":") else match[0][:-1])
        if text[position : position + 3] == "...":
            return position + 3
        return self._read_words(text, position) if text[position : position + 1] == " " else position

    def _read_words(self, text: str, position: int) -> int:
        start = position + 1
        match = _GROUP.match(text, start)
        if match is None and not text.startswith("-", start) and not text.startswith(" ", start):
            match = _BARE.match(text, start)
        if match is None or match[0] in ("/", "|", "or"):
            return position
        end = match.end()
        word = match[0].rstrip(",:")
        end -= len(match[0]) - len(word)
        if text.startswith("...", end):
            word, end = word + "...", end + 3
        if optional := re.compile(r"\[=[^\]]*\]").match(text, end):  # `string[="always"]`
            end = optional.end()
        end = _GLUED.match(text, end).end()  # type: ignore[union-attr]  # it matches nothing, too
        if text.startswith(" RANGE", end):
            word, end = word + " RANGE", end + 6
        self._take(word, " ")
        self.is_optional = word.startswith("[") and "|" not in word
        return self._read_more(text, end, word)

    def _read_more(self, text: str, position: int, first: str) -> int:
        """Parse what follows a placeholder: the same again, a second one, or `...`."""
        while match := re.compile(r" (\[[^\[\]]*(?:\[[^\]]*\])?[^\]]*\](?:\.\.\.)?|\.\.\.)").match(text, position):
            position = match.end()
        again = re.compile(r" (" + re.escape(first) + r"|<[^<>]+>|[A-Z][A-Z0-9_]*|[a-z]{1,2})(?=\s|$|,)").match(
            text, position
        )
        if again is not None and (first[:1] == "<") == (again[1][:1] == "<"):
            self.second = self.second or again[1]
            return self._read_more(text, again.end(), first)
        return position

    def _take(self, placeholder: str, sign: str) -> None:
        self.placeholder, self.sign = placeholder, sign


def _is_off(name: str, names: list[str]) -> bool:
    """Return whether a name is `--no-color` beside `--color`."""
    return name.startswith("--no-") and "--" + name[5:] in names
