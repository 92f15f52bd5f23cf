"""The tools that operations are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from dynamic_mcp.mcp import wire
from dynamic_mcp.openapi.document import BadReference, Document, Json
from dynamic_mcp.openapi.json_schema import BASE64, SchemaBudget, SchemaWriter, is_binary
from dynamic_mcp.openapi.operations import BODY, LeftOut, Operation, Parameter

# Longer schemas are not checked, and no model reads them.
MAX_SCHEMA_BYTES = 1 << 20
# Of all tools of a document, which is what a message of any other server may have.
MAX_TOOLS_BYTES = 64 << 20
_READING = ("GET", "HEAD")
# RFC 9110, section 9.2.2.
_IDEMPOTENT = ("GET", "HEAD", "PUT", "DELETE")
# They replace or remove what there is; what a POST does, its method does not say.
_DESTRUCTIVE = ("PUT", "PATCH", "DELETE")


class OperationTools(Struct, frozen=True):
    """The tools of operations, each with its operation, and those that cannot be tools."""

    tools: tuple[Json, ...]
    operations: Mapping[str, Operation]
    left_out: tuple[LeftOut, ...]


def make_tools(document: Document, operations: Iterable[Operation]) -> OperationTools:
    """Return the tools of operations."""
    tools, found, left_out = [], {}, []
    budget, left_bytes = SchemaBudget(), MAX_TOOLS_BYTES
    for each in operations:
        try:
            tool = make_tool(document, each, budget)
            size = len(wire.encode(tool))
            if size > MAX_SCHEMA_BYTES:
                raise BadReference(f"its schema has more than {MAX_SCHEMA_BYTES >> 20} MiB")
            if size > left_bytes:
                raise BadReference(f"the tools of this document have more than {MAX_TOOLS_BYTES >> 20} MiB")
            left_bytes -= size
        except (BadReference, RecursionError) as exc:
            left_out.append(LeftOut(each.where, str(exc)))
        else:
            tools.append(tool)
            found[each.tool] = each
    return OperationTools(tuple(tools), found, tuple(left_out))


def make_tool(document: Document, operation: Operation, budget: SchemaBudget) -> Json:
    """Return the tool of one operation. Raises BadReference.

    There is no `outputSchema`: a service may answer what its document does not say, and clients refuse results that
    do not fit the schema.
    """
    return {
        "name": operation.tool,
        **({"title": operation.summary} if operation.summary else {}),
        "description": _describe(operation),
        "inputSchema": _write_schema(SchemaWriter(document, budget), operation),
        "annotations": _annotate(operation),
    }


def _describe(operation: Operation) -> str:
    summary, description = operation.summary.strip(), operation.description.strip()
    texts = [
        "" if description.startswith(summary) else summary,
        description,
        "It is deprecated." if operation.is_deprecated else "",
        operation.where,
    ]
    return "\n\n".join(filter(None, texts))


def _annotate(operation: Operation) -> Json:
    hints: Json = {"readOnlyHint": operation.method in _READING, "openWorldHint": True}
    if operation.method not in _READING and operation.method in _DESTRUCTIVE:
        hints["destructiveHint"] = True
    if operation.method in _READING:
        hints["destructiveHint"] = False
    hints["idempotentHint"] = operation.method in _IDEMPOTENT
    return hints


def _write_schema(writer: SchemaWriter, operation: Operation) -> Json:
    properties = {each.argument: _write_parameter(writer, each) for each in operation.parameters}
    required = [each.argument for each in operation.parameters if each.required]
    body = operation.body
    if body is not None:
        properties[BODY] = _with_description(_write_body(writer, operation), body.description)
        required += [BODY] * body.required
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    if writer.definitions:
        schema["$defs"] = _used_definitions(properties, writer.definitions)
    return schema


def _write_body(writer: SchemaWriter, operation: Operation) -> object:
    body = operation.body
    assert body is not None
    if body.is_binary:
        return {"type": "string", "contentEncoding": "base64", "description": f"{BASE64} ({body.media_type})"}
    if body.media_type.startswith("text/"):
        return {"type": "string"}
    return writer.write(body.schema)


def _write_parameter(writer: SchemaWriter, parameter: Parameter) -> object:
    return _with_description(writer.write(parameter.schema), parameter.description)


def _with_description(schema: object, description: str) -> object:
    if not description or not isinstance(schema, dict):
        return schema
    own = schema.get("description", "")
    if "contentEncoding" in schema and own and own not in description:
        description = f"{description} {own}"
    return {**schema, "description": description}


def _used_definitions(properties: object, definitions: Mapping[str, object]) -> dict[str, object]:
    """Return the definitions that are reached: some were replaced by what they stand for."""
    used: dict[str, object] = {}
    waiting: list[object] = [properties]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            name = str(value.get("$ref", "")).removeprefix("#/$defs/")
            if name in definitions and name not in used:
                used[name] = definitions[name]
                waiting.append(definitions[name])
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return {name: used[name] for name in definitions if name in used}


def binary_members(document: Document, schema: object) -> frozenset[str]:
    """Return the members of a form whose values are bytes, or lists of such. Raises BadReference."""
    found = document.resolve(schema)
    members = found.get("properties")
    names = set()
    for name, each in (members if isinstance(members, dict) else {}).items():
        member = document.resolve(each)
        item = document.resolve(member.get("items")) if member.get("type") == "array" else member
        if is_binary(item):
            names.add(str(name))
    return frozenset(names)
