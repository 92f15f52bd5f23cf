"""What is shown of an import: tables, the difference, warnings and what to do next."""

from __future__ import annotations

from collections.abc import Iterable

from dynamic_mcp.cli.output import Output
from dynamic_mcp.importer.convert.plan import Action, Plan, count_actions
from dynamic_mcp.importer.model import Notice, Source

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def show_readings(out: Output, made: Plan) -> None:
    """Show what was found, file by file, and what an import would make of it."""
    if out.asked_for_json or not out.is_terminal:
        out.json(made.to_json())
        return
    rows: list[list[str]] = []
    for reading in made.readings:
        source = reading.source
        counts = count_actions([item for item in made.items if item.server.source == source])
        changed = counts[Action.UPDATE] + counts[Action.CONFLICT]
        numbers = [str(len(reading.servers)), str(counts[Action.NEW]), str(counts[Action.SAME]), str(changed)]
        file = f"{source.file}: {reading.error}" if reading.error else str(source.file)
        rows.append([source.tool, source.scope.value, *numbers, file])
    out.table(["TOOL", "SCOPE", "SERVERS", "NEW", "SAME", "CHANGED", "FILE"], rows)


def show_diff(out: Output, made: Plan) -> None:
    """Show the difference that would be made, secrets hidden."""
    lines = list(made.diff())
    if not lines:
        out.words(f"`{made.output}` would not change")
    for line in lines:
        if out.is_terminal:
            out.line(line, _STYLES.get(line[:1], ""))
        else:
            out.text(line)
    if made.variables:
        out.words(f"`{made.env_file}` would get {', '.join(made.variables)}")


def show_warnings(out: Output, made: Plan) -> None:
    """Say what is lost, what could not be read, and what is no longer there."""
    show_notices(out, made.warnings)
    for error in made.errors:
        out.words(f"error: {error}", "red")
    for remark in made.remarks:
        out.words(f"note: {remark}")


def show_notices(out: Output, notices: Iterable[Notice]) -> None:
    """Say what is lost, a line for each field."""
    for notice in notices:
        out.words(f"warning: {notice}", "yellow")


def show_done(out: Output, made: Plan, *, is_exposed: bool) -> None:
    """Say what was done, and what is to be done now."""
    counts = count_actions(made.items)
    words = [f"{number} {action}" for action, number in counts.items() if number]
    done = f"{made.output}: " + (", ".join(words) or "no servers")
    out.words(done if made.is_changed or made.variables else f"{done}; nothing to write")
    show_to_do(out, made)
    if is_exposed:
        out.words(f"warning: `{made.output}` is in a git work tree that does not ignore it", "yellow")
    if made.variables:
        out.words(f"secrets are in `{made.env_file}`: {', '.join(made.variables)}")
    if made.is_changed:
        out.words("next: `dynamic-mcp install TOOL` connects your AI tool")


def show_to_do(out: Output, made: Plan) -> None:
    """Say what becomes of each server, which variables a person has to set, and what can be done about secrets."""
    for item in made.items:
        if item.action not in (Action.SAME, Action.SKIP):
            choice = f" ({item.choice})" if item.choice else ""
            origin = _origin(item.server.source, item.server.name, item.name)
            fields = f", which differ in {', '.join(item.conflicts)}" if item.conflicts else ""
            out.words(f"  {item.action}{choice}: {item.name}{origin}{fields}")
        elif item.action is Action.SAME and item.reason:
            out.words(f"  same: {item.server.name}{_from(item.server.source)}, which {item.reason}")
        elif item.reason:
            out.words(f"  skipped: {item.server.name}{_from(item.server.source)}: {item.reason}")
    for name, servers in made.exports.items():
        out.words(f"to set: {name} (for {', '.join(servers)})")
    if made.find_secrets():
        out.words("hint: `--secrets env` moves the secrets into a private file")


def _origin(source: Source, found: str, name: str) -> str:
    return _from(source) + (f", where it is `{found}`" if found != name else "")


def _from(source: Source) -> str:
    return f" from {source.tool} ({source.scope.value})"
