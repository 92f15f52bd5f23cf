"""The conformance suite's idea of a client: `client.py URL` uses the server there through the whole proxy.

The suite names the scenario and its facts by MCP_CONFORMANCE_SCENARIO and MCP_CONFORMANCE_CONTEXT. Where a
person is to log in, the link is followed as a browser would follow it with a person who agrees.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx2

from tests.program import Program, running, text_of

Json = Any  # whatever JSON the suite writes down
CAN = {"elicitation": {"form": {"applyDefaults": True}, "url": {}}, "roots": {}, "sampling": {}}
ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}}
DOCUMENT = "https://conformance-test.local/client-metadata.json"
NOBODY = {"BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": "", "SSH_CONNECTION": "here"}
CALLED_AT_MOST = 3


def config(url: str, scenario: str, context: Json, folder: Path) -> Json:
    """Return what a person would write into the config, given these facts."""
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
    if "cimd" in scenario:
        oauth["client_metadata_url"] = DOCUMENT
    return {"mcpServers": {"up": {"url": url, "oauth": oauth}}, "settings": {"retry": {"attempts": 1}}}


async def agree(program: Program) -> None:
    """Answer every question of the proxy as a person does who agrees with everything."""
    answered = 0
    while True:
        asked = program.heard("elicitation/create")[answered:]
        for question in asked:
            params = question["params"]
            if params.get("mode") == "url":
                async with httpx2.AsyncClient(follow_redirects=True) as browser:
                    await browser.get(params["url"])
                program.reply(question, {"action": "accept"})
            else:
                fields = params["requestedSchema"]["properties"]
                content = {name: field["default"] for name, field in fields.items() if "default" in field}
                program.reply(question, {"action": "accept", "content": content})
        answered += len(asked)
        await program.hears("elicitation/create", answered + 1)


async def use(program: Program) -> bool:
    """Call every tool that the server has, and tell whether all went well."""
    await program.initialize(capabilities=CAN)
    arguments = {"name": "get_dynamic_tools", "arguments": {"group": "up"}}
    listed = (await program.request("tools/call", arguments))["result"]
    if listed.get("isError"):
        print(text_of(listed), file=sys.stderr)
        return False
    went_well = True
    for tool in json.loads(text_of(listed))["tools"]:
        result = await program.call("up", tool["name"], ARGUMENTS.get(tool["name"], {}))
        if result.get("isError"):
            print(text_of(result), file=sys.stderr)
            went_well = False
    return went_well


async def main(url: str) -> bool:
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "dynamic-mcp.json"
        file.write_text(json.dumps(config(url, scenario, context, folder)))
        own = {"XDG_STATE_HOME": f"{name}/state", "XDG_CACHE_HOME": f"{name}/cache", **NOBODY}
        async with running(str(file), env=own) as program:
            person = asyncio.create_task(agree(program))
            try:
                went_well = await use(program)
            finally:
                person.cancel()
        print(await program.stderr(), file=sys.stderr)
    return went_well


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main(sys.argv[1])) else 1)
