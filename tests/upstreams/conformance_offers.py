"""What the servers of conformance.py and conformance_modern.py offer, in the protocol's own words."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

Json = Any  # a literal of the fixture, in the protocol's words


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png() -> bytes:
    """Return a picture of one red pixel."""
    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\x00\xff\x00\x00")
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def _wav() -> bytes:
    """Return a sound without samples."""
    form = struct.pack("<HHIIHH", 1, 1, 8000, 8000, 1, 8)
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", 0)
    return b"RIFF" + struct.pack("<I", len(body)) + body


IMAGE = base64.b64encode(_png()).decode()
AUDIO = base64.b64encode(_wav()).decode()


# --- content -------------------------------------------------------------------------------------------


def text(words: str) -> Json:
    """Return a block of text."""
    return {"type": "text", "text": words}


def embedded(uri: str, words: str, kind: str = "text/plain") -> Json:
    """Return a block with a resource of text."""
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": words}}


PICTURE = {"type": "image", "data": IMAGE, "mimeType": "image/png"}
CONTENT: dict[str, list[Json]] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [PICTURE],
    "test_audio_content": [{"type": "audio", "data": AUDIO, "mimeType": "audio/wav"}],
    "test_embedded_resource": [embedded("test://embedded-resource", "This is an embedded resource content.")],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        PICTURE,
        embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json"),
    ],
    "json_schema_2020_12_tool": [text("taken")],
    "test_extra_tool": [text("here")],
}


# --- tools ---------------------------------------------------------------------------------------------

NOTHING: Json = {"type": "object", "properties": {}}
SCHEMA_2020_12: Json = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


CUSTOM_HEADERS: Json = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "priority": {"type": "integer", "x-mcp-header": "Priority"},
        "dry_run": {"type": "boolean", "x-mcp-header": "Dry-Run"},
        "query": {"type": "string"},
    },
}


def _tool(name: str, description: str, schema: Json = NOTHING) -> Json:
    return {"name": name, "description": description, "inputSchema": schema}


def _one(field: str) -> Json:
    """Return the schema of a tool that takes one text."""
    return {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}


TOOLS: list[Json] = [
    _tool("test_simple_text", "Answers with a text"),
    _tool("test_image_content", "Answers with an image"),
    _tool("test_audio_content", "Answers with a sound"),
    _tool("test_embedded_resource", "Answers with a resource"),
    _tool("test_multiple_content_types", "Answers with a text, an image and a resource"),
    _tool("test_tool_with_logging", "Logs three messages while it runs"),
    _tool("test_tool_with_progress", "Reports progress three times"),
    _tool("test_error_handling", "Fails"),
    _tool("test_reconnection", "Ends the stream of its call before it answers"),
    _tool("test_sampling", "Asks the client's model", _one("prompt")),
    _tool("test_elicitation", "Asks the user", _one("message")),
    _tool("test_elicitation_sep1034_defaults", "Asks the user with default values of every type"),
    _tool("test_elicitation_sep1330_enums", "Asks the user to choose in every way"),
    _tool("json_schema_2020_12_tool", "Has a schema with much of JSON Schema 2020-12", SCHEMA_2020_12),
    _tool("test_logging_tool", "Logs three messages while it runs"),
    _tool("test_missing_capability", "Needs a client with a model"),
    _tool("test_streaming_elicitation", "Asks the user for a name, in a stream"),
    _tool("test_trigger_tool_change", "Changes the list of tools"),
    _tool("test_trigger_prompt_change", "Changes the list of prompts"),
    _tool("test_trigger_resource_change", "Changes the list of resources"),
    _tool("test_update_resource", "Tells that a resource has changed", _one("uri")),
    _tool("test_custom_headers", "Repeats its arguments, of which three are for headers", CUSTOM_HEADERS),
    _tool("test_input_required_result_elicitation", "Asks the user for a name"),
    _tool("test_input_required_result_sampling", "Asks the client's model for a capital"),
    _tool("test_input_required_result_list_roots", "Asks for the client's roots"),
    _tool("test_input_required_result_request_state", "Asks the user to confirm"),
    _tool("test_input_required_result_tampered_state", "Asks the user to confirm"),
    _tool("test_input_required_result_multiple_inputs", "Asks the user, the model and for the roots at once"),
    _tool("test_input_required_result_multi_round", "Asks the user for a name, then for a color"),
    _tool("test_input_required_result_capabilities", "Asks in every way that the client can answer"),
]
# What the lists have besides, every other time that they are changed.
EXTRA: dict[str, Json] = {
    "tools": _tool("test_extra_tool", "Comes and goes"),
    "prompts": {"name": "test_extra_prompt", "description": "Comes and goes"},
    "resources": {"uri": "test://extra", "name": "extra", "mimeType": "text/plain"},
}


# --- questions -----------------------------------------------------------------------------------------


def _form(properties: Json, required: tuple[str, ...] = ()) -> Json:
    return {"type": "object", "properties": properties, "required": list(required)}


def form_with(field: str, kind: str = "string") -> Json:
    """Return a form with one field, which must be filled in."""
    return _form({field: {"type": kind}}, (field,))


RESPONSE_FORM = _form({"response": {"type": "string", "description": "User's response"}}, ("response",))
DEFAULTS_FORM = _form(
    {
        "name": {"type": "string", "description": "User name", "default": "John Doe"},
        "age": {"type": "integer", "description": "User age", "default": 30},
        "score": {"type": "number", "description": "User score", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "description": "Verification status", "default": True},
    }
)


def _titled(values: str, titles: str) -> list[Json]:
    return [{"const": value, "title": title} for value, title in zip(values.split(), titles.split(), strict=True)]


ENUMS_FORM = _form(
    {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": _titled("value1 value2 value3", "First Second Third")},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        "untitledMulti": {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
        },
        "titledMulti": {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": {"anyOf": _titled("value1 value2 value3", "First Second Third")},
        },
    }
)


# --- resources and prompts -----------------------------------------------------------------------------

RESOURCES: list[Json] = [
    {"uri": "test://static-text", "name": "static-text", "mimeType": "text/plain"},
    {"uri": "test://static-binary", "name": "static-binary", "mimeType": "image/png"},
    {"uri": "test://watched-resource", "name": "watched-resource", "mimeType": "text/plain"},
]
TEMPLATES: list[Json] = [
    {"uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json"}
]


def has_resource(uri: str) -> bool:
    """Tell whether there is such a resource."""
    return uri.startswith("test://template/") or any(each["uri"] == uri for each in (*RESOURCES, EXTRA["resources"]))


def contents(uri: str) -> Json:
    """Return what a resource contains."""
    if uri == "test://static-binary":
        return {"uri": uri, "mimeType": "image/png", "blob": IMAGE}
    if uri.startswith("test://template/"):
        id = uri.split("/")[3]
        found = {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}
        return {"uri": uri, "mimeType": "application/json", "text": json.dumps(found)}
    return {"uri": uri, "mimeType": "text/plain", "text": f"The content of {uri}."}


def _argument(name: str) -> Json:
    return {"name": name, "description": f"The {name}", "required": True}


PROMPTS: list[Json] = [
    {"name": "test_simple_prompt", "description": "Takes nothing"},
    {
        "name": "test_prompt_with_arguments",
        "description": "Repeats its arguments",
        "arguments": [_argument("arg1"), _argument("arg2")],
    },
    {
        "name": "test_prompt_with_embedded_resource",
        "description": "Embeds a resource",
        "arguments": [_argument("resourceUri")],
    },
    {"name": "test_prompt_with_image", "description": "Has an image"},
    {"name": "test_input_required_result_prompt", "description": "Asks the user for a context"},
]


def messages(name: str, arguments: dict[str, str]) -> list[Json]:
    """Return the messages of a prompt."""
    blocks = {
        "test_simple_prompt": lambda: [text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments": lambda: [
            text(f"Prompt with arguments: arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'")
        ],
        "test_prompt_with_embedded_resource": lambda: [
            embedded(arguments["resourceUri"], "Embedded resource content for testing."),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image": lambda: [PICTURE, text("Please analyze the image above.")],
    }
    return [{"role": "user", "content": block} for block in blocks[name]()]
