"""Replaces parts of texts. Only texts change, so that a result still fits its schema.

A payload without matches is recognised by one search, and stays the same object.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from msgspec import Raw

from dynamic_mcp.config.resolved import Presentation
from dynamic_mcp.features.redaction.config import Redact
from dynamic_mcp.features.redaction.presets import PRESETS, Check, Preset
from dynamic_mcp.mcp import json_texts, wire
from dynamic_mcp.mcp.json_texts import MatchSpan, PayloadPart
from dynamic_mcp.policy.call_rules import RuleSet
from dynamic_mcp.policy.globs import Globs
from dynamic_mcp.policy.patterns import compile_absence, compile_pattern
from dynamic_mcp.system.bounded import NameMemo

# JSON in a text in JSON in a text: at deeper levels, it is treated as plain text.
_MAX_DEPTH = 4
# A pattern that searches to the end of a text from each character is slower, and its replacements may grow as much.
_MAX_S = 2.0
_MAX_GROWTH = 1 << 20
# Anchors of a text do not match in JSON, where its quotes are. `[^` has another meaning.
_ENDS = re.compile(r"[\^$]")
_GROUP_START = "(?P<secret>"
_NO_ENDS = re.compile(r"\\.|\[\^", re.DOTALL)


class TooMuch(Exception):
    """A text with so many matches that all of it is replaced, `by` this."""

    def __init__(self, by: bytes) -> None:
        super().__init__("too much to replace")
        self.by = by


class Redactor(RuleSet):
    """The redaction rules of one server."""

    def __init__(self, rules: Sequence[Redact], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rules = [(None if rule.tools is None else Globs(rule.tools), rule) for rule in rules]
        self._clock = clock
        self._texts_in_arguments: NameMemo[str | None, _Texts | None] = NameMemo(self._compile_for_arguments)
        self._texts_in_answers: NameMemo[str | None, _Texts | None] = NameMemo(self._compile_for_answers)
        self._for_all = self._compile([rule for _, rule in self._rules if rule.in_results])

    def redact_arguments(self, tool: str | None, arguments: Raw | None) -> Raw | None:
        """Return the redacted arguments of a tool or a prompt.

        Without a match, it is the same object.
        """
        return None if arguments is None else _redact(self._texts_in_arguments(tool), arguments, PayloadPart.WORDS)

    def redact_answer(self, tool: str | None, payload: Raw) -> Raw:
        """Return a redacted result or error, of a tool or of any other request.

        Without a match, it is the same object.
        """
        return _redact(self._texts_in_answers(tool), payload, PayloadPart.MESSAGE)

    def present_text(self, tool: str, text: str) -> str:
        """Return a text of this program in an answer of a tool, redacted like the server's."""
        message = self.redact_answer(tool, Raw(wire.encode({"message": text})))
        return wire.text(wire.member(message, "message")) or ""

    def present_message(self, payload: Raw) -> Raw:
        """Return a redacted server message that names no tool, such as a log message or a task of any tool.

        The rules of all tools apply.
        """
        return _redact(self._for_all, payload, PayloadPart.MESSAGE)

    def has_for_arguments(self, tool: str | None) -> bool:
        """Return whether rules apply to the arguments of a tool or a prompt."""
        return self._texts_in_arguments(tool) is not None

    def has_for_answers(self, tool: str | None) -> bool:
        """Return whether rules apply to the answers of a tool or of other requests."""
        return self._texts_in_answers(tool) is not None

    def _compile_for_arguments(self, tool: str | None) -> _Texts | None:
        return self._compile([rule for rule in self._select(tool) if rule.in_arguments])

    def _compile_for_answers(self, tool: str | None) -> _Texts | None:
        return self._compile([rule for rule in self._select(tool) if rule.in_results])

    def _select(self, tool: str | None) -> Iterator[Redact]:
        for globs, rule in self._rules:
            if globs is None or (tool is not None and globs.matches_variant(tool)):
                yield rule

    def _compile(self, rules: Sequence[Redact]) -> _Texts | None:
        return _Texts([each for rule in rules for each in _groups(rule)], self._clock) if rules else None


def compile_rules(presentation: Presentation, server: str) -> Redactor:
    """Return the redactor of a server."""
    return redactor_for(presentation.rules_of("redact", Redact))


@lru_cache(maxsize=128)
def redactor_for(rules: tuple[Redact, ...]) -> Redactor:
    """Return the redactor for these rules, shared by all views that have them."""
    return Redactor(rules)


def _redact(texts: _Texts | None, payload: Raw, part: PayloadPart) -> Raw:
    if texts is None:
        return payload
    data = bytes(payload)
    if texts.is_clean(data):
        return payload
    redacted = json_texts.rewrite(data, part, texts.begin().redact)
    return payload if redacted == data else Raw(redacted)


def _groups(rule: Redact) -> Iterator[_Group]:
    for name in rule.presets:
        yield _Group([_PatternReplacement(preset, rule.replacement) for preset in PRESETS[name]])
    if rule.pattern is not None:
        yield _Group([_PatternReplacement(Preset(rule.pattern), rule.replacement)])


class _PatternReplacement:
    """A pattern and its replacement."""

    def __init__(self, preset: Preset, replacement: str) -> None:
        self.pattern = preset.pattern.replace(_GROUP_START, "(?:")
        self.by = replacement.encode("utf-8", "replace")
        self._check: Check | None = preset.check
        self._group = 1 if _GROUP_START in preset.pattern else 0
        self._compiled = compile_pattern(preset.pattern, captures=self._group > 0)

    def find(self, text: bytes, is_over: Callable[[], bool]) -> list[MatchSpan]:
        """Return the places to replace; adjacent matches become one. Raises TooMuch."""
        spans: list[MatchSpan] = []
        most = (len(text) + _MAX_GROWTH) // (len(self.by) + 1)
        for match in self._compiled.finditer(text):
            start, end = match.span(self._group)
            if start < end and (self._check is None or self._check(text, start, end)):
                span = MatchSpan(start, end, *match.span())
                if spans and spans[-1].end == start:
                    last = spans.pop()
                    span = span._replace(start=last.start, match_start=last.match_start)
                spans.append(span)
            if len(spans) > most or is_over():
                raise TooMuch(self.by)
        return spans


class _Group:
    """Patterns that are searched for together."""

    def __init__(self, replacements: Sequence[_PatternReplacement]) -> None:
        self.replacements = replacements
        self.is_absent = compile_absence([each.pattern for each in replacements])


class _Texts:
    """The replacements for texts by some of the rules."""

    def __init__(self, groups: Sequence[_Group], clock: Callable[[], float]) -> None:
        self.groups = groups
        self._clock = clock
        patterns = [each.pattern for group in groups for each in group.replacements]
        self.is_absent = compile_absence(patterns)
        self._finds_in_json = not any(_ENDS.search(_NO_ENDS.sub("", pattern)) for pattern in patterns)

    def is_clean(self, data: bytes, depth: int = 0) -> bool:
        """Return whether JSON certainly has no matches."""
        if self.is_absent is None:
            return False
        plain = json_texts.unescape(data) if self._finds_in_json else None
        if plain is not None:
            return self.is_absent(plain)
        texts = json_texts.find_texts(data)
        if not self.is_absent("\n".join(texts).encode("utf-8", "surrogatepass")):
            return False
        if depth == _MAX_DEPTH:
            return True
        inner = (text.encode("utf-8", "surrogatepass") for text in texts if "\\" in text)
        return all(self.is_clean(text, depth + 1) for text in inner if json_texts.is_json(text))

    def begin(self) -> _Pass:
        ends_at = self._clock() + _MAX_S
        return _Pass(self, lambda: self._clock() > ends_at)


class _Pass:
    """Replaces in the texts of one payload until its time is up; then it replaces whole texts."""

    def __init__(self, texts: _Texts, is_over: Callable[[], bool]) -> None:
        self._texts = texts
        self._is_over = is_over

    def redact(self, text: bytes, depth: int = 0) -> bytes:
        """Return a redacted text, which stays JSON if it is JSON; the same object if there is no match."""
        is_json = depth < _MAX_DEPTH and json_texts.is_json(text)
        is_absent = self._texts.is_absent
        if is_absent is not None and (not is_json or b"\\" not in text) and is_absent(text):
            return text
        return self._redact_json(text, depth) if is_json else self._redact_plain(text)

    def _redact_plain(self, text: bytes) -> bytes:
        try:
            for each in self._find_replacements(text):
                if spans := each.find(text, self._is_over):
                    text = _replace(text, spans, each.by)
        except TooMuch as exc:
            return exc.by
        return text

    def _redact_json(self, text: bytes, depth: int) -> bytes:
        """Replace in the texts of JSON, and then the matches that span several of them."""
        text = json_texts.rewrite(text, PayloadPart.WORDS, lambda inner: self.redact(inner, depth + 1))
        try:
            for each in self._find_replacements(text):
                if spans := each.find(text, self._is_over):
                    text = json_texts.replace_values(text, spans, json_texts.encode(each.by))
        except TooMuch as exc:
            return json_texts.encode(exc.by)
        return text

    def _find_replacements(self, text: bytes) -> Iterator[_PatternReplacement]:
        """Yield the replacements that may match. Raises TooMuch when the time is up."""
        for group in self._texts.groups:
            if group.is_absent is None or not group.is_absent(text):
                if self._is_over():
                    raise TooMuch(group.replacements[0].by)
                yield from group.replacements


def _replace(text: bytes, spans: Sequence[MatchSpan], by: bytes) -> bytes:
    pieces: list[bytes] = []
    at = 0
    for span in spans:
        pieces += text[at : span.start], by
        at = span.end
    return b"".join((*pieces, text[at:]))
