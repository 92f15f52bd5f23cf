"""States of modern servers pass through unchanged, also where the server is a dynamic-mcp that has parked a call."""

from __future__ import annotations

import pytest

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.resolved import GroupConfig
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.upstream.any_link import AnyLink
from dynamic_mcp.upstream.handshake import Era, ServerInfo
from dynamic_mcp.upstream.link import LinkOwner
from tests.fakes import Json, config_of, group_config, tool
from tests.modern_client import ModernClient, retry_of
from tests.upstream.modern import ModernUpstream, complete, open_modern

FORM: Json = {"mode": "form", "message": "Which?", "requestedSchema": {"type": "object", "properties": {}}}


@pytest.mark.parametrize(
    "state", ["s", "dynamic-mcp.0123456789abcdef.c2VhbGVk", "upstream:x", "upstream:dynamic-mcp.0.0", ""]
)
async def test_a_server_gets_back_the_state_that_it_has_given(state: str) -> None:
    states: list[Json] = []

    def call(params: Json) -> Json:
        if "inputResponses" in params:
            states.append(params.get("requestState"))
            return complete(content=[{"type": "text", "text": "fine"}])
        question = {"method": "elicitation/create", "params": FORM}
        return {"resultType": "input_required", "inputRequests": {"q": question}, "requestState": state}

    lists = {"tools/list": complete(tools=[tool("ask")], ttlMs=60_000, cacheScope="public")}
    upstream = ModernUpstream({"tools": {}}, **lists, **{"tools/call": call})

    async def open_link(
        config: GroupConfig, listener: LinkOwner, hello: ClientInfo, *, lacks: Era | None = None
    ) -> tuple[AnyLink, ServerInfo]:
        return await open_modern(upstream, listener, hello)

    proxy = Proxy(config_of(group_config("up")), opener=open_link)
    try:
        client = ModernClient(proxy)
        asked = await client.call("up", "ask")
        answered = await client.call("up", "ask", **retry_of(asked, q={"action": "accept", "content": {}}))
        assert answered["result"]["content"][0]["text"] == "fine"
    finally:
        await proxy.close()
    assert states == [state]
