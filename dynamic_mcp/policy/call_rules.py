"""The rules on the calls of one server, compiled once for all clients with the same view of it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Raw

from dynamic_mcp.config.resolved import Presentation
from dynamic_mcp.features.table import FEATURES
from dynamic_mcp.policy.overrides import Overrides


class RuleSet:
    """The rules of one feature on the calls of one server. Tools have the names that the server gives them."""

    def judges(self, tool: str) -> bool:
        """Return whether they decide about the arguments of a tool, so that these must be known to be valid."""
        return False

    def check_arguments(self, tool: str, arguments: Raw) -> None:
        """Raise DynamicMcpError if a tool may not be called with these arguments, whoever allows it."""

    def present_text(self, tool: str, text: str) -> str:
        """Return a text of our own in an answer of a tool as clients may see it; it may repeat arguments."""
        return text

    def present_message(self, payload: Raw) -> Raw:
        """Return the params of what the server says by itself as clients may see them."""
        return payload


class CallRules:
    """What a config says of the calls of one server; what it does not say is None, or empty."""

    def __init__(self, presentation: Presentation, server: str) -> None:
        rules = presentation.rules
        self.overrides = Overrides(rules.overrides) if rules.overrides else None
        self.sets: dict[str, RuleSet] = dict(_compile(presentation, server))


def _compile(presentation: Presentation, server: str) -> Iterator[tuple[str, RuleSet]]:
    for feature in FEATURES:
        if feature.rules is not None and getattr(presentation.rules, feature.rules.key):
            yield feature.name, feature.find(feature.rules.compile)(presentation, server)
