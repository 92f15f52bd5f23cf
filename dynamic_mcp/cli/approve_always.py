"""`approve allow --always`: how to change the config so that a tool is called without asking. Nothing is written.

A rule that asks wins over one that allows, so it is the rule that asks which must leave the tool out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from dynamic_mcp.cli.output import Output
from dynamic_mcp.config import jsonc
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.observe.approvals import QueuedApproval
from dynamic_mcp.system.file_reader import read_bytes


def print_rule(out: Output, pending: QueuedApproval) -> None:
    """Print the part of the config that asks as it would be without this tool, and what to do with it."""
    document = _read(pending.config)
    found = _without_approve(document, pending) or _without_rule(document, pending)
    if found is None:
        out.say(f"the rule `{pending.rule}` asks; it is not in `{pending.config}` as it is now")
        return
    where, changed, notes = found
    out.say(f"nothing was written; to be asked no more, let `{where}` in `{pending.config}` be:")
    out.print_text(json.dumps(changed, indent=2, ensure_ascii=False))
    for note in notes:
        out.say(f"note: {note}")


# The path of what to change, its new value, and what to know about it.
_Change = tuple[str, object, list[str]]


def _read(config: str) -> Mapping[str, object]:
    try:
        document = jsonc.loads(read_bytes(Path(config)).decode())
    except (OSError, ValueError, ConfigError):  # it has changed since
        return {}
    return document if isinstance(document, dict) else {}


def _without_approve(document: Mapping[str, object], pending: QueuedApproval) -> _Change | None:
    """Return the globs of the tools to approve that do not match this one."""
    if pending.rule != f"mcpServers.{pending.group}.approve":
        return None
    own = _at(document, "mcpServers", pending.group, "approve")
    globs = own if isinstance(own, list) else _at(document, "settings", "approve")
    if not isinstance(globs, list):
        return None
    matching = [glob for glob in globs if fnmatchcase(pending.name.casefold(), str(glob).casefold())]
    wide = [glob for glob in matching if any(sign in str(glob) for sign in "*?[")]
    notes = [f"`{glob}` also asks for other tools; name those that should still be approved" for glob in wide]
    return pending.rule, [glob for glob in globs if glob not in matching], notes


def _without_rule(document: Mapping[str, object], pending: QueuedApproval) -> _Change | None:
    """Return the rule that asks, with a condition that leaves this tool out."""
    roles = _at(document, "settings", "access", "roles")
    for role, rules in roles.items() if isinstance(roles, dict) else ():
        for number, rule in enumerate(rules if isinstance(rules, list) else ()):
            if isinstance(rule, dict) and rule.get("id", f"roles.{role}[{number}]") == pending.rule:
                notes = [
                    "`when` needs the package `cel-expr-python`; naming the other tools in `tools` does without",
                    "another rule must allow the tool, unless `settings.access.default` does",
                ]
                return f"settings.access.roles.{role}[{number}]", _with_exception(rule, pending), notes
    return None


def _with_exception(rule: Mapping[str, object], pending: QueuedApproval) -> dict[str, object]:
    exception = f"!(server == {json.dumps(pending.group)} && name == {json.dumps(pending.name)})"
    when = rule.get("when")
    return {**rule, "when": f"({when}) && {exception}" if when else exception}


def _at(document: object, *path: str) -> object:
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document
