"""Everything that goes to an upstream because of a client goes through the chain, and nothing else does."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from msgspec import Raw, structs

from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.chain import ChangingStep
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Next, Observation, Observer, Observers, Restart, UpstreamRequest
from tests.fakes import Client, FullUpstream, Json, Opener, config_of, group_config
from tests.policy.rules import access_of, person


class Recorder(Observer):
    """Notes what the chain sends."""

    def __init__(self) -> None:
        self.seen: list[UpstreamRequest] = []

    def send(self, seen: Observation, message: UpstreamRequest) -> UpstreamRequest:
        self.seen.append(message)
        return message


@contextlib.asynccontextmanager
async def _client(upstream: FullUpstream, recorder: Recorder) -> AsyncIterator[Client]:
    proxy = Proxy(config_of(group_config("a")), opener=Opener(a=[upstream]))
    proxy.observers = Observers([recorder])
    try:
        client = Client(proxy)
        await client.initialize()
        yield client
    finally:
        await proxy.close()


async def test_a_call_is_sent_with_the_tools_own_name_and_the_repaired_arguments() -> None:
    recorder = Recorder()
    async with _client(FullUpstream(), recorder) as client:
        await client.call("a", "a__echo", '{"text": "there"}')

    [message] = recorder.seen
    assert message.group.name == "a"
    assert message.request.client is client.session
    assert message.params is not None
    assert wire.text(message.params["name"]) == "echo"
    assert wire.value(message.params["arguments"]) == {"text": "there"}


async def test_every_request_to_an_upstream_passes_and_no_list_does() -> None:
    recorder = Recorder()
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


class Careless(ChangingStep):
    """Allows everything, with arguments of its own, and looks at nothing."""

    async def __call__(self, call: UpstreamRequest, next: Next, restart: Restart) -> Frame:
        params = {**(call.params or {}), "arguments": Raw(b'{"text":"secret"}')}
        return await restart(structs.replace(call, params=params), next)


async def test_arguments_that_were_changed_when_a_person_was_asked_are_decided_again() -> None:
    upstream = FullUpstream()
    rules = [{"effect": "ask"}, {"effect": "deny", "arguments": {"$.text": {"enum": ["secret"]}}}]
    config = config_of(group_config("a"), access=access_of(roles={"dev": rules}))
    proxy = Proxy(config, opener=Opener(a=[upstream]), steps={"approval": Careless})
    try:
        client = Client(proxy, authentication=person("ann", "dev"))
        await client.initialize()
        result = await client.call("a", "echo", {"text": "there"})
    finally:
        await proxy.close()
    assert result["isError"]
    assert upstream.heard("tools/call") == []
