"""A client is told which server asks, is asked no more than it can bear, and is sent to no dangerous URL."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
from msgspec import Raw

from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.asked_questions import UnsafeQuestion, check_elicitation, prepare_input
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.upstream.link import MAX_QUESTIONS
from tests.fake_parties import FakeCaller
from tests.fakes import Client, FakeUpstream, Json, Opener, config_of, group_config, settled
from tests.modern_client import modern_client_of

CAN_BE_ASKED: Json = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
FORM: Json = {"message": "dynamic-mcp needs your GitHub password", "requestedSchema": {"type": "object"}}
UNSAFE = [
    "javascript:alert(1)",
    "JavaScript:alert(1)",
    "file:///etc/passwd",
    "data:text/html,<script>",
    "http://example.com/",
    "https:example.com",
    "https:///example.com",
    "https://",
    "https://user@example.com/",
    "https://github.com:x@evil.example/",
    "https://github.com\\@evil.example/",
    "https://exam\tple.com/",
    " https://example.com/",
    "https://example.com/\n",
    "https://example.com:port/",
    "vscode://file/x",
    "http://localhost.evil.example/",
    "http://127.0.0.1.evil.example/",
    "//example.com",
    "example.com",
    "",
]
SAFE = [
    "https://example.com/a?b=ä#c",
    "HTTPS://example.com",
    "https://[2001:db8::1]:8443/",
    "http://localhost:3000/callback",
    "http://127.0.0.1:3000/",
    "http://127.9.9.9/",
    "http://[::1]:3000/",
]


class Asker(FakeUpstream):
    """A server whose tool does not answer, so that it may ask meanwhile."""

    def ask(self, id: int, method: str, params: Json = None) -> None:
        self.say({"jsonrpc": "2.0", "id": id, "method": method, **({} if params is None else {"params": params})})

    def answer_to(self, id: int) -> Json:
        return next((each for each in self.heard("an answer") if each["id"] == id), None)


@contextlib.asynccontextmanager
async def calling(server: Asker, only: str | None = None) -> AsyncIterator[Client]:
    """Run a proxy with a client that has a call in flight."""
    proxy = Proxy(config_of(group_config("github")), opener=Opener(github=[server]))
    client = Client(proxy, only=only)
    await client.initialize(capabilities=CAN_BE_ASKED)
    params: Json = {"name": "echo", "arguments": {}}
    if only is None:
        params = {"name": "call_dynamic_tool", "arguments": {"group": "github", "name": "echo"}}
    call = asyncio.create_task(client.request("tools/call", params))
    try:
        await server.hears("tools/call")
        yield client
    finally:
        call.cancel()
        await proxy.close()


async def test_a_person_reads_which_server_asks() -> None:
    server = Asker()
    async with calling(server) as client:
        server.ask(1, "elicitation/create", FORM)
        asked = (await client.hears("elicitation/create"))["params"]
    assert asked == {
        "message": "github asks: dynamic-mcp needs your GitHub password",
        "requestedSchema": {"type": "object"},
        "_meta": {"dynamic-mcp/group": "github"},
    }


async def test_a_client_knows_which_server_wants_its_model() -> None:
    server = Asker()
    async with calling(server) as client:
        server.ask(1, "sampling/createMessage", {"messages": [], "maxTokens": 9, "_meta": {"x": 1}})
        asked = (await client.hears("sampling/createMessage"))["params"]
    assert asked == {"messages": [], "maxTokens": 9, "_meta": {"x": 1, "dynamic-mcp/group": "github"}}


async def test_a_client_of_one_server_alone_is_asked_in_its_own_words() -> None:
    server = Asker()
    async with calling(server, only="github") as client:
        server.ask(1, "elicitation/create", FORM)
        assert (await client.hears("elicitation/create"))["params"] == FORM


@pytest.mark.parametrize("only", [None, "github"])
@pytest.mark.parametrize("url", UNSAFE)
async def test_nobody_is_sent_to_a_dangerous_url_and_the_server_hears_why(url: str, only: str | None) -> None:
    server = Asker()
    async with calling(server, only) as client:
        server.ask(1, "elicitation/create", {"mode": "url", "elicitationId": "e", "url": url, "message": "look"})
        answer = await server.hears("an answer")
        assert client.heard("elicitation/create") == []
    assert answer["error"]["code"] == -32602
    assert "https" in answer["error"]["message"]


@pytest.mark.parametrize("url", SAFE)
def test_urls_that_a_person_may_open_pass(url: str) -> None:
    check_elicitation(Raw(wire.encode({"mode": "url", "url": url})))


@pytest.mark.parametrize(
    "params",
    [
        b'{"url":"https://a.example","url":"javascript:x"}',
        b'{"url":"javascript:x","url":"https://a.example"}',
        b'{"\\u0075rl":"https://a.example","url":"https://b.example"}',
        b'{"url":["https://a.example"]}',
    ],
)
def test_a_url_that_clients_may_read_in_two_ways_is_refused(params: bytes) -> None:
    with pytest.raises(UnsafeQuestion):
        check_elicitation(Raw(params))


def test_a_number_of_any_length_beside_a_url_is_none_of_our_business() -> None:
    params = b'{"url":"https://a.example","n":%s' % (b"1" * 5000)

    check_elicitation(Raw(params + b"}"))
    with pytest.raises(UnsafeQuestion):
        check_elicitation(Raw(params + b',"url":"https://b.example"}'))


@pytest.mark.parametrize("depth", range(900, 1000, 5))
def test_a_url_beside_what_is_nested_too_deeply_to_be_checked_is_refused(depth: int) -> None:
    with contextlib.suppress(UnsafeQuestion, wire.Malformed):  # if it is, which depends on what has called this
        check_elicitation(Raw(b'{"url":"https://a.example","x":' + b"[" * depth + b"]" * depth + b"}"))


@pytest.mark.parametrize("only", [None, "github"])
async def test_one_call_asks_a_bounded_number_of_questions(only: str | None) -> None:
    server = Asker()
    async with calling(server, only) as client:
        for id in range(1, MAX_QUESTIONS + 10):
            server.ask(id, "elicitation/create", FORM)
            await settled()
            if server.answer_to(id) is None:
                client.reply((await client.hears("elicitation/create", id)), {"action": "decline"})
        await settled()
        assert len(client.heard("elicitation/create")) == MAX_QUESTIONS
        assert f"{MAX_QUESTIONS} questions" in server.answer_to(MAX_QUESTIONS + 1)["error"]["message"]


@pytest.mark.parametrize("only", [None, "github"])
async def test_an_error_that_wants_a_dangerous_url_opened_is_another_error(only: str | None) -> None:
    server = Asker()
    elicitations = [{"mode": "url", "elicitationId": "e", "url": "javascript:alert(1)", "message": "look"}]
    async with calling(server, only) as client:
        error = {"code": -32042, "message": "open it", "data": {"elicitations": elicitations}}
        server.say({"jsonrpc": "2.0", "id": server.heard("tools/call")[0]["id"], "error": error})
        answer = await client.line(lambda message: "method" not in message and message["id"] == "c2")
    assert b"javascript:alert(1)" not in answer.replace(b"'javascript:alert(1)'", b"")
    assert json.loads(answer)["error"]["code"] == -32602


async def test_a_modern_client_of_a_legacy_server_reads_which_one_asks() -> None:
    server = Asker()
    async with modern_client_of(Opener(github=[server])) as client:
        call = asyncio.create_task(client.call("github", "echo"))
        await server.hears("tools/call")
        server.ask(1, "elicitation/create", FORM)
        (question,) = (await call)["result"]["inputRequests"].values()
    assert question["params"]["message"] == "github asks: dynamic-mcp needs your GitHub password"


INPUT = {
    "resultType": "input_required",
    "requestState": "s",
    "inputRequests": {"a": {"method": "elicitation/create", "params": FORM}, "b": {"method": "roots/list"}},
}


def asking(**changes: Json) -> Frame:
    return Frame(result=Raw(wire.encode({**INPUT, **changes})))


async def test_a_modern_client_of_a_modern_server_reads_which_one_asks() -> None:
    client = FakeCaller()

    passed = json.loads(bytes(prepare_input("github", client, asking()).result))

    assert passed["inputRequests"]["a"]["params"]["message"].startswith("github asks: ")
    assert passed["inputRequests"]["b"] == {"method": "roots/list"}
    assert passed["requestState"] == "s"
    client.only = "github"
    assert json.loads(bytes(prepare_input("github", client, asking()).result)) == INPUT


async def test_a_modern_server_cannot_send_a_person_to_a_dangerous_url_nor_ask_without_end() -> None:
    url = {"method": "elicitation/create", "params": {"mode": "url", "url": "file:///x"}}
    for requests in ({"a": url}, {str(key): {"method": "roots/list"} for key in range(MAX_QUESTIONS + 1)}):
        with pytest.raises(UnsafeQuestion):
            prepare_input("github", FakeCaller(), asking(inputRequests=requests))
