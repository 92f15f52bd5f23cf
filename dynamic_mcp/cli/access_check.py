"""Decides one request as a serving proxy would, and shows the rule that decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Raw

from dynamic_mcp.cli.access_catalogs import known_catalogs
from dynamic_mcp.cli.access_subject import AccessQuery
from dynamic_mcp.cli.invocation import Invocation, unknown_group
from dynamic_mcp.config.access import DEFAULT, DEFAULT_TEXT, AccessKind, AccessRule, Effect
from dynamic_mcp.config.resolved import Config, Presentation
from dynamic_mcp.identity import Authentication
from dynamic_mcp.policy.access import AccessRules, Approve, Decision, GroupRules, Policy
from dynamic_mcp.policy.classify import access_of
from dynamic_mcp.policy.rule import AccessTarget
from dynamic_mcp.proxy.profiles import choose, narrow

_EXIT_CODES = {Effect.ALLOW: 0, Effect.DENY: 1, Effect.ASK: 3}
_STYLES = {Effect.ALLOW: "green", Effect.DENY: "red", Effect.ASK: "yellow"}


@dataclass(frozen=True)
class ConsideredRule:
    """A rule of the subject's roles; `mismatch` is the reason why it does not match, empty if it matches."""

    id: str
    effect: str
    about: str
    matches: bool
    mismatch: str


@dataclass(frozen=True)
class _Case:
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


def check_access(context: Invocation, question: AccessQuery) -> int:
    """Print the decision; return its exit code. Raises InvalidArguments and NotFound."""
    case = _read_case(context, question)
    decision, facts = _decide(context, case)
    if context.out.is_json:
        context.out.print_json(facts)
    else:
        _show_decision(context, decision, str(facts["reason"]))
    return _EXIT_CODES[decision.effect]


def explain_access(context: Invocation, question: AccessQuery) -> int:
    """Print the decision and all considered rules; return its exit code."""
    case = _read_case(context, question)
    decision, facts = _decide(context, case)
    considered = case.considered()
    if context.out.is_json:
        context.out.print_json({**facts, "rules": considered})
        return _EXIT_CODES[decision.effect]
    _show_decision(context, decision, str(facts["reason"]))
    context.out.print_line(f"roles: {', '.join(case.rules.roles) if case.rules and case.rules.roles else 'none'}")
    if case.kind is AccessKind.TOOL:
        context.out.print_line(f"the tool counts as `{case.access}`")
    rows = [[each.id, each.effect, each.about, each.mismatch or "matches"] for each in considered]
    if rows:
        context.out.print_table(["RULE", "EFFECT", "ABOUT", "RESULT"], rows)
    return _EXIT_CODES[decision.effect]


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


def _read_case(context: Invocation, question: AccessQuery) -> _Case:
    config = context.read_config()
    if question.group not in config.presentations:
        raise unknown_group(question.group, config)
    kind, name = question.target
    access = _class_of(context, config, question.group, name) if kind is AccessKind.TOOL else "read"
    policy = Policy(config.access) if config.access is not None else None
    who = question.authentication(config)
    case = _Case(question.group, kind, name, access, who, question.raw_arguments, policy)
    _say_if_hidden(context, config, case)
    return case


def _class_of(context: Invocation, config: Config, group: str, tool: str) -> str:
    """Return `read` or `write`; an unknown tool counts as `write`."""
    shown = config.presentations[group]
    catalog = known_catalogs(config).get(group)
    entry = catalog.tools.get(tool) if catalog is not None else None
    if entry is None:
        unknown = (
            f"`{group}` is not known to have a tool `{tool}`"
            if catalog is not None
            else (f"the tools of group `{group}` are not known")
        )
        context.out.say(f"{unknown}; `{tool}` counts as one that writes")
        return "write"
    return access_of(tool, entry, shown.effects).access


def _say_if_hidden(context: Invocation, config: Config, case: _Case) -> None:
    """Print whether a profile or the config hides the item from the subject."""
    roles = case.rules.roles if case.rules is not None else ()
    profile = choose(config.profiles, None, (*case.who.roles, *roles))
    narrowed = config.presentations if profile is None else narrow(config.presentations, profile)
    if profile is not None and not _shows(narrowed, case):
        context.out.say(f"the profile `{profile.name}`, which follows from the roles, does not show it")
    elif not _shows(config.presentations, case):
        context.out.say(f"the config hides it for everybody, by `features` or `tools` of `{case.group}`")


def _shows(presentations: Mapping[str, Presentation], case: _Case) -> bool:
    shown = presentations.get(case.group)
    if shown is None or not shown.features.allows(f"{case.kind.value}s"):
        return False
    return case.kind is not AccessKind.TOOL or shown.tools.allows(case.name)


def _decide(context: Invocation, case: _Case) -> tuple[Decision, dict[str, object]]:
    decision, is_listed, depends = case.decide()
    if depends and case.arguments is None:
        context.out.say("the decision depends on the arguments; `--args` gives them")
    rules = case.rules
    facts: dict[str, object] = {
        "effect": decision.effect.value,
        "rule": decision.rule,
        "allowed_by": decision.allowed_by,
        "reason": _reason(case, decision),
        "is_listed": is_listed,
        "group": case.group,
        "kind": case.kind.value,
        "name": case.name,
        "subject": case.who.principal.subject,
        "roles": sorted(rules.roles) if rules is not None else [],
    }
    if case.kind is AccessKind.TOOL:
        facts["access"] = case.access
    if decision.scopes:
        facts["scopes"] = list(decision.scopes)
    return decision, facts


def _reason(case: _Case, decision: Decision) -> str:
    if case.policy is None:
        return "the config has no access rules"
    if decision.scopes:
        return f"the token lacks the scope `{'` or `'.join(decision.scopes)}`"
    if decision.rule == DEFAULT:
        roles = case.rules.roles if case.rules is not None else ()
        return "no rule matches" if roles else "the subject has no role, so no rule applies"
    about = next((each.about for each in case.considered() if each.id == decision.rule), "")
    if decision.allowed_by in ("", decision.rule):
        return about
    return f"{about}; allowed by {DEFAULT_TEXT if decision.allowed_by == DEFAULT else decision.allowed_by}"


def _show_decision(context: Invocation, decision: Decision, reason: str) -> None:
    why = f"  ({reason})" if reason else ""
    context.out.print_line(f"{decision.effect.value}  {decision.rule}{why}", _STYLES[decision.effect])
