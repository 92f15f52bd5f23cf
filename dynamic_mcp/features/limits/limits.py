"""Decides whether the rate and the concurrency of tool calls are within limits: token buckets and their rules.

A bucket is stored as the time at which it will be full again, so an unused one needs no memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from heapq import nsmallest

from msgspec import Struct

from dynamic_mcp.config.resolved import Presentation
from dynamic_mcp.features.limits.config import Limit
from dynamic_mcp.mcp import wire
from dynamic_mcp.policy.call_rules import RuleSet
from dynamic_mcp.policy.globs import Globs, fold
from dynamic_mcp.system.bounded import BoundedDict, NameMemo

MAX_BUCKETS = 50_000
# Whose keys are kept for each tool.
_MAX_PERSONS = 100
# A longer name is counted by its hash.
_LONGEST_NAME = 200
# The tolerance for rounding errors of times.
_TOLERANCE_S = 1e-9


class CallLimit(Struct, frozen=True):
    """A limit on calls. `key` stays the same while the rule stays the same; `id` is its place in the config."""

    key: str
    id: str
    per_person: bool
    per_tool: bool
    needs_store: bool  # no call passes while replicas that share a store cannot use it

    def name_for(self, person: Hashable, tool: str) -> Hashable:
        """Return the key of the count that a call belongs to."""
        if not (self.per_person or self.per_tool):
            return self.key
        return (self.key, person if self.per_person else None, _common_name(tool) if self.per_tool else None)


class RateLimit(CallLimit, frozen=True):
    """A rate limit for tools: one call per `interval_s`, with bursts that make up for `slack_s`."""

    interval_s: float
    slack_s: float


class ConcurrencyLimit(CallLimit, frozen=True):
    """A limit on concurrent calls of tools. `key` stays the same when `places` changes."""

    places: int


class CountNames:
    """The keys of the counts of some limits for calls of one tool, in their order; kept for the latest persons."""

    def __init__(self, limits: Sequence[CallLimit], tool: str) -> None:
        self._limits = limits
        self._tool = tool
        self._found: BoundedDict[Hashable, tuple[Hashable, ...]] = BoundedDict(_MAX_PERSONS)

    def find(self, person: Hashable) -> tuple[Hashable, ...]:
        names = self._found.get(person)
        if names is None:
            names = self._found[person] = tuple(each.name_for(person, self._tool) for each in self._limits)
        return names


def compile_rules(presentation: Presentation, server: str) -> LimitRules:
    """Return the limits of a server."""
    return LimitRules(presentation.rules_of("limits", Limit), server)


class LimitRules(RuleSet):
    """The limits of one server."""

    def __init__(self, limits: Iterable[Limit], server: str) -> None:
        self._all = [_CompiledLimit.of(limit, server) for limit in limits]
        self._find = NameMemo(self._match)

    def rates_for(self, tool: str) -> tuple[RateLimit, ...]:
        return self._find(tool)[0]

    def concurrency_for(self, tool: str) -> tuple[ConcurrencyLimit, ...]:
        """Return the concurrency limits of a tool, in the order in which places are taken.

        The narrowest comes first, so that a call that waits for a place of its user or tool holds no other. The
        order is the same for all tools, so that no two calls wait for each other.
        """
        return self._find(tool)[1]

    def _match(self, tool: str) -> tuple[tuple[RateLimit, ...], tuple[ConcurrencyLimit, ...]]:
        matching = [each for each in self._all if each.globs.matches_variant(tool)]
        rates = {each.rate.key: each.rate for each in reversed(matching) if each.rate is not None}
        limits: dict[str, ConcurrencyLimit] = {}
        for limit in (each.concurrency for each in matching):
            if limit is not None and (limit.key not in limits or limit.places < limits[limit.key].places):
                limits[limit.key] = limit
        return tuple(reversed(rates.values())), tuple(sorted(limits.values(), key=_order))


class _CompiledLimit(Struct, frozen=True):
    globs: Globs
    rate: RateLimit | None
    concurrency: ConcurrencyLimit | None

    @staticmethod
    def of(limit: Limit, server: str) -> _CompiledLimit:
        scope = [server, limit.tools, limit.per_person, limit.per_tool]
        counts = (limit.per_person, limit.per_tool, limit.without_store == "refuse")
        rate = concurrency = None
        if limit.rate is not None:
            key = wire.encode([*scope, limit.rate, limit.capacity]).decode()
            interval_s = 1 / limit.rate
            slack_s = interval_s * (limit.capacity - 1)
            rate = RateLimit(key, limit.id, *counts, interval_s, slack_s)
        if limit.concurrent is not None:
            key = wire.encode(scope).decode()
            concurrency = ConcurrencyLimit(key, limit.id, *counts, limit.concurrent)
        return _CompiledLimit(Globs(limit.tools), rate, concurrency)


def _order(limit: ConcurrencyLimit) -> tuple[bool, bool, str]:
    return not limit.per_person, not limit.per_tool, limit.key


class RateRefusal(Struct, frozen=True):
    """A refused call: the rule, and the seconds until the next call is allowed."""

    rule: str
    wait_s: float


class Buckets:
    """The buckets of all rules, at most `size`; beyond it, those nearest to full are forgotten."""

    def __init__(self, size: int = MAX_BUCKETS) -> None:
        self._size = size
        self._full_at: dict[Hashable, float] = {}

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, rates: Sequence[RateLimit], names: Sequence[Hashable], now: float) -> RateRefusal | None:
        """Consume from every bucket of a call at this clock reading, or from none if one of them refuses.

        `names` are the keys of its buckets.
        """
        refusal: RateRefusal | None = None
        taken: dict[Hashable, float] = {}
        find_full_at = self._full_at.get
        for rate, bucket in zip(rates, names):  # noqa: B905 - `strict` costs as much as a round
            full_at = find_full_at(bucket, now)
            if full_at < now:
                full_at = now
            wait_s = full_at - now - rate.slack_s
            if wait_s > _TOLERANCE_S and (refusal is None or wait_s > refusal.wait_s):
                refusal = RateRefusal(rate.id, wait_s)
            taken[bucket] = full_at + rate.interval_s
        if refusal is None:
            self._full_at.update(taken)
            if len(self._full_at) > self._size:
                self._forget(now)
        return refusal

    def _forget(self, now: float) -> None:
        """Forget the buckets that are full, and an eighth of the others if there are still too many."""
        self._full_at = {bucket: full_at for bucket, full_at in self._full_at.items() if full_at > now}
        excess = len(self._full_at) - self._size
        if excess > 0:
            for bucket in nsmallest(excess + self._size // 8, self._full_at, key=self._full_at.__getitem__):
                del self._full_at[bucket]


def _common_name(tool: str) -> str:
    """Return the same short name for all spellings that a server may accept for one tool."""
    name = fold(tool).strip()
    return name if len(name) <= _LONGEST_NAME else hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()
