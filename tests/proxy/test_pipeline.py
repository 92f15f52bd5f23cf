"""Everything that goes to an upstream because of a client goes through the pipeline, and nothing else does."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.pipeline import Middleware, Next, UpstreamRequest
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, FullUpstream, Json, Opener, config_of, group_config, text_of


class Recorder:
    """A middleware that notes what passes, and refuses tools by name."""

    def __init__(self, name: str, order: list[str], refuses: str = "") -> None:
        self.seen: list[UpstreamRequest] = []
        self._name = name
        self._order = order
        self._refuses = refuses

    async def __call__(self, message: UpstreamRequest, following: Next) -> Frame:
        self.seen.append(message)
        self._order.append(f"{self._name} in")
        if self._refuses and self._refuses in message.label:
            raise InvalidArguments("refused here")
        answer = await following(message)
        self._order.append(f"{self._name} out")
        return answer


@contextlib.asynccontextmanager
async def _client(upstream: FullUpstream, *middlewares: Middleware) -> AsyncIterator[Client]:
    proxy = Proxy(config_of(group_config("a")), opener=Opener(a=[upstream]), middlewares=middlewares)
    try:
        client = Client(proxy)
        await client.initialize()
        yield client
    finally:
        await proxy.close()


async def test_middlewares_are_passed_from_the_first_to_the_last_and_back() -> None:
    order: list[str] = []
    async with _client(FullUpstream(), Recorder("one", order), Recorder("two", order)) as client:
        assert text_of(await client.call("a", "echo", {"text": "there"})) == "there"

    assert order == ["one in", "two in", "two out", "one out"]


async def test_a_middleware_sees_the_tools_own_name_and_the_repaired_arguments() -> None:
    recorder = Recorder("one", [])
    async with _client(FullUpstream(), recorder) as client:
        await client.call("a", "a__echo", '{"text": "there"}')

    [message] = recorder.seen
    assert message.group.name == "a"
    assert message.request.client is client.session
    assert message.params is not None
    assert wire.text(message.params["name"]) == "echo"
    assert wire.value(message.params["arguments"]) == {"text": "there"}


async def test_what_a_middleware_refuses_reaches_no_upstream() -> None:
    upstream = FullUpstream()
    async with _client(upstream, Recorder("one", [], refuses="echo")) as client:
        result = await client.call("a", "echo", {"text": "there"})

    assert result["isError"]
    assert "refused here" in text_of(result)
    assert upstream.heard("tools/call") == []


async def test_every_request_to_an_upstream_passes_and_no_list_does() -> None:
    recorder = Recorder("one", [])
    requests: dict[str, Json] = {
        "resources/read": {"uri": "full://text"},
        "resources/subscribe": {"uri": "full://text"},
        "resources/unsubscribe": {"uri": "full://text"},
        "prompts/get": {"name": "greet", "arguments": {"city": "Bonn"}},
        "completion/complete": {
            "ref": {"type": "ref/prompt", "name": "greet"},
            "argument": {"name": "city", "value": "B"},
        },
        "tasks/list": {},
    }
    async with _client(FullUpstream(), recorder) as client:
        lists = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")
        for method in lists:
            await client.request(method)
        assert recorder.seen == []
        await client.call("a", "echo", {"text": "there"})
        for method, params in requests.items():
            await client.request(method, params)

    assert {message.method for message in recorder.seen} == {"tools/call", *requests}
