"""A server that believes what it is sent, as many do: it resolves a URI or a key in whichever way leads further.

    office.py JOURNAL

Each request except lists is a line of the journal. It imports nothing but the standard library.
"""

import json
import os
import posixpath
import sys
import unicodedata
from urllib.parse import unquote, urlsplit

FILES = {"/srv/docs/readme.txt": "the readme", "/srv/secret/alpha.key": "KEY-OF-ALPHA"}
HOSTS = {"public.example": "the public page", "internal.example": "KEY-OF-INTERNAL"}
TEXT = {"type": "string"}
TOOLS = [
    {"name": "query", "inputSchema": {"type": "object", "properties": {"database": TEXT, "options": {}}}},
    {"name": "read_file", "annotations": {"readOnlyHint": True}, "inputSchema": {"type": "object"}},
    {"name": "write_note", "inputSchema": {"type": "object"}},
    {"name": "move_file", "inputSchema": {"type": "object"}},
    {"name": "delete_everything", "annotations": {"destructiveHint": True}, "inputSchema": {"type": "object"}},
]
CAPABILITIES: dict[str, dict[str, object]] = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}}
journal = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def read(uri: str) -> str | None:
    """Resolve a URI as WHATWG's parser does, and then decode it once more than it should be."""
    whole = "".join(each for each in uri if each not in "\t\r\n").strip("".join(map(chr, range(0x21))))
    parts = urlsplit(unquote(unquote(whole)).replace("\\", "/"))
    if parts.scheme == "file":
        return FILES.get(posixpath.normpath("/" + parts.path.replace("\t", "")).replace("//", "/"))
    host = unicodedata.normalize("NFKC", parts.hostname or parts.path.strip("/").split("/")[0]).lower().rstrip(".")
    return HOSTS.get(host)


def answer(method: str, params: dict[str, object]) -> object:
    if method == "initialize":
        server = {"name": "office", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": CAPABILITIES, "serverInfo": server}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "resources/list":
        return {"resources": [{"uri": f"file://{path}", "name": path} for path in FILES]}
    if method == "resources/templates/list":
        return {"resourceTemplates": [{"uriTemplate": "file:///srv/{+path}", "name": "files"}]}
    if method == "prompts/list":
        return {"prompts": [{"name": "greet"}]}
    os.write(journal, json.dumps({"method": method, "params": params}).encode() + b"\n")
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": read(str(params["uri"])) or "nothing"}]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": f"{params['name']} has run"}]}
    if method == "prompts/get":
        return {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = answer(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
