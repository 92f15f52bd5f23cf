"""Prints an import: tables, the difference, warnings and what to do next."""

from __future__ import annotations

from collections.abc import Iterable

from dynamic_mcp.cli.output import Output
from dynamic_mcp.importer.convert.plan import Action, Plan, count_actions
from dynamic_mcp.importer.model import Notice, Source

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def show_readings(out: Output, plan: Plan) -> None:
    """Print what each file holds, and what an import would do with it."""
    if out.is_json_requested or not out.is_terminal:
        out.print_json(plan.to_json())
        return
    rows: list[list[str]] = []
    for reading in plan.readings:
        source = reading.source
        counts = count_actions([item for item in plan.items if item.server.source == source])
        changed = counts[Action.UPDATE] + counts[Action.CONFLICT]
        numbers = [str(len(reading.servers)), str(counts[Action.NEW]), str(counts[Action.SAME]), str(changed)]
        file = f"{source.file}: {reading.error}" if reading.error else str(source.file)
        rows.append([source.tool, source.scope.value, *numbers, file])
    out.print_table(["TOOL", "SCOPE", "SERVERS", "NEW", "SAME", "CHANGED", "FILE"], rows)


def show_diff(out: Output, plan: Plan) -> None:
    """Print the difference that would be written, without secrets."""
    lines = list(plan.diff())
    if not lines:
        out.say(f"`{plan.output}` would not change")
    for line in lines:
        if out.is_terminal:
            out.print_line(line, _STYLES.get(line[:1], ""))
        else:
            out.print_text(line)
    if plan.variables:
        out.say(f"`{plan.env_file}` would get {', '.join(plan.variables)}")


def show_warnings(out: Output, plan: Plan) -> None:
    """Print what is lost, what could not be read, and what no longer exists."""
    show_notices(out, plan.warnings)
    for error in plan.errors:
        out.say(f"error: {error}", "red")
    for remark in plan.remarks:
        out.say(f"note: {remark}")


def show_notices(out: Output, notices: Iterable[Notice]) -> None:
    """Print what is lost, one line for each field."""
    for notice in notices:
        out.say(f"warning: {notice}", "yellow")


def show_summary(out: Output, plan: Plan, *, is_exposed: bool) -> None:
    """Print what was done and what to do next."""
    counts = count_actions(plan.items)
    parts = [f"{number} {action}" for action, number in counts.items() if number]
    summary = f"{plan.output}: " + (", ".join(parts) or "no servers")
    out.say(summary if plan.is_changed or plan.variables else f"{summary}; nothing to write")
    show_actions(out, plan)
    if is_exposed:
        out.say(f"warning: `{plan.output}` is in a git work tree that does not ignore it", "yellow")
    if plan.variables:
        out.say(f"secrets are in `{plan.env_file}`: {', '.join(plan.variables)}")
    if plan.is_changed:
        out.say("next: `dynamic-mcp install TOOL` connects your AI tool")


def show_actions(out: Output, plan: Plan) -> None:
    """Print what happens to each server, which variables to set, and what to do about secrets."""
    for item in plan.items:
        if item.action not in (Action.SAME, Action.SKIP):
            choice = f" ({item.choice})" if item.choice else ""
            origin = _format_origin(item.server.source, item.server.name, item.name)
            fields = f", which differ in {', '.join(item.conflicts)}" if item.conflicts else ""
            out.say(f"  {item.action}{choice}: {item.name}{origin}{fields}")
        elif item.action is Action.SAME and item.reason:
            out.say(f"  same: {item.server.name}{_format_source(item.server.source)}, which {item.reason}")
        elif item.reason:
            out.say(f"  skipped: {item.server.name}{_format_source(item.server.source)}: {item.reason}")
    for name, servers in plan.exports.items():
        out.say(f"set the variable {name} (for {', '.join(servers)})")
    if plan.find_secrets():
        out.say("hint: `--secrets env` moves the secrets into a private file")


def _format_origin(source: Source, found: str, name: str) -> str:
    return _format_source(source) + (f", where it is `{found}`" if found != name else "")


def _format_source(source: Source) -> str:
    return f" from {source.tool} ({source.scope.value})"
