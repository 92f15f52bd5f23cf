"""The tools of a command line program: one closed schema for each of its commands."""

from __future__ import annotations

from typing import Any

from dynamic_mcp.config.resolved import CommandLine
from dynamic_mcp.packs.model import Command, Flag, Positional, tool_name

Json = dict[str, Any]  # Any: JSON


def make_tools(line: CommandLine) -> list[Json]:
    """Return the tools as `tools/list` answers them."""
    return [make_tool(line, command) for command in line.commands]


def make_tool(line: CommandLine, command: Command) -> Json:
    """Return the tool of one command."""
    return {
        "name": tool_name(line.pack, command.name),
        "description": command.description,
        "inputSchema": _input_schema(line, command),
        "annotations": _annotations(command),
    }


def _annotations(command: Command) -> Json:
    """Say what the command does; of an unknown one only that it does not just read."""
    effect = command.worst_effect
    hints: Json = {"readOnlyHint": effect == "read", "openWorldHint": command.open_world}
    if effect != "unknown":
        hints["destructiveHint"] = effect == "destructive"
    return hints


def _input_schema(line: CommandLine, command: Command) -> Json:
    every: list[Flag | Positional] = [*command.positionals, *command.flags]
    properties = {each.argument: _property(each) for each in every}
    if command.stdin:
        properties["stdin"] = {"type": "string", "description": "The text that the program reads as its input."}
    if line.roots:
        properties["cwd"] = {"type": "string", "description": _describe_roots(line.roots)}
    required = [each.argument for each in every if each.required]
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def _property(each: Flag | Positional) -> Json:
    item = {**_type(each), **_bounds(each)}
    if each.repeatable:
        item = {"type": "array", "items": item, **({"minItems": 1} if each.required else {})}
    description = _describe(each)
    return {**item, "description": description} if description else item


def _type(each: Flag | Positional) -> Json:
    match each.type:
        case "enum":
            return {"type": "string", "enum": list(each.values or ())}
        case "path":
            return {"type": "string", "minLength": 1}
        case "pairs":
            return {"type": "object", "additionalProperties": {"type": "string"}}
        case kind:
            return {"type": kind}


def _bounds(each: Flag | Positional) -> Json:
    bounds: Json = {"pattern": f"^(?:{each.pattern})$"} if each.pattern is not None else {}
    if each.except_ is not None:
        bounds["not"] = {"pattern": f"^(?:{each.except_})$"}
    return {**bounds, **_limits(each)}


def _limits(each: Flag | Positional) -> Json:
    bounds = {"minimum": each.minimum, "maximum": each.maximum}
    return {name: int(bound) if bound == int(bound) else bound for name, bound in bounds.items() if bound is not None}


def _describe(each: Flag | Positional) -> str:
    """Return what an argument is for; of a flag of one letter also the letter, which its manual explains."""
    description = each.description or ""
    if isinstance(each, Flag) and len(each.name) == 2:
        return f"{description} (`{each.name}`)".strip()
    return description


def _describe_roots(roots: tuple[str, ...]) -> str:
    first, *others = roots
    where = f"`{first}`" + "".join(f" or `{each}`" for each in others)
    return f"The directory to work in, which must be in {where}. Default: `{first}`."
