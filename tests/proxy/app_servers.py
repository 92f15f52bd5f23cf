"""Servers with apps, and what a host of apps asks of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dynamic_mcp.config.types import DirectTools
from tests.fakes import Client, FakeUpstream, Json, tool

UI = "io.modelcontextprotocol/ui"
HOST: Json = {"extensions": {UI: {"mimeTypes": ["text/html;profile=mcp-app"]}}}
DIRECT = DirectTools(is_all=True)
PAGE = "ui://clock/page.html"
DONE: Json = {"content": [{"type": "text", "text": "done"}]}
LINKED: Json = {"ui": {"resourceUri": PAGE, "visibility": ["model", "app"]}}


def with_meta(name: str, meta: Json) -> Json:
    return {**tool(name), "_meta": meta}


def app_only(name: str, uri: str | None = None) -> Json:
    return with_meta(name, {"ui": {**({"resourceUri": uri} if uri else {}), "visibility": ["app"]}})


def app_server(
    *tools: Json, pages: Sequence[str] = (), html: str = "<p>", answers: Mapping[str, Json] | None = None
) -> FakeUpstream:
    """Return a server with these tools, that lists these pages and answers each of them with its own."""

    def read(params: Mapping[str, Json]) -> Json:
        meta = {"ui": {"csp": {"connectDomains": ["https://x.test"]}, "domain": "d"}}
        return {
            "contents": [{"uri": params["uri"], "mimeType": "text/html;profile=mcp-app", "text": html, "_meta": meta}]
        }

    return FakeUpstream(
        {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": True}, "resources": {"subscribe": True}},
                "serverInfo": {"name": "fake", "version": "1"},
            },
            "tools/list": {"tools": list(tools)},
            "tools/call": DONE,
            "resources/list": {"resources": [{"uri": uri, "name": "page"} for uri in pages]},
            "resources/templates/list": {"resourceTemplates": []},
            "resources/read": read,
            "resources/subscribe": {},
            "resources/unsubscribe": {},
            **(answers or {}),
        }
    )


async def listed(client: Client) -> dict[str, dict[str, Json]]:
    """Return the listed tools by name, without those of the proxy."""
    tools = (await client.request("tools/list"))["result"]["tools"]
    return {each["name"]: each for each in tools if each["name"] not in ("get_dynamic_tools", "call_dynamic_tool")}


async def read(client: Client, uri: str) -> Json:
    return await client.request("resources/read", {"uri": uri})


async def by_name(client: Client, name: str) -> Json:
    return await client.request("tools/call", {"name": name, "arguments": {}})
