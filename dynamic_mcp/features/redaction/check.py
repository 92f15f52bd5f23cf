"""Checks redaction rules: those that match nothing, or too much."""

from __future__ import annotations

from collections.abc import Iterator

from dynamic_mcp.config.resolved import Config, SkillFolders
from dynamic_mcp.doctor.call_rules import check_globs, find_rules, tools_of
from dynamic_mcp.doctor.findings import Finding, KnownCatalogs, Level, warning
from dynamic_mcp.features.redaction.config import Redact
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.policy.patterns import compile_pattern


def check(config: Config, load_catalogs: KnownCatalogs) -> Iterator[Finding]:
    """Return the findings about `redact`."""
    for rule, servers in find_rules(config, "redact", Redact):
        if rule.pattern is not None and compile_pattern(rule.pattern).search("") is not None:
            what = "the pattern matches an empty text; each message is looked through, and empty matches stay"
            yield warning(f"{rule.id}.pattern", what, "write `+` for `*`")
        tools = tools_of(servers, load_catalogs())
        if tools is not None and rule.tools is not None:
            yield from check_globs(f"{rule.id}.tools", rule.tools, tools)
    yield from _check_skills(config, load_catalogs)


def _check_skills(config: Config, load_catalogs: KnownCatalogs) -> Iterator[Finding]:
    """Return a note on servers with skills: a digest of what was replaced would not fit."""
    servers = {name for _, names in find_rules(config, "redact", Redact) for name in names}
    catalogs = load_catalogs() if servers else {}
    for group in config.groups:
        catalog = catalogs.get(group.name)
        has_skills = isinstance(group.upstream, SkillFolders) or (catalog and catalog.declares(ListKind.SKILLS))
        if group.name in servers and has_skills:
            what = "nothing is replaced in files of skills, which have digests of their bytes"
            yield Finding(Level.NOTE, f"mcpServers.{group.name}", what, "hide a skill by access rules instead")
