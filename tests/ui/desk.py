"""A server over stdio for tests of the page: a desk with files, a picture, and a door; or one that says what harms.

Run as `python desk.py [hostile]`. It is a program of its own, with the standard library alone.
"""

from __future__ import annotations

import json
import sys
from typing import Any

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAE0lEQVR4nGPgzssDIoYPW0KACAAhOwW/CLvO/gAAAABJRU5ErkJggg=="
HARM = "<script>window.harmed=1</script><img src=x onerror='window.harmed=1'>\u202egnirts\u202c\x1b[31mred\x1b[0m"


Members = dict[str, Any]  # Any: JSON


def tool(name: str, description: str, properties: Members, *required: str, **hints: bool) -> Members:
    schema = {"type": "object", "properties": properties, "required": [*required]}
    return {"name": name, "description": description, "inputSchema": schema, "annotations": hints}


TOOLS = [
    tool(
        "find_file",
        "Find a file on the desk by a part of its name.",
        {
            "name": {"type": "string", "description": "A part of the name."},
            "most": {"type": "integer", "description": "How many at most.", "default": 5},
            "kind": {"type": "string", "enum": ["letter", "bill", "map"]},
            "deep": {"type": "boolean", "description": "Look into drawers too."},
        },
        "name",
        readOnlyHint=True,
    ),
    tool("write_file", "Write a file.", {"path": {"type": "string"}, "text": {"type": "string"}}, "path", "text"),
    tool("picture", "A picture of the desk.", {}, readOnlyHint=True),
    tool("fail", "Does not work.", {}),
]
HOSTILE_TOOLS = [
    tool(f"tool{HARM}", HARM * 3, {f"p{HARM}": {"type": "string", "description": HARM, "enum": [HARM]}}),
    tool("say_harm", HARM, {"text": {"type": "string", "description": HARM, "default": HARM}}),
    tool("say_much", "A megabyte.", {}),
    tool("say_page", "A page that is an app.", {}),
]
RESOURCES = [
    {"uri": "desk://letter", "name": "A letter", "description": "From a friend.", "mimeType": "text/plain"},
    {"uri": "desk://picture", "name": "A picture", "mimeType": "image/png"},
]
PROMPTS = [{"name": "tidy", "description": "Tidy up the desk.", "arguments": [{"name": "how", "required": True}]}]


def answer(method: str, params: Members, *, is_hostile: bool) -> Members | None:
    match method:
        case "initialize":
            info = {"name": f"desk{HARM}" if is_hostile else "desk", "version": HARM if is_hostile else "1.2.3"}
            capabilities: Members = {"tools": {}, "resources": {}, "prompts": {}}
            hello = {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
            return {**hello, "instructions": HARM} if is_hostile else hello
        case "ping":
            return {}
        case "tools/list":
            return {"tools": HOSTILE_TOOLS if is_hostile else TOOLS}
        case "resources/list":
            harm = [{"uri": f"desk://x{HARM}", "name": HARM, "description": HARM, "mimeType": "text/html"}]
            return {"resources": harm if is_hostile else RESOURCES}
        case "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": "desk://file/{name}", "name": "A file"}]}
        case "resources/read":
            return {"contents": [read(params["uri"], is_hostile=is_hostile)]}
        case "prompts/list":
            prompt: Members = {"name": f"p{HARM}", "description": HARM, "arguments": [{"name": HARM}]}
            return {"prompts": [prompt] if is_hostile else PROMPTS}
        case "prompts/get":
            text = HARM if is_hostile else f"Tidy up {params.get('arguments', {}).get('how', '')}."
            return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
        case "tools/call":
            return call(params["name"], params.get("arguments", {}))
    return None


def read(uri: str, *, is_hostile: bool) -> Members:
    if is_hostile:
        return {"uri": uri, "mimeType": "text/html", "text": f"<!doctype html>{HARM}"}
    if uri == "desk://picture":
        return {"uri": uri, "mimeType": "image/png", "blob": PICTURE}
    return {"uri": uri, "mimeType": "text/plain", "text": f"Dear friend, this is {uri}."}


def call(name: str, arguments: Members) -> Members:
    match name:
        case "find_file":
            found = {"files": [{"name": f"{arguments['name']}-{number}", "size": 10 * number} for number in range(3)]}
            return {"content": [{"type": "text", "text": json.dumps(found)}], "structuredContent": found}
        case "picture":
            return {"content": [{"type": "image", "mimeType": "image/png", "data": PICTURE}]}
        case "fail":
            return {"content": [{"type": "text", "text": "the drawer is locked"}], "isError": True}
        case "say_much":
            return {"content": [{"type": "text", "text": "<b>much</b> " * 90_000}]}
        case "say_page":
            page = {"uri": "ui://page", "mimeType": "text/html;profile=mcp-app", "text": f"<html>{HARM}</html>"}
            image = {"type": "image", "mimeType": "image/svg+xml", "data": "PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+"}
            return {"content": [{"type": "resource", "resource": page}, image]}
        case "write_file":
            return {"content": [{"type": "text", "text": f"wrote {arguments['path']}"}]}
    return {"content": [{"type": "text", "text": HARM}], "isError": "page" in name}


def main() -> None:
    """Answer requests, one a line, until the input ends."""
    is_hostile = "hostile" in sys.argv
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params", {}), is_hostile=is_hostile)
        reply: Members = {"jsonrpc": "2.0", "id": message["id"]}
        reply |= {"result": result} if result is not None else {"error": {"code": -32601, "message": "not here"}}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
