"""Decides one request as a serving proxy would, and says which rule decides, and why the others do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Raw

from dynamic_mcp.config.access import DEFAULT, DEFAULT_TEXT, AccessKind, AccessRule, Effect
from dynamic_mcp.config.resolved import Config, Presentation
from dynamic_mcp.identity import Authentication
from dynamic_mcp.policy.access import AccessRules, Approve, Decision, GroupRules, Policy
from dynamic_mcp.policy.rule import AccessTarget
from dynamic_mcp.proxy.profiles import choose, narrow


@dataclass(frozen=True)
class ConsideredRule:
    """A rule of the subject's roles; `mismatch` is the reason why it does not match, empty if it matches."""

    id: str
    effect: str
    about: str
    matches: bool
    mismatch: str


@dataclass(frozen=True)
class AccessCase:
    """One request and the inputs of its decision. `policy` is None for a config without access rules."""

    group: str
    kind: AccessKind
    name: str
    access: str
    who: Authentication
    arguments: Raw | None
    policy: Policy | None

    @property
    def rules(self) -> AccessRules | None:
        return self.policy.rules_for(self.who) if self.policy is not None else None

    def decide(self) -> tuple[Decision, bool, bool]:
        """Return the decision, whether the item is listed, and whether the decision depends on the arguments."""
        if self.rules is None:
            return Decision(Effect.ALLOW), True, False
        group_rules = self.rules.for_group(self.group)
        judgement = group_rules.judge(self.kind, self.name, self.access)
        return judgement.decide(self.arguments), judgement.is_visible, judgement.settled is None

    def considered(self) -> list[ConsideredRule]:
        """Return the rules of the subject's roles, and what requires approval."""
        if self.policy is None or self.rules is None:
            return []
        group_rules = self.rules.for_group(self.group)
        reasons = self._reasons(group_rules)
        rules = [rule for role in sorted(self.rules.roles) for rule in self.policy.rules[role]]
        considered = [
            ConsideredRule(rule.source.id, rule.source.effect.value, describe_rule(rule.source), not why, why)
            for rule in rules
            for why in (reasons.get(id(rule), "its servers do not match"),)
        ]
        if group_rules.approve is not None:
            considered.append(self._consider_approve(group_rules.approve))
        return considered

    def _consider_approve(self, approve: Approve) -> ConsideredRule:
        """Return the `approve` rule of the server, which asks about calls that the rules of roles allow."""
        mismatch = (
            "" if approve.is_about(AccessTarget(self.group, self.kind, self.name)) else "its tools do not match"
        )
        if not mismatch and self.decide()[0].effect is Effect.DENY:
            mismatch = "nothing allows it, so there is nothing to approve"
        about = f"tools {', '.join(approve.globs)} of {self.group}, if allowed"
        return ConsideredRule(approve.id, Effect.ASK.value, about, not mismatch, mismatch)

    def _reasons(self, group_rules: GroupRules) -> dict[int, str]:
        return {id(rule): why for rule, why in group_rules.explain(self.kind, self.name, self.access, self.arguments)}

    def explain(self, decision: Decision) -> str:
        """Return why it was decided so, in one line; empty if that is no more than the rule."""
        if self.policy is None:
            return "the config has no access rules"
        if decision.scopes:
            return f"the token lacks the scope `{'` or `'.join(decision.scopes)}`"
        if decision.rule == DEFAULT:
            roles = self.rules.roles if self.rules is not None else ()
            if not roles and self.who.roles:
                return f"`{'`, `'.join(self.who.roles)}` has no rules, so none applies"
            return "no rule matches" if roles else "the subject has no role, so no rule applies"
        about = next((each.about for each in self.considered() if each.id == decision.rule), "")
        if decision.allowed_by in ("", decision.rule):
            return about
        return f"{about}; allowed by {DEFAULT_TEXT if decision.allowed_by == DEFAULT else decision.allowed_by}"


def find_hiding(config: Config, case: AccessCase) -> str:
    """Return what hides the item from the subject, whatever the rules say: a profile, or the config; else empty."""
    roles = case.rules.roles if case.rules is not None else ()
    profile = choose(config.profiles, None, (*case.who.roles, *roles))
    narrowed = config.presentations if profile is None else narrow(config.presentations, profile)
    if profile is not None and not _shows(narrowed, case):
        return f"the profile `{profile.name}`, which follows from the roles, does not show it"
    if not _shows(config.presentations, case):
        return f"the config hides it for everybody, by `features` or `tools` of `{case.group}`"
    return ""


def describe_rule(rule: AccessRule) -> str:
    """Describe a rule in one line: `tools delete_* of github; only write`."""
    kinds = {"tools": rule.tools, "prompts": rule.prompts, "resources": rule.resources}
    if all(globs == ("*",) for globs in kinds.values()):
        what = "everything"
    else:
        what = " and ".join(f"{kind} {', '.join(globs)}" for kind, globs in kinds.items() if globs)
    parts = [f"{what or 'nothing'} of {', '.join(rule.servers)}"]
    if rule.only is not None:
        parts.append(f"only {rule.only}")
    if rule.arguments:
        parts.append(f"arguments {', '.join(condition.path for condition in rule.arguments)}")
    if rule.when is not None:
        parts.append("when …")
    if rule.scope is not None:
        parts.append(f"scope {rule.scope}")
    return "; ".join(parts)


def _shows(presentations: Mapping[str, Presentation], case: AccessCase) -> bool:
    shown = presentations.get(case.group)
    if shown is None or not shown.features.allows(f"{case.kind.value}s"):
        return False
    return case.kind is not AccessKind.TOOL or shown.tools.allows(case.name)
