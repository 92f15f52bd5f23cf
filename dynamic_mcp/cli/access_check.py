"""Decides one request as a serving proxy would, and shows the rule that decides."""

from __future__ import annotations

from dynamic_mcp.cli.access_catalogs import known_catalogs
from dynamic_mcp.cli.access_subject import AccessQuery
from dynamic_mcp.cli.invocation import Invocation, unknown_group
from dynamic_mcp.config.access import AccessKind, Effect
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.access_explanation import AccessCase, find_hiding
from dynamic_mcp.policy.access import Decision, Policy
from dynamic_mcp.policy.classify import access_of

_EXIT_CODES = {Effect.ALLOW: 0, Effect.DENY: 1, Effect.ASK: 3}
_STYLES = {Effect.ALLOW: "green", Effect.DENY: "red", Effect.ASK: "yellow"}


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


def _read_case(context: Invocation, question: AccessQuery) -> AccessCase:
    config = context.read_config()
    if question.group not in config.presentations:
        raise unknown_group(question.group, config)
    kind, name = question.target
    access = _class_of(context, config, question.group, name) if kind is AccessKind.TOOL else "read"
    policy = Policy(config.access) if config.access is not None else None
    who = question.authentication(config)
    case = AccessCase(question.group, kind, name, access, who, question.raw_arguments, policy)
    hiding = find_hiding(config, case)
    if hiding:
        context.out.say(hiding)
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


def _decide(context: Invocation, case: AccessCase) -> tuple[Decision, dict[str, object]]:
    decision, is_listed, depends = case.decide()
    if depends and case.arguments is None:
        context.out.say("the decision depends on the arguments; `--args` gives them")
    rules = case.rules
    facts: dict[str, object] = {
        "effect": decision.effect.value,
        "rule": decision.rule,
        "allowed_by": decision.allowed_by,
        "reason": case.explain(decision),
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


def _show_decision(context: Invocation, decision: Decision, reason: str) -> None:
    why = f"  ({reason})" if reason else ""
    context.out.print_line(f"{decision.effect.value}  {decision.rule}{why}", _STYLES[decision.effect])
