"""Replaces parts of texts. Only texts change, so that a result still fits its schema."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw

from dynamic_mcp.config.rules import Redact


class Redactor:
    """The rules of one server on what is replaced."""

    def __init__(self, rules: Sequence[Redact]) -> None:
        self._rules = tuple(rules)

    def redact_arguments(self, tool: str, arguments: Raw | None) -> Raw | None:
        """Return the arguments of a call without what is to be replaced; the same object if there is nothing."""
        return arguments

    def redact_answer(self, tool: str | None, payload: Raw) -> Raw:
        """Return a result or an error, of a tool or of anything else, without what is to be replaced.

        It is the same object if there is nothing.
        """
        return payload
