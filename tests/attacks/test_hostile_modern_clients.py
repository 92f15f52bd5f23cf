"""What hostile modern clients over HTTP cannot do to the program or to its other clients. The whole program."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dynamic_mcp.mcp.mirrored_headers import NAMED_BY, encode_value
from tests.attacks.target import Target, serving
from tests.http_client import Disconnected, HttpClient, HttpConnection, Response
from tests.http_program import HttpProgram, serving_http
from tests.mcp_client import BOTH, McpClient
from tests.program import BOUND_S, Json, full, odd, text_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory and descriptors as Linux tells them")

_MAX_GROWTH_MIB = 250
_MOST_IN_FLIGHT = 256


class ModernClient:
    """A client that says with each request who it is."""

    def __init__(self, http: HttpClient, path: str = "/mcp", name: str = "t") -> None:
        self.http = http
        self.path = path
        self._ids = itertools.count(1)
        self._meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }

    def message(self, method: str, params: Json = None) -> dict[str, Json]:
        """Return a request."""
        params = {**(params or {}), "_meta": self._meta}
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}

    async def begin(self, message: Json, **headers: str) -> HttpConnection:
        """Send a request over a connection of its own, and return the connection."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return await self.http.begin("POST", self.path, {**fields_for(message), **headers}, body, is_fresh=True)

    async def post(self, message: Json, **headers: str) -> Response:
        """Send a request, and return its answer once its head has come."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return await self.http.request("POST", self.path, {**fields_for(message), **headers}, body)

    async def request(self, method: str, params: Json = None) -> Json:
        """Send a request, and return the result or the error."""
        answer = json.loads(await (await self.post(self.message(method, params))).read())
        return answer.get("result") or answer["error"]

    async def call(self, group: str, tool: str, args: Json = None) -> Json:
        """Call a tool, and return its result."""
        return await self.request("tools/call", _call(group, tool, args))


def fields_for(message: Json) -> dict[str, str]:
    """Return the headers of a request."""
    fields = {"Accept": BOTH, "Content-Type": "application/json", "MCP-Protocol-Version": "2026-07-28"}
    if isinstance(message, dict):
        fields["Mcp-Method"] = message["method"]
        name = message["params"].get(NAMED_BY.get(message["method"], ""))
        if isinstance(name, str):
            fields["Mcp-Name"] = encode_value(name).decode()
    return fields


def _call(group: str, tool: str, args: Json = None) -> Json:
    return {"name": "call_dynamic_tool", "arguments": {"group": group, "name": tool, "args": args or {}}}


@pytest.fixture
async def program(tmp_path: Path) -> AsyncIterator[HttpProgram]:
    async with (
        asyncio.timeout(BOUND_S),
        serving_http(tmp_path, {"odd": odd(), "full": full()}, settings={"http": {}}) as program,
    ):
        yield program
        assert "Traceback" not in program.log()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A program for attacks that leave it as it was."""
    with serving(tmp_path_factory.mktemp("shared"), {"odd": odd(), "full": full()}) as target:
        yield target


@contextlib.asynccontextmanager
async def client_of(program: HttpProgram | Target, path: str = "/mcp") -> AsyncIterator[ModernClient]:
    async with HttpClient(program.origin) as http:
        yield ModernClient(http, path)


async def in_flight(client: ModernClient) -> int:
    """Return how many modern requests there are."""
    ready = await client.http.request("GET", "/ready")
    count = json.loads(await ready.read())["modern_requests"]
    assert isinstance(count, int)
    return count


async def echo(client: ModernClient, text: str = "a") -> str:
    return text_of(await client.call("odd", "echo", {"text": text}))


# --- what is not theirs --------------------------------------------------------------------------------


async def test_the_session_of_somebody_else_gives_a_modern_request_nothing_and_lives_on(program: HttpProgram) -> None:
    async with client_of(program) as client, HttpClient(program.origin) as http:
        legacy = McpClient(http)
        await legacy.initialize({"elicitation": {}})
        id, stream = await legacy.begin("tools/call", _call("full", "elicit"))
        question = await stream.hear("elicitation/create")

        answer = await client.post(client.message("tools/list"), **{"Mcp-Session-Id": legacy.id})
        assert (answer.status, "mcp-session-id" in answer.headers) == (200, False)
        assert b"elicitation" not in await answer.read()
        forged = {"jsonrpc": "2.0", "id": question, "result": {"action": "accept", "content": {"answer": "foreign"}}}
        body = json.dumps(forged).encode()
        refused = await client.post(body, **{"Mcp-Session-Id": legacy.id, "Mcp-Method": "tools/list"})
        assert refused.status == 400
        for method in ("DELETE", "GET"):
            head = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Session-Id": legacy.id, "Accept": BOTH}
            assert (await http.request(method, "/mcp", head)).status == 405

        await legacy.reply(question, {"action": "decline"})
        assert "foreign" not in json.dumps(await stream.until(id))


async def test_sixty_clients_with_equal_ids_and_names_get_their_own_answers(shared: Target) -> None:
    async with client_of(shared) as client:
        texts = [str(number) for number in range(60)]
        calls = [client.message("tools/call", _call("odd", "echo", {"text": text})) | {"id": 1} for text in texts]
        answers = await asyncio.gather(*(client.post(call) for call in calls))
        assert [text_of(json.loads(await each.read())["result"]) for each in answers] == texts


async def test_nobody_cancels_what_somebody_else_has_asked(program: HttpProgram) -> None:
    async with client_of(program) as client:
        held = await client.begin(client.message("tools/call", _call("odd", "hold")) | {"id": "known"})
        while "hold" not in json.dumps(await client.call("odd", "record")):
            pass
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "known"}}
        assert (await client.post(cancel)).status == 202
        assert await in_flight(client) == 1
        held.abort()
        while await in_flight(client):
            pass
        while "notifications/cancelled" not in json.dumps(await client.call("odd", "record")):
            pass


# --- smuggling -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b"Mcp-Name: call_dynamic_tool\r\nMcp-Name: get_dynamic_tools",
        b"Mcp-Name: call_dynamic_tool\r\nMCP-NAME: call_dynamic_tool",
        b"mcp-name: get_dynamic_tools\r\nMcp-Name: call_dynamic_tool",
        b"Mcp-Name: get_dynamic_tools",
        b"Mcp-Name: Call_Dynamic_Tool",
        b"Mcp-Name: =?base64?Z2V0?=",
        b"Mcp-Name: =?base64?Y2FsbF9keW5hbWljX3Rvb2w?=",
        b"Mcp-Name: call_dynamic_tool, call_dynamic_tool",
        b"Mcp-Name: call_dynamic_tool\r\n folded",
        b"Mcp-Name : call_dynamic_tool",
        b"Mcp_Name: call_dynamic_tool",
        b"Mcp-Name: call_dynamic_tool\0",
        b"Mcp-Name: call_dynamic_tool\r\nMcp-Method: tools/list",
        b"Mcp-Name: call_dynamic_tool\r\nMCP-Protocol-Version: 2025-11-25",
        b"Mcp-Name: call_dynamic_tool\r\nX: " + b"x" * 70_000,
        b"Mcp-Name: " + b"call_dynamic_tool" * 2000,
    ],
    ids=lambda head: repr(head[:60]),
)
async def test_what_runs_cannot_differ_from_what_the_headers_say(shared: Target, head: bytes) -> None:
    async with client_of(shared) as client:
        message = client.message("tools/call", _call("odd", "echo", {"text": "smuggled"}))
        body = json.dumps(message).encode()
        usual = b"".join(
            b"%b: %b\r\n" % (name.encode(), value.encode())
            for name, value in fields_for(message).items()
            if name != "Mcp-Name"
        )
        connection = await client.http.connect()
        length = b"Content-Length: %d\r\n" % len(body)
        connection.writer.write(
            b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n" + length + usual + head + b"\r\n\r\n" + body
        )
        refused = await connection.read_response()
        assert refused.status in (400, 431)
        assert "smuggled" not in json.dumps(await client.call("odd", "record"))


# --- what is too much ----------------------------------------------------------------------------------

_PARAMS = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":'
TOO_MUCH = [
    pytest.param(b"[" * 1_000_000 + b"]" * 1_000_000, 400, id="deep arrays"),
    pytest.param(_PARAMS + b'{"a":' * 1_000_000 + b"1" + b"}" * 1_000_001, 400, id="deep params"),
    pytest.param(_PARAMS + b'{"_meta":{' + b'"a":1,' * 2_000_000 + b'"a":1}}}', 400, id="millions of members"),
    pytest.param(b'{"x":"\\ud800"' + b',"a":1' * 2_000_000 + b"}", 400, id="millions of members, written unusually"),
    pytest.param(b" " * 100_000_000, 413, id="100 MB"),
]


@pytest.mark.parametrize(("body", "status"), TOO_MUCH)
async def test_a_modern_message_that_is_too_much_is_refused_in_bounded_memory(
    shared: Target, body: bytes, status: int
) -> None:
    async with client_of(shared) as client:
        assert await echo(client) == "a"
        before = shared.peak_mib()
        refused = await client.post(body, **{"Mcp-Method": "tools/list"})
        assert refused.status == status
        assert len(await refused.read()) < 1000
        assert shared.peak_mib() - before < _MAX_GROWTH_MIB
        assert await echo(client) == "a"


async def test_a_thousand_that_listen_are_bounded_and_cost_the_others_nothing(program: HttpProgram) -> None:
    async with client_of(program) as client, HttpClient(program.origin) as attacker:
        assert await echo(client) == "a"
        before = program.count_sockets()
        greedy = ModernClient(attacker, name="greedy")
        listens = [
            await greedy.begin(greedy.message("subscriptions/listen", {"notifications": {}})) for _ in range(1000)
        ]
        statuses = [(await each.read_response()).status for each in listens]
        assert (statuses.count(200), statuses.count(503)) == (_MOST_IN_FLIGHT, 1000 - _MOST_IN_FLIGHT)
        assert await in_flight(client) == _MOST_IN_FLIGHT
        async with client_of(program) as other:
            texts = [*map(str, range(20))]
            assert await asyncio.gather(*(echo(other, text) for text in texts)) == texts
        for each in listens:
            each.abort()
        while await in_flight(client) or program.count_sockets() > before + 5:
            pass
        assert (await greedy.request("server/discover"))["supportedVersions"]


async def test_clients_that_close_in_the_middle_leave_nothing(program: HttpProgram) -> None:
    async with client_of(program) as client, HttpClient(program.origin) as attacker:
        hasty = ModernClient(attacker)
        message = hasty.message("tools/call", _call("odd", "hold"))
        body = json.dumps(message).encode()
        for cut in range(0, len(body) + 1, 16):
            connection = await attacker.connect()
            fields = {**fields_for(message), "Content-Length": str(len(body))}
            connection.write_request("POST", "/mcp", fields)
            connection.writer.write(body[:cut])
            await connection.close() if cut % 32 else connection.abort()
        whole = [await hasty.begin(message | {"id": number}) for number in range(20)]
        for number, each in enumerate(whole):
            each.writer.write_eof() if number % 2 else each.abort()
        while await in_flight(client):
            pass
        assert await echo(client) == "a"
        for each in whole[1::2]:
            with pytest.raises(Disconnected):
                await each.read_response()


async def test_a_client_that_reads_nothing_of_its_stream_loses_it_and_nobody_else_does(program: HttpProgram) -> None:
    async with client_of(program) as client, HttpClient(program.origin) as attacker:
        lazy = ModernClient(attacker)
        message = lazy.message("tools/call", _call("full", "progress", {"steps": 3}))
        message["params"]["_meta"]["progressToken"] = "p" * 100_000
        for _ in range(30):
            (await lazy.begin(message)).pause()
        assert await echo(client) == "a"
        while await in_flight(client):
            pass
        assert await echo(client) == "a"


async def test_a_signal_ends_what_listens_in_good_order_and_what_is_held_with_an_error(tmp_path: Path) -> None:
    settings = {"http": {"shutdown_timeout": "100ms"}}
    async with (
        asyncio.timeout(BOUND_S),
        serving_http(tmp_path, {"odd": odd()}, settings=settings) as program,
        client_of(program) as client,
    ):
        listening = [
            await client.post(client.message("subscriptions/listen", {"notifications": {}})) for _ in range(20)
        ]
        held = [await client.begin(client.message("tools/call", _call("odd", "hold"))) for _ in range(5)]
        while json.dumps(await client.call("odd", "record")).count("hold") < 5:
            pass

        program.end()

        for each in listening:
            *_, last = [json.loads(event.data) async for event in each.events()]
            assert last["result"]["resultType"] == "complete"
        for connection in held:
            assert b"may have run" in await (await connection.read_response()).read()
        assert await program.process.wait() == 0
        assert "Traceback" not in program.log()
