"""Checks the JSON Schemas of tools: with an invalid one, a model calls the tool wrongly."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from msgspec import Raw

from dynamic_mcp.doctor.findings import Finding, Level
from dynamic_mcp.mcp import wire

_LONGEST = 200


def check_schemas(group: str, tools: Mapping[str, Raw]) -> Iterator[Finding]:
    """Yield a finding for each invalid schema of a group's tools."""
    for name, tool in tools.items():
        for member in ("inputSchema", "outputSchema"):
            flaw = _find_flaw(wire.members(tool).get(member), is_required=member == "inputSchema")
            if flaw:
                hint = "models may call the tool wrongly; report it to the server's author"
                yield Finding(Level.WARNING, f"{group}.{name}.{member}", flaw, hint)


def _find_flaw(data: Raw | None, *, is_required: bool) -> str:
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft202012Validator, validator_for

    if data is None:
        return "is missing; MCP requires one" if is_required else ""
    try:
        schema = json.loads(bytes(data))
    except (ValueError, RecursionError):
        return "cannot be read"
    if not isinstance(schema, dict):
        return "is not an object"
    if schema.get("type") != "object":
        return f"has type `{schema.get('type')}`; MCP requires `object`"
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as exc:
        where = "/".join(map(str, exc.absolute_path))
        return f"is not valid JSON Schema: {f'at `{where}`: ' if where else ''}{exc.message[:_LONGEST]}"
    except RecursionError:
        return "is nested too deeply to be checked"
    return ""
