"""The modern fixture refuses what the specification says it must, so that a proxy's mistakes are seen."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.http_client import HttpClient, Response
from tests.program import UPSTREAMS, Json, started
from tests.upstreams.conformance_modern import ModernHttp

HEADER_MISMATCH, INVALID_PARAMS, MISSING_CAPABILITY = -32020, -32602, -32021
PREFIX = "io.modelcontextprotocol/"
META: Json = {f"{PREFIX}protocolVersion": "2026-07-28", f"{PREFIX}clientCapabilities": {"elicitation": {}}}
STATEFUL = "test_input_required_result_request_state"
ARGUMENTS = {"region": " ü", "priority": 7, "dry_run": True, "query": "q"}
MIRRORED = {"Mcp_Param_Region": "=?base64?IMO8?=", "Mcp_Param_Priority": "7", "Mcp_Param_Dry_Run": "true"}


class Client:
    """Posts messages with the headers that belong to them, or with others."""

    def __init__(self, server: ModernHttp, http: HttpClient) -> None:
        self.server = server
        self._http = http
        self._ids = 0

    async def post(self, method: str, params: Json, id: Json = None, **headers: str | None) -> Response:
        """Post a request; a header that is None is left out, and `_` in its name stands for `-`."""
        self._ids += 1
        message = {"jsonrpc": "2.0", "id": id or self._ids, "method": method, "params": {"_meta": META, **params}}
        fields = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            **({"Mcp-Name": params["name"]} if "name" in params else {}),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        body = json.dumps(message).encode()
        return await self._http.request(
            "POST", "/mcp", {name: value for name, value in fields.items() if value is not None}, body
        )

    async def ask(self, method: str, params: Json, id: Json = None, **headers: str | None) -> tuple[int, Json]:
        """Post a request and return the status and the answer."""
        response = await self.post(method, params, id, **headers)
        return response.status, json.loads(await response.read())

    async def call(self, name: str, arguments: Json = None, id: Json = None, **params: Json) -> Json:
        """Call a tool without headers of its own, and return the answer."""
        return (await self.ask("tools/call", {"name": name, "arguments": arguments or {}, **params}, id))[1]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with ModernHttp() as server, HttpClient(server.url) as http:
        yield Client(server, http)


def with_headers(**changes: str | None) -> dict[str, Any]:  # Any: keywords of `ask`
    return {**MIRRORED, **changes}


async def test_a_request_whose_headers_repeat_its_body_is_served(client: Client) -> None:
    status, answer = await client.ask(
        "tools/call", {"name": "test_custom_headers", "arguments": ARGUMENTS}, **with_headers()
    )

    assert status == 200
    assert json.loads(answer["result"]["content"][0]["text"]) == ARGUMENTS


@pytest.mark.parametrize(
    "change",
    [
        {"MCP_Protocol_Version": None},
        {"MCP_Protocol_Version": "2025-11-25"},
        {"Mcp_Method": None},
        {"Mcp_Method": "TOOLS/CALL"},
        {"Mcp_Name": None},
        {"Mcp_Name": "test_simple_text"},
        {"Mcp_Name": "test_custom_headers, test_custom_headers"},
        {"Mcp_Param_Region": None},
        {"Mcp_Param_Region": "ü"},
        {"Mcp_Param_Region": "=?base64?IMO8!?="},
        {"Mcp_Param_Priority": "8"},
        {"Mcp_Param_Dry_Run": "True"},
        {"Mcp_Param_Query": "q"},
    ],
)
async def test_a_header_that_is_missing_or_wrong_is_refused(change: dict[str, str | None], client: Client) -> None:
    status, answer = await client.ask(
        "tools/call", {"name": "test_custom_headers", "arguments": ARGUMENTS}, **with_headers(**change)
    )

    assert (status, answer["error"]["code"]) == (400, HEADER_MISMATCH)


async def test_a_header_of_a_nested_property_is_wanted_only_with_the_property(client: Client) -> None:
    call = {"name": "test_nested_header", "arguments": {"target": {"tenant": "a"}}}
    without = {"name": "test_nested_header", "arguments": {"target": {"tenant": None}}}

    assert (await client.ask("tools/call", call, Mcp_Param_Tenant="a"))[0] == 200
    assert (await client.ask("tools/call", call))[0] == 400
    assert (await client.ask("tools/call", without))[0] == 200
    assert (await client.ask("tools/call", without, Mcp_Param_Tenant="a"))[0] == 400


@pytest.mark.parametrize("lacks", ["protocolVersion", "clientCapabilities"])
async def test_a_request_that_does_not_say_who_sends_it_is_refused(lacks: str, client: Client) -> None:
    meta = {name: value for name, value in META.items() if not name.endswith(lacks)}

    status, answer = await client.ask("tools/list", {"_meta": meta})

    assert (status, answer["error"]["code"]) == (400, INVALID_PARAMS)


async def test_state_is_taken_back_only_as_it_was_sent_and_for_the_same_request(client: Client) -> None:
    first = await client.call(STATEFUL, id=1)
    state = first["result"]["requestState"]
    answers = {"confirm": {"action": "accept", "content": {"ok": True}}}

    async def retry(arguments: Json, id: int, **state: str) -> Json:
        return await client.call(STATEFUL, arguments, id, inputResponses=answers, **state)

    assert (await retry({}, 2, requestState=state + "A"))["error"]["code"] == INVALID_PARAMS
    assert (await retry({"other": 1}, 3, requestState=state))["error"]["code"] == INVALID_PARAMS
    assert "error" in await retry({}, 1, requestState=state)
    assert (await retry({}, 4))["result"]["resultType"] == "input_required"
    assert (await retry({}, 5, requestState=state))["result"]["resultType"] == "complete"


async def test_a_client_is_not_asked_what_it_cannot_answer(client: Client) -> None:
    answer = await client.call("test_input_required_result_sampling")

    assert answer["error"]["code"] == MISSING_CAPABILITY
    assert answer["error"]["data"] == {"requiredCapabilities": {"sampling": {}}}


@pytest.mark.parametrize(
    ("method", "params"),
    [("subscriptions/listen", {"notifications": {}}), ("tools/call", {"name": "test_wait"})],
)
async def test_a_client_that_goes_away_cancels_its_request(method: str, params: Json, client: Client) -> None:
    response = await client.post(method, {**params, "_meta": {**META, "progressToken": 1}})
    assert (await response.next_event()) is not None
    assert [request.method for request in client.server.server.in_flight] == [method]

    response.abort()

    async with asyncio.timeout(10):
        while client.server.server.in_flight:  # noqa: ASYNC110 - the server's own task notices
            await asyncio.sleep(0.01)


async def test_over_stdio_a_cancelled_listen_hears_nothing_more() -> None:
    def message(id: int, method: str, **params: Json) -> Json:
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": {"_meta": META, **params}}

    async with started(sys.executable, str(UPSTREAMS / "conformance_modern.py")) as server:
        server.send(message(1, "subscriptions/listen", notifications={"toolsListChanged": True}))
        await server.hears("notifications/subscriptions/acknowledged")
        server.send(message(2, "tools/call", name="test_trigger_tool_change"))
        await server.line(lambda line: b'"id":2' in line)
        server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        server.send(message(3, "tools/call", name="test_trigger_tool_change"))
        await server.line(lambda line: b'"id":3' in line)

        assert len(server.heard("notifications/tools/list_changed")) == 1
