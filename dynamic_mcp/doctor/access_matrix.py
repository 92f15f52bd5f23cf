"""The effect of the access rules on each tool, for each role and for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dynamic_mcp.config.access import DEFAULT, AccessKind, Effect
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.groups.catalog import Catalog
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.policy.access import Policy
from dynamic_mcp.policy.classify import access_of

DEPENDS = "depends"


def list_tools(config: Config, catalogs: Mapping[str, Catalog]) -> Iterator[tuple[str, str]]:
    """Yield the groups and names of the tools that the config shows."""
    for group, catalog in catalogs.items():
        shown = config.presentations[group]
        for tool in filter(shown.tools.allows, catalog.tools):
            yield group, tool


def class_of(config: Config, catalogs: Mapping[str, Catalog], group: str, tool: str) -> str:
    """Return `read` or `write`, as the rules take a known tool."""
    return access_of(tool, catalogs[group].tools[tool], config.presentations[group].effects).access


def effect_for_role(policy: Policy, role: str, group: str, tool: str, access: str) -> str:
    """Return the effect for a subject about which only this role is known."""
    authentication = as_role(role)
    judgement = policy.rules_for(authentication).for_group(group).judge(AccessKind.TOOL, tool, access)
    if judgement.settled is None:
        return DEPENDS if judgement.is_visible else Effect.DENY.value
    caller_rules = [rule for rule in policy.rules[role] if rule.uses_caller and rule.servers.matches(group)]
    return (
        DEPENDS
        if caller_rules and DEFAULT in (judgement.settled.rule, judgement.settled.allowed_by)
        else judgement.settled.effect.value
    )


def effect_for(policy: Policy, who: Authentication, group: str, tool: str, access: str) -> str:
    """Return the effect for somebody of whom all is known but the arguments."""
    judgement = policy.rules_for(who).for_group(group).judge(AccessKind.TOOL, tool, access)
    if judgement.settled is None:
        return DEPENDS if judgement.is_visible else Effect.DENY.value
    return judgement.settled.effect.value


def as_role(role: str) -> Authentication:
    """Return somebody about whom only this role is known."""
    return Authentication(Principal("token", ""), "bearer", (role,))
