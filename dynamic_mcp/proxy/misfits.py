"""Arguments that do not fit a tool's schema: whether they are sent, and what is added if the server refuses them.

The server judges. A call is refused before it is sent only if the config says so, or where something of ours judges
it: by rules that must know how the server reads the arguments, or by a schema that is not the server's.
"""

from __future__ import annotations

from msgspec import structs

from dynamic_mcp.config.access import AccessKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.view import GroupView
from dynamic_mcp.tools import results
from dynamic_mcp.tools.arguments import Misfit

_INTRODUCTION = "[dynamic-mcp] the arguments do not fit the tool, which may be the reason:"


def must_fit(group: GroupView, tool: str) -> bool:
    """Return whether arguments of a tool, by the name that is shown, are only sent if they fit its schema."""
    chosen = group.presentation.answers.validate
    return chosen == "strict" or (chosen is None and _is_judged(group, tool))


def explain(answer: Frame, misfit: Misfit, group: GroupView, tool: str) -> Frame:
    """Return an error of a tool, by the name that is shown, followed by what does not fit; a success unchanged."""
    if not results.is_error(answer.result):
        return answer
    words = _present(f"{_INTRODUCTION}\n{misfit.describe()}", group, group.own_name(tool))
    return structs.replace(answer, result=results.add_to_error(answer.result, words))


def _is_judged(group: GroupView, tool: str) -> bool:
    """Return whether a rule on calls, an access rule, a user or a schema of ours judges the arguments of a tool."""
    own_name = group.own_name(tool)
    if _has_own_schema(group, tool):
        return True
    if any(each.judges(own_name) for each in group.call_rules.values()):
        return True
    if group.rules is None:
        return False
    decision = group.judge(AccessKind.TOOL, own_name).settled
    return decision is None or decision.must_ask


def _has_own_schema(group: GroupView, tool: str) -> bool:
    """Return whether a rule or a plug-in has given a tool other arguments than its server."""
    overridden, whole, shown = group.find_shown(tool), group.group.catalog, group.catalog
    if overridden is not None and overridden.changes_arguments:
        return True
    if whole is None or shown is None:
        return False
    before = whole.tools.get(tool, wire.EMPTY_OBJECT) if overridden is None else overridden.entry
    schemas = (wire.member(each, "inputSchema") for each in (before, shown.tools.get(tool, before)))
    return len(set(map(bytes, schemas))) > 1


def _present(words: str, group: GroupView, tool: str) -> str:
    """Return our words as the server's are shown: they may repeat what the model wrote."""
    for each in group.call_rules.values():
        words = each.present_text(tool, words)
    return words
