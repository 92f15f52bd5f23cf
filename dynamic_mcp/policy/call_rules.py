"""The rules on the calls of one server, compiled once for all clients with the same view of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dynamic_mcp.config.access import ToolAccess
from dynamic_mcp.config.rules import Rules
from dynamic_mcp.features.table import FEATURES
from dynamic_mcp.policy.caching import CacheRules
from dynamic_mcp.policy.guards import Guards
from dynamic_mcp.policy.overrides import Overrides
from dynamic_mcp.policy.redact import redactor_for


class RuleSet:
    """The rules of one feature on the calls of one server."""


class CallRules:
    """What a config says of the calls of one server; what it does not say is None, or empty."""

    def __init__(self, rules: Rules, server: str, access: ToolAccess) -> None:
        self.overrides = Overrides(rules.overrides) if rules.overrides else None
        self.guards = Guards(rules.guards, server) if rules.guards else None
        self.cache = CacheRules(rules, server, access) if rules.cache else None
        self.redactor = redactor_for(rules.redact) if rules.redact else None
        self.sets: Mapping[str, RuleSet] = dict(_compile(rules, server))


def _compile(rules: Rules, server: str) -> Iterator[tuple[str, RuleSet]]:
    for feature in FEATURES:
        if feature.rules is not None and (own := getattr(rules, feature.rules.key)):
            yield feature.name, feature.find(feature.rules.compiled)(own, server)
