"""Decides which results may be cached: by which rule, and whether their tool is read-only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial

from msgspec import Raw, Struct, structs

from dynamic_mcp.config.resolved import Presentation
from dynamic_mcp.features.cache.config import Cache
from dynamic_mcp.mcp import wire
from dynamic_mcp.policy.call_rules import RuleSet, message_rules
from dynamic_mcp.policy.classify import access_of
from dynamic_mcp.policy.globs import Globs
from dynamic_mcp.system.bounded import MOST_NAMES, BoundedDict, NameMemo

# Longer names and URIs are not remembered.
_LONGEST_NAME = 500


class KeepRule(Struct, frozen=True):
    """A rule for caching results: for how many seconds, for which users, and how many bytes in total.

    `key` stays the same while the rule and the processing of results before caching stay the same.
    """

    key: str
    server: str
    ttl_s: float
    per_person: bool
    max_bytes: int


class CacheRules(RuleSet):
    """The cache rules of one server; the first that matches counts."""

    def __init__(self, presentation: Presentation, server: str) -> None:
        rules = list(zip(presentation.rules_of("cache", Cache), list_rules(presentation, server), strict=True))
        self._effects = presentation.effects
        self._tools = [(Globs(each.tools), rule) for each, rule in rules]
        self._resources = [(Globs(each.resources), rule) for each, rule in rules]
        self._tool_rules: NameMemo[str, KeepRule | None] = NameMemo(
            partial(_find, self._tools), longest=_LONGEST_NAME
        )
        self._resource_rules: NameMemo[str, KeepRule | None] = NameMemo(
            partial(_find, self._resources), longest=_LONGEST_NAME
        )
        self._definitions: BoundedDict[str, _Definition] = BoundedDict(MOST_NAMES)

    @property
    def has_common(self) -> bool:
        """Return whether results are cached for all users."""
        return any(not rule.per_person for _, rule in self._tools + self._resources)

    def for_tool(self, name: str) -> KeepRule | None:
        """Return the rule for a tool, without checking that it is read-only."""
        return self._tool_rules(name)

    def for_resource(self, uri: str) -> KeepRule | None:
        return self._resource_rules(uri)

    def digest_of_reader(self, name: str, definition: Raw) -> bytes | None:
        """Return the hash of a tool's definition from its server; None if the tool may write."""
        found = self._definitions.get(name)
        if found is None or found.raw is not definition:
            reads = access_of(name, definition, self._effects).access == "read"
            digest = hashlib.sha256(bytes(definition)).digest() if reads else None
            found = _Definition(definition, digest)
            if len(name) <= _LONGEST_NAME:
                self._definitions[name] = found
        return found.digest


class _Definition(Struct, frozen=True):
    raw: Raw
    digest: bytes | None


def list_rules(presentation: Presentation, server: str) -> list[KeepRule]:
    """Return the cache rules of a server, in the order of its config."""
    before = message_rules(presentation)
    return [_compile(each, server, before) for each in presentation.rules_of("cache", Cache)]


def _compile(cache: Cache, server: str, before: Sequence[object]) -> KeepRule:
    key = wire.encode([server, structs.replace(cache, id=""), before])
    return KeepRule(key.decode(), server, cache.ttl_s, cache.per_person, cache.max_bytes)


def _find(rules: Sequence[tuple[Globs, KeepRule]], name: str) -> KeepRule | None:
    return next((rule for globs, rule in rules if globs.matches(name)), None)
