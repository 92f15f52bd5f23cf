"""Makes a tool's result fit into a context: selects a part, compacts JSON, limits the text; pure.

A result that needs no change passes byte for byte. Images and other binary content are never changed, and no data
is lost: `keep` stores the removed parts and returns the URI to read them at.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Raw, Struct

from dynamic_mcp.config.resolved import CallHandling
from dynamic_mcp.mcp import selection, wire
from dynamic_mcp.mcp.selection import BadPath

# Stores a text of this media type and returns its URI.
Keep = Callable[[str, str], str]
# Returns a text with marks around it.
Mark = Callable[[str], str]

_JSON = "application/json"
_PLAIN = "text/plain"
_TRUE = Raw(b"true")
# The paths of the text of a block: its own text, or that of an embedded resource.
_TEXTS = (("text",), ("resource", "text"))
# The earliest place, as a share of the limit, to cut a text at the end of a line or a word.
_LINE_WITHIN = 0.75
_WORD_WITHIN = 0.95


class _Block(Struct, frozen=True):
    """One block of a result's content; `text` is None if it is binary or of an unknown type."""

    raw: Raw
    path: tuple[str, ...] = ()
    text: str | None = None

    def with_text(self, text: str) -> _Block:
        """Return the block with another text; all other bytes stay the same."""
        return self if text == self.text else _Block(wire.with_member(self.raw, text, *self.path), self.path, text)


class _Text(msgspec.Struct, frozen=True):
    """A text, still as JSON; its length is an upper bound."""

    text: Raw = Raw()


class _BlockSize(_Text, frozen=True):
    """The members of a block that can be long."""

    resource: _Text = _Text()


class _ResultSize(msgspec.Struct, frozen=True):
    """The members of a result that can be too long."""

    content: list[_BlockSize] = []
    structured: Raw = msgspec.field(default=Raw(), name="structuredContent")


_decode_size = msgspec.json.Decoder(_ResultSize).decode


def can_pass_unchanged(result: Raw, answers: CallHandling) -> bool:
    """Return whether a result can be passed on unchanged, as nearly all can."""
    return len(result) <= answers.limit and not answers.compact and not answers.marks


def shape(
    result: Raw, answers: CallHandling, keep: Keep, *, links: bool, keeps_structure: bool, mark: Mark | None = None
) -> Raw:
    """Return the result within the limit, compacted if configured, with remarks about removed parts.

    `links`: the client supports `resource_link`. `keeps_structure`: an output schema promises structuredContent.
    `mark` is for texts of the result, not for remarks; it may make them longer than the limit.
    """
    try:
        if not answers.compact and not answers.marks and _is_short(result, answers.limit):
            return result
        members = wire.members(result)
        before = blocks = _parse_blocks(members)
    except wire.Malformed:
        return result
    if answers.compact:
        blocks = [block.with_text(_compact(block.text)) if block.text else block for block in blocks]
    cut = _Truncation(answers.limit, keep, links=links)
    if len(members.get("structuredContent", b"")) > answers.limit and not keeps_structure:
        blocks = cut.leave_out(members.pop("structuredContent"), blocks)
        before = []
    blocks = cut.within_limit(blocks)
    if answers.marks and mark is not None:
        blocks = _mark_blocks(blocks, mark)
    return result if blocks == before else _build_result(members, [*blocks, *cut.remarks])


def mark_texts(result: Raw, mark: Mark) -> Raw:
    """Return the result with marked texts in its content; the same object if it has none."""
    try:
        members = wire.members(result)
        before = _parse_blocks(members)
    except wire.Malformed:
        return result
    blocks = _mark_blocks(before, mark)
    return result if blocks == before else _build_result(members, blocks)


def select(result: Raw, path: str, keep: Keep) -> Raw:
    """Return the result with `{"selected": …}`, the values that a JSONPath matches, in place of its text.

    A result that is not JSON is returned in full, with a remark. If nothing is selected, the text says why, describes
    the shape of the data, and makes clear that the tool has run.
    """
    try:
        members = wire.members(result)
        blocks = _parse_blocks(members)
    except wire.Malformed:
        return result
    if bytes(members.get("isError", b"")) == b"true":
        return result
    try:
        data = parse_data(
            members.get("structuredContent"), (block.text for block in blocks if block.text is not None)
        )
    except ValueError:
        remark = "[`select` had no effect, because the result is not JSON; this is the full result]"
        return _build_result(members, [*blocks, _text_block(remark)])
    members.pop("structuredContent", None)
    others = [block for block in blocks if block.text is None]
    try:
        return _build_result(
            members, [_text_block(selection.write_json({"selected": selection.select_value(path, data)})), *others]
        )
    except BadPath as exc:
        words, is_error = f"`{path[:100]}` cannot be used as a JSONPath: {exc}", True
    except LookupError:
        words, is_error = f"nothing matches `{path}`", False
    where = keep(selection.write_json(data), _JSON)
    shape = selection.describe_shape(data)
    words = f"the tool ran, but {words}\nits data look like this: {shape}\nthe full result is `{where}`"
    return _build_result({**members, **({"isError": _TRUE} if is_error else {})}, [_text_block(words), *others])


def parse_data(structured: Raw | None, texts: Iterable[str]) -> object:
    """Return the JSON of a result: its structured content, else its text, or a list if there are several texts.

    Raises ValueError if there is no JSON.
    """
    if structured is not None:
        return selection.parse_json(bytes(structured))
    values = [selection.parse_json(text) for text in texts]
    if not values:
        raise ValueError("no text")
    return values[0] if len(values) == 1 else values


def is_error(result: Raw) -> bool:
    """Return whether the call has failed, according to its result."""
    return bytes(wire.member(result, "isError")) == b"true"


def add_to_error(result: Raw, words: str) -> Raw:
    """Return an error result with another text block added; any other result unchanged."""
    try:
        members = wire.members(result)
        if bytes(members.get("isError", b"")) != b"true":
            return result
        return _build_result(members, [*_parse_blocks(members), _text_block(words)])
    except wire.Malformed:
        return result


# --- blocks ----------------------------------------------------------------------------------------------


def _parse_blocks(members: Mapping[str, Raw]) -> list[_Block]:
    return [_parse_block(raw) for raw in wire.elements(members.get("content", wire.EMPTY_ARRAY))]


def _is_short(result: Raw, limit: int) -> bool:
    """Return whether texts and structured content are within the limit, without decoding any text."""
    try:
        size = _decode_size(result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    texts = sum(max(2, len(block.text), len(block.resource.text)) - 2 for block in size.content)
    return texts <= limit and len(size.structured) <= limit


def _parse_block(raw: Raw) -> _Block:
    """Find the text of a block: its own, or that of an embedded resource."""
    for path in _TEXTS:
        text = wire.text(wire.member(raw, *path))
        if text is not None:
            return _Block(raw, path, text)
    return _Block(raw)


def _mark_blocks(blocks: Iterable[_Block], mark: Mark) -> list[_Block]:
    return [_mark_block(block, mark) for block in blocks]


def _mark_block(block: _Block, mark: Mark) -> _Block:
    """Mark all texts of a block, since clients differ in which of them they show."""
    raw = block.raw
    for path in _TEXTS:
        if text := wire.text(wire.member(raw, *path)):
            raw = wire.with_member(raw, mark(text), *path)
    return block if raw is block.raw else _Block(raw, block.path, block.text)


def _text_block(words: str) -> _Block:
    return _Block(Raw(wire.encode({"type": "text", "text": words})), ("text",), words)


def _build_result(members: Mapping[str, object], blocks: Sequence[_Block]) -> Raw:
    return Raw(wire.encode({**members, "content": [block.raw for block in blocks]}))


def _compact(text: str) -> str:
    """Return JSON without white space, and any other text unchanged."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return msgspec.json.format(text, indent=-1)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


# --- the limit -------------------------------------------------------------------------------------------


class _Truncation:
    """Cuts content that is too long, stores the full content elsewhere, and collects remarks about it."""

    def __init__(self, limit: int, keep: Keep, *, links: bool) -> None:
        self.remarks: list[_Block] = []
        self._limit = limit
        self._keep = keep
        self._links = links

    def leave_out(self, structured: Raw, blocks: list[_Block]) -> list[_Block]:
        """Store structured content elsewhere, unless a text equals it; if there is no text, turn it into one."""
        data = bytes(structured).decode()
        if all(block.text is None for block in blocks):
            return [*blocks, _text_block(data)]
        same = wire.compact(structured).decode()
        if not any(block.text is not None and _compact(block.text) == same for block in blocks):
            self._add_remark(f"structuredContent of {len(data)} characters is left out here", 0, data, _JSON)
        return blocks

    def within_limit(self, blocks: Sequence[_Block]) -> list[_Block]:
        """Return the blocks with as much text as the limit allows; other blocks stay in place."""
        texts = [block.text for block in blocks if block.text is not None]
        if sum(map(size, texts)) <= self._limit:
            return list(blocks)
        whole = "\n".join(texts)
        truncated = list(self._truncate(blocks))
        shown = len("\n".join(block.text for block in truncated if block.text is not None))
        words = f"the text is cut here: {shown} of {len(whole)} characters are shown"
        self._add_remark(words, shown, whole, _JSON if whole[:1] in ("{", "[") and len(texts) == 1 else _PLAIN)
        return truncated

    def _truncate(self, blocks: Sequence[_Block]) -> Iterator[_Block]:
        left = self._limit
        for block in blocks:
            if block.text is None:
                yield block
            elif left > 0:
                length = size(block.text)
                yield block if length <= left else block.with_text(_head(block.text, left))
                left = left - length if length <= left else 0

    def _add_remark(self, words: str, start: int, whole: str, media_type: str) -> None:
        uri = self._keep(whole, media_type)
        end = min(len(whole), start + self._limit)
        part = f"`{uri}?start={start}&end={end}` is a part of it"
        self.remarks.append(_text_block(f"[{words}; the full result is the resource `{uri}`, and {part}]"))
        if self._links:
            link = {"type": "resource_link", "uri": uri, "name": "the full result", "mimeType": media_type}
            self.remarks.append(_Block(Raw(wire.encode({**link, "size": size(whole)}))))


def repeats(block: Raw, structured: Raw) -> bool:
    """Return whether a block repeats the structured content as text, which servers send for older clients."""
    text = wire.text(wire.member(block, "text"))
    try:
        return text is not None and json.loads(text) == json.loads(bytes(structured))
    except (ValueError, RecursionError):
        return False


def size(text: str) -> int:
    """Return the length of a text in bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _head(text: str, most: int) -> str:
    """Return the start of a text, at most `most` bytes, cut after a line or a word if one ends nearby."""
    head = text[:most].encode("utf-8", "replace")[:most].decode("utf-8", "ignore")
    line = head.rfind("\n", int(len(head) * _LINE_WITHIN))
    if line > 0:
        return head[: line + 1]
    word = max(head.rfind(each, int(len(head) * _WORD_WITHIN)) for each in (" ", ","))
    return head[: word + 1] if word > 0 else head
