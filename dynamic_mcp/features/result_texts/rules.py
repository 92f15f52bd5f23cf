"""What is done with the texts of one server. A payload in which nothing changes stays the same object."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

from msgspec import Raw

from dynamic_mcp.config.resolved import Presentation
from dynamic_mcp.features.result_texts import texts
from dynamic_mcp.features.result_texts.config import ResultTexts
from dynamic_mcp.mcp import json_texts, selection
from dynamic_mcp.mcp.json_texts import PayloadPart
from dynamic_mcp.policy.call_rules import RuleSet

_STRIP: dict[str, Callable[[str], str]] = {"ansi": texts.strip_ansi, "invisible": texts.strip_invisible}
# The forms in ASCII of what can be removed.
_ESCAPES = (b"\\u", b"\\b", b"\\f", b"\x7f")
# JSON in a text in JSON in a text: at deeper levels, it is treated as plain text.
_MAX_DEPTH = 4


class ResultRules(RuleSet):
    """The treatment of results of one server."""

    def __init__(self, treatment: ResultTexts, server: str) -> None:
        self.strips = bool(treatment.strip)
        self.marks = treatment.mark
        self._server = server
        self._strip = [_STRIP[kind] for kind in treatment.strip]

    def strip(self, payload: Raw) -> Raw:
        """Return a result, an error or the params of a message, with what may stay of its texts."""
        data = bytes(payload)
        if data.isascii() and not any(each in data for each in _ESCAPES):
            return payload
        stripped = json_texts.rewrite(data, PayloadPart.MESSAGE, self._strip_text)
        return payload if stripped is data else Raw(stripped)

    def present_message(self, payload: Raw) -> Raw:
        return self.strip(payload) if self.strips else payload

    def mark_text(self, text: str) -> str:
        return texts.mark_text(text, self._server) if self.marks and text else text

    def _strip_text(self, data: bytes, depth: int = 0) -> bytes:
        text = stripped = data.decode("utf-8", "surrogatepass")
        for strip in self._strip:
            stripped = strip(stripped)
        result = data if stripped is text else stripped.encode("utf-8", "surrogatepass")
        if depth < _MAX_DEPTH and any(each in result for each in _ESCAPES) and _is_json(stripped):
            # it is decoded for `select` and for scripts, which must not bring back what its escapes hide
            return json_texts.rewrite_all(result, partial(self._strip_text, depth=depth + 1))
        return result


def _is_json(text: str) -> bool:
    """Return whether a text can be read as JSON, as leniently as the most lenient that reads it."""
    plain = text.strip()
    if not plain.startswith(("{", "[", '"')):
        return False
    if json_texts.is_json(plain.encode("utf-8", "surrogatepass")):
        return True
    try:
        selection.parse_json(plain)
    except ValueError:
        return False
    return True


def compile_rules(presentation: Presentation, server: str) -> ResultRules:
    """Return what is done with the results of a server."""
    treatment = presentation.rules["results"]
    assert isinstance(treatment, ResultTexts)
    return rules_for(treatment, server)


@lru_cache(maxsize=128)
def rules_for(treatment: ResultTexts, server: str) -> ResultRules:
    """Return the rules for this treatment, shared by all views that have them."""
    return ResultRules(treatment, server)
