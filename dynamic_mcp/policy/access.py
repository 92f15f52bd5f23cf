"""Decides by the access rules of the config, in the same way for lists and for calls.

`deny` wins over `ask`, `ask` over `allow`, and `allow` over the default, in any order of the rules. `approve` of a
server comes last: it asks about allowed tools, and allows nothing. A rule that cannot be evaluated counts as a match
if it denies or asks, and as none if it allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from msgspec import Raw, Struct
from msgspec.structs import replace

from dynamic_mcp.config.access import DEFAULT, LOCAL_NAME, Access, AccessKind, Effect
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.policy.arguments import Arguments
from dynamic_mcp.policy.globs import Globs
from dynamic_mcp.policy.rule import AccessSubject, AccessTarget, CompiledRule
from dynamic_mcp.system.bounded import BoundedDict

_PRECEDENCE = {Effect.DENY: 0, Effect.ASK: 1, Effect.ALLOW: 2}
# The number of cached sets of rules; there is one for each combination of roles.
_MAX_SETS = 10_000


class Decision(Struct, frozen=True):
    """The effect of the rules on one request, and the deciding rule; `scopes` are those that would have been enough.

    `allowed_by` is the rule that allows it, perhaps after approval; empty if none does.
    """

    effect: Effect
    rule: str = DEFAULT
    scopes: tuple[str, ...] = ()
    allowed_by: str = ""

    @property
    def must_ask(self) -> bool:
        return self.effect is Effect.ASK


class Judgement(Struct, frozen=True):
    """The judgement of one object by the rules. `rules` match it regardless of its arguments; the first counts.

    `lacking` are scopes with which another rule would allow it; `settled` None waits for the arguments. `approve` is
    the place in the config that requires approval of its use; empty if none does.
    """

    rules: tuple[CompiledRule, ...]
    target: AccessTarget
    caller: AccessSubject
    default: Effect
    lacking: tuple[str, ...]
    approve: str = ""
    settled: Decision | None = None

    @property
    def is_visible(self) -> bool:
        """Return whether it is allowed with some arguments, after approval, or with more scopes."""
        if self.settled is not None:
            return self.settled.effect is not Effect.DENY or bool(self.settled.scopes)
        may_allow = any(rule.source.effect is not Effect.DENY for rule in self.rules)
        return may_allow or bool(self.lacking) or self.default is Effect.ALLOW

    def decide(self, arguments: Raw | None) -> Decision:
        """Return the decision for these arguments."""
        return self.settled or self._decide(arguments)

    def _decide(self, arguments: Raw | None) -> Decision:
        parsed = Arguments(arguments)
        for rule in self.rules:
            if rule.accepts(self.target, self.caller, parsed):
                return self._decide_by(rule.source.effect, rule.source.id)
        return self._decide_by(self.default, DEFAULT)

    def _decide_by(self, effect: Effect, rule: str) -> Decision:
        if effect is Effect.DENY:
            return Decision(effect, rule, self.lacking if rule == DEFAULT else ())
        if effect is Effect.ALLOW and self.approve:
            return Decision(Effect.ASK, self.approve, allowed_by=rule)
        return Decision(effect, rule, allowed_by=rule)


class Approve:
    """The tools of one server that a user must approve, for all callers."""

    def __init__(self, server: str, globs: tuple[str, ...]) -> None:
        self.id = f"mcpServers.{server}.approve"
        self.globs = globs
        self._compiled = Globs(globs)

    def is_about(self, target: AccessTarget) -> bool:
        """Return whether a tool needs approval. Other spellings of its name match too."""
        return target.kind is AccessKind.TOOL and self._compiled.matches_variant(target.name)


class GroupRules:
    """The rules of one set of roles for one group; `approve` requires approval of tools that they allow."""

    def __init__(
        self,
        group: str,
        rules: tuple[CompiledRule, ...],
        default: Effect,
        caller: AccessSubject,
        approve: Approve | None = None,
    ) -> None:
        self.group = group
        self.approve = approve
        self._rules = rules
        self._default = default
        self._caller = caller

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GroupRules) and self.content == other.content

    def __hash__(self) -> int:
        return hash(self.group)

    @property
    def content(self) -> tuple[object, ...]:
        """All that its decisions follow from."""
        caller = self._caller if any(rule.uses_caller for rule in self._rules) else None
        rules = [(rule.source, rule.lacks_scope(self._caller)) for rule in self._rules]
        return self.group, rules, self._default, caller, None if self.approve is None else self.approve.globs

    @cached_property
    def is_visible(self) -> bool:
        """Return whether the rules alone may allow anything of the group."""
        return any(self._may_allow(kind) for kind in AccessKind)

    @cached_property
    def allows_everything(self) -> bool:
        """Return whether the rules do not restrict the group at all."""
        if self.approve is not None or any(rule.source.effect is not Effect.ALLOW for rule in self._rules):
            return False
        if self._default is Effect.ALLOW:
            return True
        return any(rule.is_about_everything and not rule.lacks_scope(self._caller) for rule in self._rules)

    @cached_property
    def needs_classes(self) -> bool:
        """Return whether any rule depends on whether a tool only reads."""
        return any(rule.source.only is not None or rule.uses_class for rule in self._rules)

    def judge(self, kind: AccessKind, name: str, access: str = "read") -> Judgement:
        """Judge a tool or prompt, by the name that its server gives it, or a resource, by its URI."""
        return self._judge(AccessTarget(self.group, kind, name, access))

    def may_see_resource(self, uri: str) -> bool:
        """Return whether a resource may be listed: it is allowed, perhaps after approval or with more scopes."""
        return self.judge(AccessKind.RESOURCE, uri).is_visible

    def shows_template(self, template: str) -> bool:
        """Return whether some URI of a template may be allowed."""
        rules = [rule for rule in self._rules if rule.is_about(AccessKind.RESOURCE)]
        if any(rule.covers_template(template) for rule in rules if rule.source.effect is Effect.DENY):
            return False
        if self._default is Effect.ALLOW:
            return True
        return any(rule.may_match_template(template) for rule in rules if rule.source.effect is not Effect.DENY)

    def explain(
        self, kind: AccessKind, name: str, access: str, arguments: Raw | None
    ) -> Iterator[tuple[CompiledRule, str]]:
        """Yield each rule of the roles for this group, and why it does not match; empty if it matches."""
        target, parsed = AccessTarget(self.group, kind, name, access), Arguments(arguments)
        for rule in self._rules:
            yield rule, rule.find_mismatch(target, self._caller, parsed)

    def _judge(self, target: AccessTarget) -> Judgement:
        matching = [rule for rule in self._rules if rule.matches(target, self._caller)]
        lacking = dict.fromkeys(rule.source.scope or "" for rule in matching if rule.lacks_scope(self._caller))
        rules = _in_precedence(rule for rule in matching if not rule.lacks_scope(self._caller))
        approve = self.approve.id if self.approve is not None and self.approve.is_about(target) else ""
        judgement = Judgement(rules, target, self._caller, self._default, tuple(lacking), approve)
        if target.kind is AccessKind.RESOURCE or not any(rule.needs_arguments for rule in rules):
            return replace(judgement, settled=judgement.decide(None))
        return judgement

    def _may_allow(self, kind: AccessKind) -> bool:
        rules = [rule for rule in self._rules if rule.is_about(kind)]
        if any(rule.source.effect is Effect.DENY and rule.is_about_all(kind) for rule in rules):
            return False
        return self._default is Effect.ALLOW or any(rule.source.effect is not Effect.DENY for rule in rules)


def _in_precedence(rules: Iterable[CompiledRule]) -> tuple[CompiledRule, ...]:
    """Return the rules in order of precedence, without those that an earlier rule always preempts."""
    ordered = sorted(rules, key=lambda rule: (_PRECEDENCE[rule.source.effect], rule.needs_arguments))
    found: dict[object, CompiledRule] = {}
    for rule in ordered:
        found.setdefault((rule.source.effect, rule.source.arguments, rule.source.when), rule)
        if not rule.needs_arguments:
            break
    return tuple(found.values())


class AccessRules:
    """The rules of one set of roles, by group."""

    def __init__(
        self,
        rules: tuple[CompiledRule, ...],
        default: Effect,
        caller: AccessSubject,
        approve: Mapping[str, Approve],
    ) -> None:
        self.roles = caller.roles
        self.default = default
        self._approve = approve
        self._rules = rules
        self._caller = caller
        self._groups: dict[str, GroupRules] = {}

    def for_group(self, name: str) -> GroupRules:
        found = self._groups.get(name)
        if found is None:
            rules = tuple(rule for rule in self._rules if rule.servers.matches(name))
            approve = self._approve.get(name)
            found = self._groups[name] = GroupRules(name, rules, self.default, self._caller, approve)
        return found


class Policy:
    """All rules of a config. Each set of roles is compiled once, for all clients that have it."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._compiled = {role: tuple(map(CompiledRule, rules)) for role, rules in access.roles.items()}
        self._by_group = [(Globs((glob,)), roles) for glob, roles in access.roles_from.map.items()]
        self._by_principal: dict[Principal, tuple[str, ...]] = {}
        for name, principals in access.principals.items():
            for each in principals:
                self._by_principal[each] = self._by_principal.get(each, ()) + access.people[name]
        self._approve = {name: Approve(name, globs) for name, globs in access.approve.items()}
        self._sets: BoundedDict[object, AccessRules] = BoundedDict(_MAX_SETS)

    @property
    def rules(self) -> Mapping[str, tuple[CompiledRule, ...]]:
        return self._compiled

    def rules_for(self, authentication: Authentication) -> AccessRules:
        """Return the rules for a client: the same object for all clients with the same rights."""
        roles = self.roles_of(authentication)
        rules = tuple(rule for role in sorted(roles) for rule in self._compiled[role])
        default = self.access.default or (Effect.ALLOW if authentication.is_local else Effect.DENY)
        caller = AccessSubject(authentication, roles)
        scopes = frozenset(rule.source.scope for rule in rules if rule.lacks_scope(caller))
        key = (roles, default, scopes, authentication if any(rule.uses_caller for rule in rules) else None)
        found = self._sets.get(key)
        if found is None:
            found = self._sets[key] = AccessRules(rules, default, caller, self._approve)
        return found

    def roles_of(self, authentication: Authentication) -> frozenset[str]:
        """Return the defined roles of a client: those of its credential, of its groups, and of its principal."""
        return frozenset(role for role in self._named_roles(authentication) if role in self._compiled)

    def _named_roles(self, authentication: Authentication) -> Iterable[str]:
        yield from authentication.roles
        for group in authentication.claim(self.access.roles_from.claim):
            for globs, roles in self._by_group:
                if globs.matches(group):
                    yield from roles
        yield from self._by_principal.get(authentication.principal, ())
        subject = LOCAL_NAME if authentication.is_local else authentication.principal.subject
        if (authentication.is_local or subject != LOCAL_NAME) and subject not in self.access.principals:
            yield from self.access.people.get(subject, ())
