"""Write the parts of the documents that come from the code, between `<!-- NAME -->` and `<!-- end of NAME -->`.

python docs/generate.py [--check]
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from dynamic_mcp import errors
from dynamic_mcp.cli.command_group import commands
from dynamic_mcp.cli.command_names import SECTIONS
from dynamic_mcp.config.schema import schema
from dynamic_mcp.groups.lifecycle import TRANSITIONS
from dynamic_mcp.importer.model import Machine, Scope
from dynamic_mcp.importer.tools import locations
from dynamic_mcp.importer.tools.catalog import TOOLS
from dynamic_mcp.observe.metrics import definitions
from dynamic_mcp.observe.telemetry import conventions
from dynamic_mcp.proxy.ruled_calls import ORDER

DOCS = Path(__file__).parent
PACKAGE = DOCS.parent / "dynamic_mcp"


def main() -> int:
    """Write every part again; with `--check`, only print which documents are out of date."""
    stale = 0
    for file in sorted(DOCS.glob("*.md")):
        text = file.read_text(encoding="utf-8")
        new = fill_in(text)
        if new != text:
            stale += 1
            print(f"{file.name} is out of date")
            if "--check" not in sys.argv:
                file.write_text(new, encoding="utf-8")
    return stale if "--check" in sys.argv else 0


def fill_in(text: str) -> str:
    """Return a document with its generated parts up to date."""

    def part(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- {name} -->\n{PARTS[name]()}\n<!-- end of {name} -->"

    return re.sub(r"<!-- ([a-z]+) -->\n.*?<!-- end of \1 -->", part, text, flags=re.DOTALL)


# --- the config ------------------------------------------------------------------------------------------------


def fields() -> str:
    """Return a table of the fields for each object of the config."""
    definitions: Mapping[str, Any] = schema()["$defs"]  # type: ignore[assignment]
    root = {"properties": schema()["properties"], "description": schema().get("description", "")}
    first = ["Program", "Remote", "CommandLine", "Settings"]
    order = [*first, *sorted(set(definitions) - {*first})]
    parts = [_object("The file", root)]
    titles = {"Program": "A server that is started", "Remote": "A server that is reached", "Settings": "`settings`"}
    titles["CommandLine"] = "A command line program"
    for name in order:
        title = titles.get(name, f"`{_field_of(name, definitions)}`")
        parts.append(_object(title, definitions[name]))
    return "\n\n".join(parts)


def _object(title: str, made: Mapping[str, Any]) -> str:
    required = made.get("required", ())
    rows = [
        f"| `{name}` | {_type(field)} | {_cell(field.get('description', '') + ' Required.' * (name in required))} |"
        for name, field in made["properties"].items()
    ]
    said = _cell(made.get("description", ""))
    return "\n".join([f"### {title}", "", said, "", "| field | form | meaning |", "|---|---|---|", *rows])


def _field_of(name: str, definitions: Mapping[str, Any]) -> str:
    """Return the field that an object stands under."""
    for made in definitions.values():
        for field, form in made["properties"].items():
            if f"/{name}" in str(form.get("$ref", "")) or any(f"/{name}" in str(p) for p in form.get("anyOf", ())):
                return str(field)
    return name


def _type(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if "$ref" in field:
        return "object"
    options = [_type(option) for option in field.get("anyOf", ()) if option.get("type") != "null"]
    if options:
        return " or ".join(dict.fromkeys(options))
    match field.get("type"):
        case "array":
            return f"list of {_type(field.get('items', {}))}s"
        case "object" | None:
            return "object"
        case "string" if "[hH]" in str(field.get("pattern", "")):
            return "duration"
        case "boolean":
            return "`true` or `false`"
        case kind:
            return str(kind)


# --- the states ------------------------------------------------------------------------------------------------


def states() -> str:
    """Return the diagram of a group's life."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> COLD"]
    for before, afters in TRANSITIONS.items():
        lines += [f"    {before.name} --> {after.name}" for after in sorted(afters, key=lambda state: state.name)]
    return "\n".join([*lines, "```"])


# --- the commands ----------------------------------------------------------------------------------------------


def usage() -> str:
    """Return a table of the commands."""
    rows = ["| command | what it does |", "|---|---|"]
    with click.Context(commands, info_name="dynamic-mcp") as context:
        for names in SECTIONS.values():
            for name in names:
                command = commands.get_command(context, name)
                assert command is not None
                words = " ".join(command.collect_usage_pieces(click.Context(command, info_name=name)))
                shown = f"dynamic-mcp {name} {words.replace('[OPTIONS]', '').strip()}".strip()
                rows.append(f"| `{_cell(shown)}` | {_cell(command.get_short_help_str(100))} |")
    return "\n".join(rows)


# --- the clients -----------------------------------------------------------------------------------------------


def clients() -> str:
    """Return where each tool keeps its own settings, on Linux."""
    machine = Machine(Path("/HOME"), Path("/PROJECT"), {}, "linux")
    rows = ["| tool | command | your own file | a project's file |", "|---|---|---|---|"]
    for tool in TOOLS:
        cells = []
        for scope in (Scope.USER, Scope.PROJECT):
            found = [str(file) for _, file in locations.list_candidates(tool, machine, (scope,))]
            shown = found[0].replace("/HOME", "~").replace("/PROJECT/", "") if found else ""
            cells.append(f"`{shown}`" if shown else "")
        if any(cells):
            rows.append(f"| {tool.title} | `dynamic-mcp install {tool.name}` | {cells[0]} | {cells[1]} |")
    return "\n".join(rows)


# --- the metrics -----------------------------------------------------------------------------------------------


def metrics() -> str:
    """Return a table of the metrics."""
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for each in definitions.ALL:
        labels = ", ".join(f"`{name}`" for name in each.labels)
        rows.append(f"| `{each.name}` | {each.kind.value} | {labels} | {_cell(each.description)} |")
    return "\n".join(rows)


# --- the messages ----------------------------------------------------------------------------------------------

ERRORS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
# The position of the message among the arguments of each class; 1 by default.
POSITION = {"DynamicMcpError": 0, "InvalidArguments": 0, "ConfigError": 2}
# errors.py makes the message of these from a kind and a name.
MADE_THERE = {"NotFound", "ResourceNotFound", "Disabled", "LoginNeeded"}


def messages() -> str:
    """Return a table of the messages in the code with their hints."""
    found = {message: hint for file in sorted(PACKAGE.rglob("*.py")) for message, hint in _raised(file) if message}
    said = [message for message in found if message.strip("… ")]
    rows = [
        f"| {_cell(message)} | {_cell(found[message])} |"
        for message in sorted(said, key=lambda text: text.strip("`… ").lower())
    ]
    return "\n".join(["| message | hint |", "|---|---|", *rows])


def _raised(file: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS):
            continue
        position = POSITION.get(node.func.id, 1)
        if node.func.id in MADE_THERE or len(node.args) <= position:
            continue
        hints = [keyword.value for keyword in node.keywords if keyword.arg == "hint"]
        yield template(node.args[position]), template(hints[0]) if hints else ""


def template(node: ast.expr) -> str:
    """Return the text of an expression, with `…` for what is only known at run time; empty if that is all of it."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(part.value if isinstance(part, ast.Constant) else "…" for part in parts)  # type: ignore[misc]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return (template(left) or "…") + (template(right) or "…")
    return ""


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


# --- telemetry -------------------------------------------------------------------------------------------------


def span_attributes() -> str:
    """Return a table of the attributes of spans and metrics."""
    places = {"both": "both", "server": "`SERVER`", "client": "`CLIENT`"}
    rows = [
        f"| `{name}` | {places[place]} | {'yes' if is_in_metrics else ''} | {meaning} |"
        for name, (place, is_in_metrics, meaning) in conventions.ATTRIBUTES.items()
    ]
    return "\n".join(["| attribute | spans | metrics | meaning |", "|---|---|---|---|", *rows])


def otel_metrics() -> str:
    """Return a table of the metrics for a collector, and their buckets."""
    rows = [f"| `{name}` | {meaning} |" for name, meaning in conventions.METRICS.items()]
    buckets = ", ".join(f"{bound:g}" for bound in conventions.BUCKETS)
    return "\n".join(["| metric | meaning |", "|---|---|", *rows, "", f"The bounds of the buckets are {buckets}."])


# --- the rules on calls ----------------------------------------------------------------------------------------


def order() -> str:
    """Return a table of the steps of a call, in their order."""
    rows = [f"| {number} | {name} | {what} |" for number, (name, what) in enumerate(ORDER, start=1)]
    return "\n".join(["| | step | what happens |", "|---|---|---|", *rows])


PARTS: dict[str, Callable[[], str]] = {
    "order": order,
    "fields": fields,
    "states": states,
    "commands": usage,
    "clients": clients,
    "messages": messages,
    "metrics": metrics,
    "spanattributes": span_attributes,
    "otelmetrics": otel_metrics,
}

if __name__ == "__main__":
    sys.exit(main())
