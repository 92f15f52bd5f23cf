"""Headers of modern HTTP requests that mirror the body: a name, and the annotated parameters of a tool.

MCP 2026-07-28, streamable HTTP, request metadata. Sending and checking are both here, so that they agree.
"""

from __future__ import annotations

import contextlib
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterator, Mapping

from msgspec import Raw, Struct

from dynamic_mcp.mcp import wire

# The member of the params that `Mcp-Name` repeats. The methods of tasks are those of the tasks extension.
NAMED_BY: Mapping[str, str] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
PREFIX = "Mcp-Param-"

_START, _END = b"=?base64?", b"?="
_PLAIN = re.compile(rb"(?:[!-~](?:[ -~]*[!-~])?)?")
_FIELD_VALUE = re.compile(rb"[\t -~]*")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

_ANNOTATION = "x-mcp-header"
_TYPES = frozenset(("string", "integer", "boolean"))
# The members with subschemas, besides `properties`: as a value, in a list, or in an object by name. The values
# of `default`, `examples`, `const` and `enum` are data.
_HOLDS_SCHEMAS = frozenset(
    (
        *("items", "additionalItems", "prefixItems", "contains", "unevaluatedItems"),
        *("additionalProperties", "unevaluatedProperties", "propertyNames", "contentSchema"),
        *("not", "if", "then", "else", "allOf", "anyOf", "oneOf"),
    )
)
_HOLDS_NAMED_SCHEMAS = frozenset(("patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"))

_Path = tuple[str, ...]
_Headers = tuple[tuple[bytes, bytes], ...]


class InvalidAnnotation(ValueError):
    """An `x-mcp-header` that the specification does not allow; a client over HTTP must leave out the whole tool."""


# --- values --------------------------------------------------------------------------------------------


def encode_value(text: str) -> bytes:
    """Encode a text as the value of a header, in base64 where plain text is not allowed."""
    data = text.encode("utf-8", "replace")
    if _PLAIN.fullmatch(data) and not (data.startswith(_START) and data.endswith(_END)):
        return data
    return b"".join((_START, b64encode(data), _END))


def decode_value(value: bytes) -> str | None:
    """Decode the value of a header; None if it is malformed."""
    value = value.strip(b" \t")
    if not _FIELD_VALUE.fullmatch(value):
        return None
    if len(value) < len(_START) + len(_END) or not (value.startswith(_START) and value.endswith(_END)):
        return value.decode("ascii")
    payload = value[len(_START) : -len(_END)]
    try:
        data = b64decode(payload, validate=True)
        text = data.decode("utf-8")
    except (NotBase64, UnicodeDecodeError):
        return None
    return text if b64encode(data) == payload else None  # reject a second spelling of the same text


# --- parameters of tools -------------------------------------------------------------------------------


class _Parameter(Struct, frozen=True, gc=False):
    """A mirrored parameter: its path in the arguments, and its header."""

    path: _Path
    header: bytes
    key: bytes  # the name of the header in lower case
    is_integer: bool


class HeaderParameters(Struct, frozen=True):
    """The parameters of a tool that are mirrored into headers; most tools have none."""

    parameters: tuple[_Parameter, ...] = ()

    @classmethod
    def of(cls, input_schema: Raw) -> HeaderParameters:
        """Find the annotations of an input schema. Raises InvalidAnnotation."""
        if not _may_be_annotated(input_schema):
            return NONE_MIRRORED
        root = wire.value(input_schema)
        if root is None:
            raise InvalidAnnotation("the schema is nested too deeply to be searched for `x-mcp-header`")
        found: dict[bytes, _Parameter] = {}
        for path, schema in _schemas(root):
            if _ANNOTATION in schema:
                parameter = _read_annotation(path, schema)
                if parameter.key in found:
                    other = ".".join(found[parameter.key].path)
                    raise _invalid(path, f"names the same header as that of {other!a}")
                found[parameter.key] = parameter
        return cls(tuple(found.values())) if found else NONE_MIRRORED

    @property
    def is_empty(self) -> bool:
        return not self.parameters

    def headers(self, arguments: Raw) -> tuple[tuple[bytes, bytes], ...]:
        """Return the headers to send with these arguments."""
        sent = ((each.header, _render(wire.member(arguments, *each.path), each)) for each in self.parameters)
        return tuple((header, encode_value(text)) for header, text in sent if text is not None)

    def find_mismatch(self, arguments: Raw, headers: Mapping[bytes, bytes]) -> str:
        """Describe where the headers, with lower-case names, differ from the arguments; empty if they agree."""
        if self.parameters and len(arguments) and (name := wire.find_duplicate_name(arguments)) is not None:
            return f"duplicate argument `{ascii(name)[1:-1][:100]}`"  # a server could read the other one
        for parameter in self.parameters:
            expected = _render(wire.member(arguments, *parameter.path), parameter)
            value = headers.get(parameter.key)
            if why := _compare(expected, value, parameter):
                return f"the header `{parameter.header.decode()}` {why}"
        return ""


NONE_MIRRORED = HeaderParameters()


def find_mirrored(tools: Mapping[str, Raw]) -> dict[str, HeaderParameters]:
    """Return the mirrored parameters of each tool that has any; a tool with an invalid annotation has none."""
    found: dict[str, HeaderParameters] = {}
    for name, tool in tools.items():
        if _may_be_annotated(tool):
            with contextlib.suppress(InvalidAnnotation):
                found[name] = HeaderParameters.of(wire.member(tool, "inputSchema"))
    return {name: each for name, each in found.items() if not each.is_empty}


def _compare(expected: str | None, value: bytes | None, parameter: _Parameter) -> str:
    name = ascii(".".join(parameter.path))[1:-1]
    if value is None:
        return "" if expected is None else f"is missing, but the argument `{name}` is present"
    if expected is None:
        return f"repeats the argument `{name}`, which is missing"
    text = decode_value(value)
    if text is None:
        return "is malformed"
    if text == expected or (parameter.is_integer and _plain_integer(text) == expected):
        return ""
    return f"differs from the argument `{name}`"


def _render(value: Raw, parameter: _Parameter) -> str | None:
    """Return an argument as text; None if it is missing or does not fit into a header."""
    data = bytes(value)
    if not data or data[:1] in b"{[" or data == b"null":
        return None
    if data[:1] == b'"':
        return wire.text(value)
    text = data.decode()
    return (_integer(text) or text) if parameter.is_integer else text


_INTEGER = re.compile(r"(-?)([0-9]+)(?:\.0+)?")
_WITH_EXPONENT = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?[eE][+-]?[0-9]{1,3}")
_MOST_EXACT = 2**53 - 1


def _plain_integer(text: str) -> str:
    """Return an integer in its plain form, such as `42` for `42.0`; empty for any other number.

    It stays text, however long it is.
    """
    match = _INTEGER.fullmatch(text)
    if match is None:
        return ""
    digits = match[2].lstrip("0")
    return match[1] + digits if digits else "0"


def _integer(text: str) -> str:
    """Return a number of the body in the same form, also one with an exponent; empty if it is not an integer."""
    if not _WITH_EXPONENT.fullmatch(text):
        return _plain_integer(text)
    number = float(text)
    return str(int(number)) if number.is_integer() and abs(number) <= _MOST_EXACT else ""


# --- annotations in schemas ----------------------------------------------------------------------------


def _may_be_annotated(schema: Raw) -> bool:
    data = bytes(schema)
    return _ANNOTATION.encode() in data or b"\\u00" in data  # the word may be escaped


def _schemas(root: object) -> Iterator[tuple[_Path | None, Mapping[str, object]]]:
    """Yield all schemas in a schema, with the path if only `properties` lead to it. Does not follow references."""
    todo: list[tuple[_Path | None, object]] = [((), root)]
    while todo:
        path, node = todo.pop()
        if isinstance(node, list):
            todo += ((None, each) for each in reversed(node))
        if not isinstance(node, dict):
            continue
        yield path, node
        for keyword, held in reversed(node.items()):
            if keyword == "properties" and isinstance(held, dict):
                todo += ((None if path is None else (*path, name), each) for name, each in reversed(held.items()))
            elif keyword in _HOLDS_SCHEMAS:
                todo.append((None, held))
            elif keyword in _HOLDS_NAMED_SCHEMAS and isinstance(held, dict):
                todo += ((None, each) for each in reversed(held.values()))


def _read_annotation(path: _Path | None, schema: Mapping[str, object]) -> _Parameter:
    name, kind = schema[_ANNOTATION], schema.get("type")
    if not path:
        raise _invalid(path, "is at a place that `properties` alone do not lead to")
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise _invalid(path, "is not a name that a header can have")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise _invalid(path, "is on a parameter that is no string, integer or boolean")
    header = f"{PREFIX}{name}".encode()
    return _Parameter(path, header, header.lower(), kind == "integer")


def _invalid(path: _Path | None, why: str) -> InvalidAnnotation:
    where = f" of the parameter {'.'.join(path)!a}" if path else ""
    return InvalidAnnotation(f"`{_ANNOTATION}`{where} {why}")


class ToolHeaders:
    """The tools of one link that have mirrored parameters."""

    def __init__(self) -> None:
        self._tools: dict[str, HeaderParameters] = {}

    def learn(self, result: Raw) -> None:
        """Record the tools in a result of `tools/list`; a tool with an invalid annotation mirrors nothing."""
        try:
            tools = wire.elements(wire.member(result, "tools"))
        except wire.Malformed:
            return
        named = {name: tool for tool in tools if (name := wire.text(wire.member(tool, "name"))) is not None}
        others = {name: each for name, each in self._tools.items() if name not in named}
        self._tools = {**others, **find_mirrored(named)}

    def headers(self, tool: str, arguments: Raw) -> _Headers:
        """Return the headers for a call of a tool."""
        parameters = self._tools.get(tool)
        return () if parameters is None else parameters.headers(arguments)
