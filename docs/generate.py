"""Write the parts of the documents that come from the code, between `<!-- NAME -->` and `<!-- end of NAME -->`.

The schema of the chart's values gets that of the config.

python docs/generate.py [--check]
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import fields

from dynamic_mcp import errors
from dynamic_mcp.cli.command_group import commands
from dynamic_mcp.cli.command_names import sections
from dynamic_mcp.features.cluster.chart import list_values
from dynamic_mcp.features.metrics import definitions
from dynamic_mcp.groups.lifecycle import TRANSITIONS
from dynamic_mcp.importer.model import Machine, ToolScope
from dynamic_mcp.importer.tools import locations
from dynamic_mcp.importer.tools.catalog import TOOLS
from dynamic_mcp.importer.tools.instructions import PLACES, InstructionKind
from dynamic_mcp.observe import conventions
from dynamic_mcp.proxy.chain import ORDER

DOCS = Path(__file__).parent
PACKAGE = DOCS.parent / "dynamic_mcp"
CHART = DOCS.parent / "deploy" / "chart"


def main() -> int:
    """Write every part again; with `--check`, only print which documents are out of date."""
    stale = 0
    texts = {file.name: file.read_text(encoding="utf-8") for file in sorted(DOCS.glob("*.md"))}
    tables = fields.fill_in({name: texts[name] for name in (fields.EVERYDAY, fields.ADVANCED)})
    for name, text in texts.items():
        new = fill_in(tables.get(name, text))
        if new != text:
            stale += 1
            print(f"{name} is out of date")
            if "--check" not in sys.argv:
                (DOCS / name).write_text(new, encoding="utf-8", newline="\n")
    schema = CHART / "values.schema.json"
    if (new := chart_schema()) != schema.read_text(encoding="utf-8"):
        stale += 1
        print(f"{schema.name} is out of date")
        if "--check" not in sys.argv:
            schema.write_text(new, encoding="utf-8", newline="\n")
    return stale if "--check" in sys.argv else 0


def fill_in(text: str) -> str:
    """Return a document with its generated parts up to date."""

    def part(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- {name} -->\n{PARTS[name]()}\n<!-- end of {name} -->"

    return re.sub(r"<!-- ([a-z]+) -->\n.*?<!-- end of \1 -->", part, text, flags=re.DOTALL)


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
        for names in sections().values():
            for name in names:
                command = commands.get_command(context, name)
                assert command is not None
                words = " ".join(command.collect_usage_pieces(click.Context(command, info_name=name)))
                shown = f"dynamic-mcp {name} {words.replace('[OPTIONS]', '').strip()}".strip()
                rows.append(f"| `{fields.cell(shown)}` | {fields.cell(command.get_short_help_str(100))} |")
    return "\n".join(rows)


# --- the clients -----------------------------------------------------------------------------------------------


def clients() -> str:
    """Return where each tool keeps its own settings, on Linux."""
    machine = Machine(Path("/HOME"), Path("/PROJECT"), {}, "linux")
    rows = ["| tool | command | your own file | a project's file |", "|---|---|---|---|"]
    for tool in TOOLS:
        cells = []
        for scope in (ToolScope.USER, ToolScope.PROJECT):
            found = [file.as_posix() for _, file in locations.list_candidates(tool, machine, (scope,))]
            shown = found[0].replace("/HOME", "~").replace("/PROJECT/", "") if found else ""
            cells.append(f"`{shown}`" if shown else "")
        if any(cells):
            rows.append(f"| {tool.title} | `dynamic-mcp install {tool.name}` | {cells[0]} | {cells[1]} |")
    return "\n".join(rows)


def instructions() -> str:
    """Return where each tool gets the instructions of `install --cli`, on Linux."""
    machine = Machine(Path("/HOME"), Path("/PROJECT"), {}, "linux")
    rows = ["| tool | user | project |", "|---|---|---|"]
    for tool in TOOLS:
        cells = dict.fromkeys((ToolScope.USER, ToolScope.PROJECT), "")
        for place in PLACES.get(tool.name, ()):
            path = locations.resolve_path(place.path, machine)
            if path is not None and "linux" in place.systems:
                shown = path.as_posix().replace("/HOME", "~").replace("/PROJECT/", "")
                section = ", a section" if place.kind is InstructionKind.SECTION else ""
                cells[place.scope] = f"`{shown}`{section}"
        if any(cells.values()):
            rows.append(f"| `{tool.name}` | {' | '.join(cells.values())} |")
    return "\n".join(rows)


# --- the metrics -----------------------------------------------------------------------------------------------


def metrics() -> str:
    """Return a table of the metrics."""
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for each in definitions.ALL:
        labels = ", ".join(f"`{name}`" for name in each.labels)
        rows.append(f"| `{each.name}` | {each.kind.value} | {labels} | {fields.cell(each.description)} |")
    return "\n".join(rows)


# --- the messages ----------------------------------------------------------------------------------------------

ERRORS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
# The position of the message among the arguments of each class; 1 by default.
POSITION = {"DynamicMcpError": 0, "InvalidArguments": 0, "ConfigError": 2}
# Functions that make an answer of a message; it is their second argument, too.
ANSWERS = {"error_frame", "_refused"}
# errors.py makes the message of these from a kind and a name.
MADE_THERE = {"NotFound", "ResourceNotFound", "Disabled", "LoginNeeded"}


def messages() -> str:
    """Return a table of the messages in the code with their hints."""
    found = {message: hint for file in sorted(PACKAGE.rglob("*.py")) for message, hint in _raised(file) if message}
    said = [message for message in found if message.strip("… ")]
    rows = [
        f"| {fields.cell(message)} | {fields.cell(found[message])} |"
        for message in sorted(said, key=lambda text: text.strip("`… ").lower())
    ]
    return "\n".join(["| message | hint |", "|---|---|", *rows])


def _raised(file: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="wire"), attr=name):
                position = POSITION.get(name, 1)
            case _:
                continue
        if name not in ERRORS | ANSWERS or name in MADE_THERE or len(node.args) <= position:
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
    rows = [f"| {number} | {row.name} | {row.text} |" for number, row in enumerate(ORDER, start=1)]
    return "\n".join(["| | step | what happens |", "|---|---|---|", *rows])


# --- the chart -------------------------------------------------------------------------------------------------


def chart_schema() -> str:
    """Return the schema of the chart's values, which has the config's in its `definitions`."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    config = json.loads((DOCS.parent / "schemas" / "dynamic-mcp.schema.json").read_text(encoding="utf-8"))
    parts = {f"config.{name}": part for name, part in config.pop("$defs").items()}
    whole = {key: value for key, value in config.items() if not key.startswith("$")}
    text = json.dumps({"server": schema["definitions"]["server"], "config": whole, **parts}, ensure_ascii=False)
    schema["definitions"] = json.loads(text.replace('"#/$defs/', '"#/definitions/config.'))
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def chart_values() -> str:
    """Return a table of the chart's values."""
    rows = ["| value | default | meaning |", "|---|---|---|"]
    for each in list_values():
        is_shown = not each.is_group and each.default not in ("", [], {})
        default = f"`{fields.cell(json.dumps(each.default))}`" if is_shown else ""
        rows.append(f"| `{each.path}` | {default} | {fields.cell(each.description)} |")
    return "\n".join(rows)


PARTS: dict[str, Callable[[], str]] = {
    "order": order,
    "states": states,
    "commands": usage,
    "instructions": instructions,
    "clients": clients,
    "messages": messages,
    "metrics": metrics,
    "spanattributes": span_attributes,
    "otelmetrics": otel_metrics,
    "values": chart_values,
}

if __name__ == "__main__":
    sys.exit(main())
