"""What is done with the texts of one server. A payload in which nothing changes stays the same object."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from msgspec import Raw

from dynamic_mcp.config.resolved import Presentation
from dynamic_mcp.features.result_texts import texts
from dynamic_mcp.features.result_texts.config import ResultTexts
from dynamic_mcp.mcp import json_texts
from dynamic_mcp.mcp.json_texts import PayloadPart
from dynamic_mcp.policy.call_rules import RuleSet

_STRIP: dict[str, Callable[[str], str]] = {"ansi": texts.strip_ansi, "invisible": texts.strip_invisible}
# The forms in ASCII of what can be removed.
_ESCAPES = (b"\\u", b"\\b", b"\\f", b"\x7f")


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

    def _strip_text(self, data: bytes) -> bytes:
        text = stripped = data.decode("utf-8", "surrogatepass")
        for strip in self._strip:
            stripped = strip(stripped)
        return data if stripped is text else stripped.encode("utf-8", "surrogatepass")


def compile_rules(presentation: Presentation, server: str) -> ResultRules:
    """Return what is done with the results of a server."""
    treatment = presentation.rules["results"]
    assert isinstance(treatment, ResultTexts)
    return rules_for(treatment, server)


@lru_cache(maxsize=128)
def rules_for(treatment: ResultTexts, server: str) -> ResultRules:
    """Return the rules for this treatment, shared by all views that have them."""
    return ResultRules(treatment, server)
