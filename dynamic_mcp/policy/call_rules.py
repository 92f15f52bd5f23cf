"""The rules on the calls of one server, compiled once for all clients with the same view of it."""

from __future__ import annotations

from dynamic_mcp.config.access import ToolAccess
from dynamic_mcp.config.rules import Rules
from dynamic_mcp.policy.caching import CacheRules
from dynamic_mcp.policy.guards import Guards
from dynamic_mcp.policy.limits import Limits
from dynamic_mcp.policy.overrides import Overrides
from dynamic_mcp.policy.redact import redactor_for


class CallRules:
    """What a config says of the calls of one server; what it does not say is None, or empty."""

    def __init__(self, rules: Rules, server: str, access: ToolAccess) -> None:
        self.overrides = Overrides(rules.overrides) if rules.overrides else None
        self.guards = Guards(rules.guards, server) if rules.guards else None
        self.limits = Limits(rules.limits, server) if rules.limits else None
        self.cache = CacheRules(rules, server, access) if rules.cache else None
        self.redactor = redactor_for(rules.redact) if rules.redact else None
