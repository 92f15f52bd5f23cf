"""The conformance suites' idea of a client, which uses a server of theirs through the whole proxy.

The suite names the scenario, its facts and the revision by MCP_CONFORMANCE_SCENARIO, MCP_CONFORMANCE_CONTEXT and
MCP_CONFORMANCE_PROTOCOL_VERSION. Where a person is to log in, the link is followed as a browser would follow it with
a person who agrees.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.conformance.peers import Peer, connected
from tests.program import running, text_of

Json = Any  # whatever JSON the suite writes down
Driver = Callable[[Peer, Json], Awaitable[bool]]
STUB = Path(__file__).with_name("client_stub.py")
ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}, "valid_tool": {"region": "eu"}}
DOCUMENT = "https://conformance-test.local/client-metadata.json"
NOBODY = {"BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": "", "SSH_CONNECTION": "here"}


def config(url: str, scenario: str, context: Json, folder: Path) -> Json:
    """Return what a person would write into the config, given these facts."""
    server = {"url": url, "oauth": _oauth(scenario, context, folder)}
    if scenario == "http-custom-headers":
        server["validate"] = "off"  # the suite has null sent for a boolean
    return {"mcpServers": {"up": server}, "settings": {"defaults": {"retry": {"attempts": 1}}}}


def _oauth(scenario: str, context: Json, folder: Path) -> Json:
    oauth: dict[str, Json] = {}
    for name in ("client_id", "client_secret"):
        if name in context:
            oauth[name] = context[name]
    if "client-credentials" in scenario:
        oauth["grant"] = "client_credentials"
    if "private_key_pem" in context:
        file = folder / "key.pem"
        file.write_text(context["private_key_pem"])
        oauth |= {"private_key_file": str(file), "private_key_alg": context["signing_algorithm"]}
    if "idp_id_token" in context:
        provider = {"token_endpoint": context["idp_token_endpoint"], "client_id": context["idp_client_id"]}
        oauth |= {"grant": "cross_app", "assertion": context["idp_id_token"], "identity_provider": provider}
    if "valid_jwt" in context:
        oauth |= {"grant": "jwt_bearer", "assertion": context["valid_jwt"]}
    if "cimd" in scenario:
        oauth["client_metadata_url"] = DOCUMENT
    return oauth


# --- drivers: each tells whether all went well -------------------------------------------------------------


async def call_tools(peer: Peer, context: Json) -> bool:
    """Call every tool that the server has."""
    tools = await _list_tools(peer)
    return tools is not None and all([await _call(peer, name, ARGUMENTS.get(name, {})) for name in tools])


async def list_tools(peer: Peer, context: Json) -> bool:
    """List the tools, and call none."""
    return await _list_tools(peer) is not None


async def call_as_told(peer: Peer, context: Json) -> bool:
    """Call the tools that the suite names with its arguments."""
    calls = context["toolCalls"]
    return await list_tools(peer, context) and all(
        [await _call(peer, each["name"], each["arguments"]) for each in calls]
    )


async def use_everything(peer: Peer, context: Json) -> bool:
    """Call every tool, read every resource and get every prompt."""
    went_well = await call_tools(peer, context)
    for resource in (await peer.ask("resources/list"))["result"]["resources"]:
        went_well &= "result" in await peer.ask("resources/read", {"uri": resource["uri"]})
    for prompt in (await peer.ask("prompts/list"))["result"]["prompts"]:
        went_well &= "result" in await peer.ask("prompts/get", {"name": prompt["name"]})
    return went_well


# All other scenarios want the tools to be called.
DRIVERS: dict[str, Driver] = {
    "http-standard-headers": use_everything,
    "http-custom-headers": call_as_told,
    "json-schema-ref-no-deref": list_tools,
}


async def _list_tools(peer: Peer) -> list[str] | None:
    """Return the names of the server's tools; None if they cannot be listed."""
    listed = await _use(peer, "get_dynamic_tools", {"group": "up"})
    return None if listed is None else [tool["name"] for tool in json.loads(text_of(listed))["tools"]]


async def _call(peer: Peer, tool: str, arguments: Json) -> bool:
    return await _use(peer, "call_dynamic_tool", {"group": "up", "name": tool, "args": arguments}) is not None


async def _use(peer: Peer, own_tool: str, arguments: Json) -> Json:
    """Return the result of one of our own tools; None, with the reason on stderr, if it did not work."""
    answer = await peer.ask("tools/call", {"name": own_tool, "arguments": arguments})
    result = answer.get("result")
    if result is None or result.get("isError"):
        print(answer if result is None else text_of(result), file=sys.stderr)
        return None
    return result


class Outcome(NamedTuple):
    """Whether all went well, and what was said about it."""

    went_well: bool
    words: str


async def use_server(url: str, facts: Mapping[str, str], version: str = "") -> Outcome:
    """Use a server as the scenario wants it; with `version`, the proxy's client speaks that one."""
    scenario = facts.get("MCP_CONFORMANCE_SCENARIO", "")
    context = json.loads(facts.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    version = version or facts.get("MCP_CONFORMANCE_PROTOCOL_VERSION") or "2025-11-25"
    drive = DRIVERS.get(scenario, call_tools)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "dynamic-mcp.json"
        file.write_text(json.dumps(config(url, scenario, context, folder)))
        own = {"XDG_STATE_HOME": f"{name}/state", "XDG_CACHE_HOME": f"{name}/cache", **NOBODY}
        async with running(str(file), env=own) as program, connected(program, version) as peer:
            went_well = await drive(peer, context)
        return Outcome(went_well, await program.stderr())


@contextlib.asynccontextmanager
async def client_command(version: str = "") -> AsyncIterator[str]:
    """Yield the command by which a suite uses this client, which runs in this process."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = json.loads(await reader.readline())
        try:
            outcome = await use_server(asked["url"], asked["facts"], version)
        except Exception:  # noqa: BLE001 - the suite shows it
            outcome = Outcome(went_well=False, words=traceback.format_exc())
        writer.write(json.dumps(outcome._asdict()).encode())
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 20) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"{sys.executable} -I -S {STUB} {port}"
