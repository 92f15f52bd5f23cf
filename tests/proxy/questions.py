"""What a client can ask for: every way to a tool, a prompt and a resource, and other ways to write their names."""

from __future__ import annotations

from urllib.parse import quote

from tests.fakes import Json

Question = tuple[str, dict[str, Json]]


def spellings(name: str) -> list[str]:
    """Return a name, and others that look like it or that a server may take for it."""
    wide = "".join(chr(ord(each) + 0xFEE0) if "a" <= each <= "z" else each for each in name)
    return [name, name.upper(), f" {name}", f"{name}\n", f"{name}\u200b", wide, f"{name}s"]


def tool_questions(group: str, name: str) -> list[Question]:
    """Return all ways to ask for a tool, as a client that sees all groups."""
    qualified = f"{group}__{name}"
    calls = ("call_dynamic_tool", "call_dynamic_tool_read", "call_dynamic_tool_write")
    return [
        *(("tools/call", {"name": call, "arguments": {"group": group, "name": name, "args": {}}}) for call in calls),
        *(("tools/call", {"name": calls[0], "arguments": {"name": each}}) for each in (name, qualified)),
        *(("tools/call", {"name": calls[0], "arguments": {"group": group, "name": each}}) for each in (qualified,)),
        *(("tools/call", {"name": each, "arguments": {}}) for each in (name, qualified)),
        ("tools/call", {"name": qualified, "arguments": {}, "task": {}}),
        ("tools/call", {"name": calls[0], "arguments": {"group": group, "name": name, "select": "$.x", "typo": 1}}),
        *(
            ("tools/call", {"name": "get_dynamic_tools", "arguments": arguments})
            for arguments in (
                {"group": group},
                {"query": name},
                {"query": qualified, "detail": "full"},
                {"group": group, "query": name},
                {"group": group, "query": "does", "detail": "names"},
            )
        ),
    ]


def prompt_questions(group: str, name: str) -> list[Question]:
    """Return all ways to ask for a prompt."""
    keys = (name, f"{group}__{name}")
    return [
        *(("prompts/get", {"name": key}) for key in keys),
        *(_completion({"type": "ref/prompt", "name": key}) for key in keys),
    ]


def resource_questions(group: str, uri: str) -> list[Question]:
    """Return all ways to ask for a resource, or for completions of a template."""
    keys = (uri, f"dynamic-mcp://{group}/{quote(uri, safe='')}", f"dynamic-mcp://{group}/{uri}")
    return [
        *(
            (f"resources/{verb}", {"uri": key})
            for key in keys
            for verb in ("read", "subscribe", "unsubscribe")
            if "{" not in key
        ),
        *(_completion({"type": "ref/resource", "uri": key}) for key in keys),
    ]


def _completion(reference: Json) -> Question:
    return "completion/complete", {"ref": reference, "argument": {"name": "city", "value": "K"}}


LISTS: list[Question] = [
    (method, {})
    for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "tasks/list")
]
OTHERS: list[Question] = [
    ("tools/call", {"name": "get_dynamic_tools", "arguments": {}}),
    ("tools/call", {"name": "call_dynamic_tool", "arguments": {}}),
    ("tasks/get", {"taskId": "nothing"}),
    ("tasks/cancel", {"taskId": "nothing"}),
    ("vendor/unknown", {"group": "a"}),
]


def uri_spellings(uri: str) -> list[str]:
    """Return a URI, and others that a server may take for it."""
    scheme, _, rest = uri.partition("://")
    return [
        uri,
        f"{scheme.upper()}://{rest}",
        f"{uri}/.",
        f"{uri[:-1]}%{ord(uri[-1]):02x}",
        f"{scheme}://q/../{rest}",
    ]
