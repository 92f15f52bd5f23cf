"""Checks limits: globs that match nothing."""

from __future__ import annotations

from collections.abc import Iterator

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.call_rules import check_globs, find_rules, tools_of
from dynamic_mcp.doctor.findings import Finding, KnownCatalogs
from dynamic_mcp.features.limits.config import Limit


def check(config: Config, load_catalogs: KnownCatalogs) -> Iterator[Finding]:
    """Return the findings about `limits`; a rule shared by several servers need not match each of them."""
    for rule, servers in find_rules(config, "limits", Limit):
        tools = tools_of(servers, load_catalogs())
        if tools is not None:
            yield from check_globs(f"{rule.id}.tools", rule.tools, tools)
