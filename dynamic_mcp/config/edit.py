"""Changes or moves one value in a JSON text and keeps all else: comments, order, indentation, line ends, commas.

A text that cannot be parsed is refused, never changed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from dynamic_mcp.config import jsonc
from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.keys import format_path as shown

_BOM = "\ufeff"
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},:]|[^\s\[\]{},:"]++')
_COMMENTS = re.compile(r"[ \t]*(?:/\*(?s:.*?)\*/[ \t]*)*(?://[^\r\n]*)?")
_BLANKS = re.compile(r"[ \t]*")
_UNIT = re.compile(r"^([ \t]+)\S", re.MULTILINE)
_LONGEST_LIST = 100


class NoPlaceError(ValueError):
    """The path leads through a value that is neither an object nor a list, or past the end of a list."""

    def __init__(self, path: Keys) -> None:
        super().__init__(f"`{shown(path)}` is neither an object nor a list that could take it")


def put(text: str, path: Keys, value: object) -> str:
    """Return the text with `value` at `path`: it replaces the value there, or is added after the last member.

    An object replaces another object member by member. Missing parents are created, and null counts
    as missing; an index may equal the length of its list, to append. Raises JSONDecodeError, jsonc.DuplicateKeyError
    or NoPlaceError.
    """
    bom, text = _split_bom(text)
    depth, there = _locate(text, path)
    if depth == len(path):
        return bom + _replace(text, path, there, value)
    key, inside = path[depth], _nest(path[depth + 1 :], value)
    if isinstance(there, dict) and isinstance(key, str):
        return bom + _Source(text).insert(path[:depth], key, inside)
    if isinstance(there, list) and key == len(there):
        return bom + _Source(text).insert(path[:depth], key, inside)
    if there is None:
        return bom + _Source(text).replace(path[:depth], _nest((key,), inside))
    raise NoPlaceError(path[:depth])


def drop(text: str, path: Keys) -> str:
    """Return the text without the value at `path`, its key and one comma; comments stay.

    If there is no such value, the text is returned unchanged. Raises JSONDecodeError or jsonc.DuplicateKeyError.
    """
    bom, text = _split_bom(text)
    depth, _ = _locate(text, path)
    if not path or depth < len(path):
        return bom + text
    return bom + _Source(text).drop(path)


def move(text: str, old: Keys, new: Keys) -> str:
    """Return the text with the member at `old` moved to `new`, with the comments above it and at the end of its line.

    Within an object, only its key changes. Missing parents are created, in the member's own place if they belong
    there. There must be no value at `new`. Raises JSONDecodeError, jsonc.DuplicateKeyError or NoPlaceError.
    """
    bom, text = _split_bom(text)
    if old[:-1] == new[:-1]:
        return bom + _Source(text).rename(old, new[-1])
    depth, there = _locate(text, new[:-1])
    if not isinstance(there, dict):
        raise NoPlaceError(new[:depth])
    if new[:depth] == old[:-1]:
        return bom + _Source(text).wrap(old, new[depth:])
    if depth < len(new) - 1:
        text = put(text, new[:-1], {})
    return bom + _Source(text).move(old, new)


def _split_bom(text: str) -> tuple[str, str]:
    return (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)


def _locate(text: str, path: Keys) -> tuple[int, object]:
    """Return how many keys of the path exist, and the value at the last of them."""
    there = jsonc.loads(text)
    for depth, key in enumerate(path):
        match there, key:
            case dict(), str() if key in there:
                there = there[key]
            case list(), int() if 0 <= key < len(there):
                there = there[key]
            case _:
                return depth, there
    return len(path), there


def _nest(path: Keys, value: object) -> object:
    for key in reversed(path):
        value = [value] if isinstance(key, int) else {key: value}
    return value


def _replace(text: str, path: Keys, old: object, new: object) -> str:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return text if _is_same(old, new) else _Source(text).replace(path, new)
    for key in [key for key in old if key not in new]:
        text = _Source(text).drop((*path, key))
    for key, value in new.items():
        here = (*path, key)
        text = _replace(text, here, old[key], value) if key in old else _Source(text).insert(path, key, value)
    return text


def _is_same(old: object, new: object) -> bool:
    # true is not 1, and 1 is not 1.0
    return json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)


# --- the places of values in a text ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Member:
    """One member of an object or list: the positions of its start, value, end and following comma."""

    key: str | int
    start: int
    value: int
    end: int
    comma: int | None


@dataclass(frozen=True)
class _Container:
    """An object or list: the positions of its brackets, and its members."""

    open: int
    close: int
    members: tuple[_Member, ...]

    def index(self, key: str | int) -> int:
        return next(index for index, member in enumerate(self.members) if member.key == key)


@dataclass(frozen=True)
class _Block:
    """A member with what belongs to it, from the first comment above it to the last one on its line.

    `start` and `end` are positions; `comments` and `body` have the member's `indent`. `trailer` follows its comma.
    """

    start: int
    end: int
    comments: str
    body: str
    trailer: str
    indent: str

    def render(self, indent: str, eol: str) -> str:
        """Return the comments above and the member, without the indentation of the first line."""
        lines = f"{self.comments}{self.body}".split(eol)
        rest = (indent + line.removeprefix(self.indent) if line.strip() else line for line in lines[1:])
        return eol.join((lines[0], *rest))


@dataclass(frozen=True)
class _Replacement:
    """A range of the text, and its replacement."""

    start: int
    end: int
    new: str = ""


class _Source:
    """A text that `jsonc` can parse. New values take its style; each method returns a changed copy."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._plain = jsonc.blank_comments(text)
        newline = text.find("\n")
        self._eol = "\r\n" if text[newline - 1 : newline] == "\r" else "\n"
        unit = _UNIT.search(self._plain)
        self._unit = unit[1] if unit else "  "
        self._longest_list = 0 if self._has_broken_lists() else _LONGEST_LIST

    def replace(self, path: Keys, value: object) -> str:
        if path:
            container = self._container(path[:-1])
            member = container.members[container.index(path[-1])]
            is_inline = self._is_on_one_line(container)
        else:
            member, is_inline = self._root(), False
        rendered = self._render(value, self._indent_at(member.start), is_inline=is_inline)
        return self._apply(_Replacement(member.value, member.end, rendered))

    def insert(self, path: Keys, key: str | int, value: object) -> str:
        """Insert a value into the container at `path`, after the last member. A list ignores `key`."""
        container = self._container(path)
        is_inline = self._is_on_one_line(container)
        indent = self._child_indent(container)
        name = f"{_quote(key)}: " if isinstance(key, str) else ""
        item = name + self._render(value, indent, is_inline=is_inline)
        if is_inline:
            return self._apply(*_append_inline(container, item))
        return self._apply(*self._append_line(container, indent, item))

    def rename(self, path: Keys, key: str | int) -> str:
        """Change the key of a member."""
        container = self._container(path[:-1])
        start = container.members[container.index(path[-1])].start
        return self._apply(_Replacement(start, self._end_of_key(start), _quote(str(key))))

    def wrap(self, path: Keys, keys: Keys) -> str:
        """Replace a member by an object that has it as its only member, one for each of the keys but the last."""
        container = self._container(path[:-1])
        member = container.members[container.index(path[-1])]
        block = self._block(container, member, str(keys[-1]))
        if block is None:
            body = _quote(str(keys[-1])) + self._text[self._end_of_key(member.start) : member.end]
            blank = " " if self._text[container.open + 1] == " " else ""
            for key in reversed(keys[:-1]):
                body = f"{_quote(str(key))}: {{{blank}{body}{blank}}}"
            return self._apply(_Replacement(member.start, member.end, body))
        indents = [block.indent + self._unit * depth for depth in range(len(keys))]
        heads = (f"{_quote(str(key))}: {{{self._eol}{indents[n + 1]}" for n, key in enumerate(keys[:-1]))
        tails = (f"{self._eol}{indent}}}" for indent in reversed(indents[:-1]))
        comma = "" if member.comma is None else ","
        new = "".join((*heads, block.render(indents[-1], self._eol), block.trailer, *tails, comma))
        return self._apply(_Replacement(block.start, block.end, new))

    def move(self, path: Keys, new: Keys) -> str:
        """Move a member to another object, behind its last member."""
        container = self._container(path[:-1])
        index = container.index(path[-1])
        member = container.members[index]
        block = self._block(container, member, str(new[-1]))
        if block is None:
            body = _quote(str(new[-1])) + self._text[self._end_of_key(member.start) : member.end]
            return _Source(self.drop(path)).append(new[:-1], _Block(0, 0, "", body, "", ""))
        cuts = [_Replacement(self._line_start(block.start), self._text.index("\n", block.end) + 1)]
        if member.comma is None and index:
            comma = container.members[index - 1].comma
            assert comma is not None
            cuts.append(_Replacement(comma, comma + 1))
        return _Source(self._apply(*cuts)).append(new[:-1], block)

    def append(self, path: Keys, block: _Block) -> str:
        """Insert a member into the object at `path`, after the last member."""
        container = self._container(path)
        indent = self._child_indent(container)
        item = block.render(indent, self._eol)
        if not self._is_on_one_line(container):
            return self._apply(*self._append_line(container, indent, item, block.trailer))
        if not block.comments and not block.trailer:
            return self._apply(*_append_inline(container, item))
        # a comment would extend over the rest of the line
        lines = self._eol + indent + item + block.trailer + self._eol + self._indent_at(container.open)
        cuts = [_Replacement(len(self._text[: container.close].rstrip()), container.close, lines)]
        if container.members and container.members[-1].comma is None:
            cuts.append(_Replacement(container.members[-1].end, container.members[-1].end, ","))
        return self._apply(*cuts)

    def drop(self, path: Keys) -> str:
        """Remove a member and one comma, and its line if nothing else is on it."""
        container = self._container(path[:-1])
        index = container.index(path[-1])
        member = container.members[index]
        if self._is_alone(container, member):
            return self._apply(_Replacement(container.open + 1, container.close))
        cuts: list[_Replacement] = []
        end = member.end
        if member.comma is None and index:
            comma = container.members[index - 1].comma
            assert comma is not None
            cuts.append(_Replacement(comma, comma + 1))
        elif member.comma is not None and not self._text[end : member.comma].strip():
            end = member.comma + 1
        elif member.comma is not None:
            cuts.append(_Replacement(member.comma, member.comma + 1))
        return self._apply(*cuts, self._widen(member.start, end, is_last=index == len(container.members) - 1))

    def _apply(self, *cuts: _Replacement) -> str:
        text = self._text
        for cut in sorted(cuts, key=lambda cut: (cut.start, cut.end), reverse=True):
            text = text[: cut.start] + cut.new + text[cut.end :]
        return text

    def _root(self) -> _Member:
        start = len(self._plain) - len(self._plain.lstrip())
        return _Member("", start, start, len(self._plain.rstrip()), None)

    def _container(self, path: Keys) -> _Container:
        container = _scan(self._plain, self._root().start)
        for key in path:
            container = _scan(self._plain, container.members[container.index(key)].value)
        return container

    def _is_on_one_line(self, container: _Container) -> bool:
        if not container.members:
            is_all = not self._plain[: container.open].strip() and not self._plain[container.close + 1 :].strip()
            return "\n" not in self._text and not is_all
        return "\n" not in self._text[container.open : container.close]

    def _is_alone(self, container: _Container, member: _Member) -> bool:
        before, after = self._text[container.open + 1 : member.start], self._text[member.end : container.close]
        return not before.strip() and after.strip() in ("", ",")

    def _child_indent(self, container: _Container) -> str:
        starts = [member.start for member in container.members if self._begins_its_line(member.start)]
        return self._indent_at(starts[-1]) if starts else self._indent_at(container.open) + self._unit

    def _end_of_key(self, start: int) -> int:
        match = _TOKEN.match(self._plain, start)
        assert match is not None
        return match.end()

    def _block(self, container: _Container, member: _Member, key: str) -> _Block | None:
        """Return a member under another key, and its comments; None unless it has its lines for itself."""
        end = member.end
        if member.comma is not None and not self._plain[end : member.comma].strip():
            end = member.comma + 1
        line_end = self._end_of_comments(end, container.close)
        if not self._begins_its_line(member.start) or self._text[line_end : line_end + 1] not in ("\r", "\n"):
            return None
        start = self._start_of_comments(container, member.start)
        body = _quote(key) + self._text[self._end_of_key(member.start) : member.end]
        trailer = self._text[member.end : line_end]
        if member.comma is not None:
            trailer = self._text[member.end : member.comma] + self._text[member.comma + 1 : line_end]
        comments = self._text[start : member.start]
        return _Block(start, line_end, comments, body, trailer.rstrip(), self._indent_at(member.start))

    def _start_of_comments(self, container: _Container, start: int) -> int:
        """Return where the comments directly above a member begin that have their lines for themselves."""
        first = start
        for begin, end in reversed(jsonc.find_comments(self._text[:start])):
            between = self._text[end:first]
            is_above = begin > container.open and not between.strip() and between.count("\n") == 1
            if not is_above or not self._begins_its_line(begin):
                break
            first = begin
        return first

    def _append_line(self, container: _Container, indent: str, item: str, trailer: str = "") -> list[_Replacement]:
        """Append an item on its own line, after the last member and the comment on that line."""
        if not container.members:
            point = self._end_of_comments(container.open + 1, container.close)
            has_line = "\n" in self._text[point : container.close]
            tail = "" if has_line else self._eol + self._indent_at(container.open)
            return [_Replacement(point, point, self._eol + indent + item + trailer + tail)]
        last = container.members[-1]
        if last.comma is not None:
            point = self._end_of_comments(last.comma + 1, container.close)
            return [_Replacement(point, point, f"{self._eol}{indent}{item},{trailer}")]
        item += trailer
        point = self._end_of_comments(last.end, container.close)
        if point == last.end:
            return [_Replacement(point, point, f",{self._eol}{indent}{item}")]
        return [_Replacement(last.end, last.end, ","), _Replacement(point, point, self._eol + indent + item)]

    def _end_of_comments(self, start: int, close: int) -> int:
        """Return the end of the line if only comments follow `start` on it, else `start`."""
        match = _COMMENTS.match(self._text, start)
        assert match is not None
        end = match.end()
        if self._text[end : end + 1] in ("\r", "\n"):
            return end
        return start + len(match[0].rstrip(" \t")) if end == close else start

    def _widen(self, start: int, end: int, *, is_last: bool) -> _Replacement:
        """Extend a removed range by the blanks that belong to it."""
        rest = self._after_blanks(end)
        is_line_over = self._text[rest : rest + 1] in ("\r", "\n")
        if self._begins_its_line(start) and is_line_over:
            return _Replacement(self._line_start(start), self._text.index("\n", rest) + 1)
        if not is_last and not is_line_over:
            return _Replacement(start, rest)
        before = len(self._text[:start].rstrip())
        # keep the line break after a `//` comment, which would otherwise extend over the next line
        is_swallowed = not jsonc.blank_comments(self._text[:before] + "}").endswith("}")
        return _Replacement(start if is_swallowed else before, end)

    def _render(self, value: object, indent: str, *, is_inline: bool) -> str:
        if is_inline:
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        return _render_lines(value, self._eol + indent, self._unit, self._longest_list)

    def _has_broken_lists(self) -> bool:
        """Return whether all lists have one item on each line, as programs write them."""
        lists = [match.end() for match in _TOKEN.finditer(self._plain) if match[0] == "["]
        filled = [end for end in lists if self._plain[end:].lstrip()[:1] != "]"]
        return bool(filled) and all(self._plain[self._after_blanks(end)] in "\r\n" for end in filled)

    def _line_start(self, position: int) -> int:
        return self._text.rfind("\n", 0, position) + 1

    def _begins_its_line(self, position: int) -> bool:
        return not self._text[self._line_start(position) : position].strip(" \t")

    def _indent_at(self, position: int) -> str:
        start = self._line_start(position)
        return self._text[start : self._after_blanks(start)]

    def _after_blanks(self, position: int) -> int:
        match = _BLANKS.match(self._text, position)
        assert match is not None
        return match.end()


def _scan(plain: str, start: int) -> _Container:
    """Parse the container whose bracket is at `start` in a text without comments."""
    members: list[_Member] = []
    is_object = plain[start] == "{"
    depth, first, value, end = 0, -1, -1, -1
    key: str | int = 0
    for token in _TOKEN.finditer(plain, start):
        sign = token[0]
        depth += (sign in "[{") - (sign in "]}")
        if depth == 0 or (depth == 1 and sign == ","):
            if first >= 0:
                members.append(_Member(key, first, value, end, token.start() if sign == "," else None))
            if depth == 0:
                break
            first = value = -1
        elif token.start() > start:
            if first < 0:
                first = token.start()
                key = json.loads(sign) if is_object else len(members)
            if value < 0 and (not is_object or (first != token.start() and sign != ":")):
                value = token.start()
            end = token.end()
    return _Container(start, token.start(), tuple(members))


def _append_inline(container: _Container, item: str) -> list[_Replacement]:
    if not container.members:
        return [_Replacement(container.open + 1, container.open + 1, item)]
    last = container.members[-1]
    if last.comma is not None:
        return [_Replacement(last.comma + 1, last.comma + 1, f" {item},")]
    return [_Replacement(last.end, last.end, f", {item}")]


def _render_lines(value: object, newline: str, unit: str, longest: int) -> str:
    """Format a value as people do: one member on each line, and short lists of plain values on one line."""
    match value:
        case dict() if value:
            inner = newline + unit
            items = [f"{_quote(key)}: {_render_lines(member, inner, unit, longest)}" for key, member in value.items()]
            return "{" + inner + f",{inner}".join(items) + newline + "}"
        case list() | tuple() if value and not _is_short(value, longest):
            inner = newline + unit
            return (
                "["
                + inner
                + f",{inner}".join(_render_lines(item, inner, unit, longest) for item in value)
                + newline
                + "]"
            )
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _is_short(items: list[object] | tuple[object, ...], longest: int) -> bool:
    is_plain = not any(isinstance(item, (dict, list, tuple)) for item in items)
    return is_plain and len(json.dumps(items, ensure_ascii=False)) <= longest


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
