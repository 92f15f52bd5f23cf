"""Observers hear of each request once when it begins and once when it ends, and of what is sent because of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator

import pytest
from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp.config.access import LOCAL_NAME, Access, AccessRule, Condition, Effect
from dynamic_mcp.errors import AccessDenied, InvalidArguments, NotFound
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Event, Observation, Observer, Observers, UpstreamRequest
from tests.fakes import Client, FakeUpstream, FullUpstream, Json, Opener, config_of, group_config, settled, text_of

DONE: Json = {"content": [{"type": "text", "text": "done"}]}


class Diary(Observer):
    """Notes all that it hears; what it is told to `refuse` is not sent."""

    def __init__(self, name: str = "", order: list[str] | None = None, refuse: str = "") -> None:
        self.heard: list[str] = order if order is not None else []
        self.sent: list[UpstreamRequest] = []
        self.seen: list[Observation] = []
        self.errors: list[BaseException | None] = []
        self._name = name
        self._refuse = refuse

    def begin(self, seen: Observation) -> None:
        self.heard.append(f"{self._name}begin {seen.request.method}")

    def send(self, seen: Observation, message: UpstreamRequest) -> UpstreamRequest:
        if self._refuse and self._refuse in message.label:
            raise InvalidArguments("this is not recorded")
        self.heard.append(f"{self._name}send {message.group.name}")
        self.sent.append(message)
        return message

    def receive(self, seen: Observation, answer: Frame | None, error: BaseException | None) -> None:
        self.heard.append(f"{self._name}receive {'answer' if answer is not None else type(error).__name__}")

    def end(self, seen: Observation, answer: Frame | None, error: BaseException | None) -> None:
        self.heard.append(f"{self._name}end {'answer' if answer is not None else type(error).__name__}")
        self.seen.append(seen)
        self.errors.append(error)

    def note(self, event: Event) -> None:
        self.heard.append(f"{self._name}note {event.name}")


@contextlib.asynccontextmanager
async def _observed(opener: Opener, *observers: Observer, access: Access | None = None) -> AsyncIterator[Client]:
    config = config_of(*(group_config(name) for name in opener.plan))
    if access is not None:
        config = replace(config, access=access)
    proxy = Proxy(config, opener=opener)
    try:
        client = Client(proxy)
        await client.initialize()
        await settled()
        proxy.observers = Observers(observers)
        yield client
    finally:
        await proxy.close()


async def test_a_call_is_told_from_its_beginning_to_its_end() -> None:
    order: list[str] = []
    async with _observed(Opener(a=[FullUpstream()]), Diary("1 ", order), Diary("2 ", order)) as client:
        await client.call("a", "echo", {"text": "there"})

    assert order == [
        "1 begin tools/call",
        "2 begin tools/call",
        "1 send a",
        "2 send a",
        "2 receive answer",
        "1 receive answer",
        "2 end answer",
        "1 end answer",
    ]


async def test_what_was_observed_is_freed_when_the_request_has_ended() -> None:
    alive: list[int] = []

    class Counter(Observer):
        def begin(self, seen: Observation) -> None:
            alive.append(sum(isinstance(each, Observation) for each in gc.get_objects()))

    proxy = Proxy(config_of(group_config("up")), opener=Opener(up=[FakeUpstream({"tools/call": DONE})]))
    proxy.observers = Observers([Counter()])
    client = Client(proxy)
    await client.initialize()
    for _ in range(3):
        await client.call("up", "echo", {})
        gc.collect()
    await proxy.close()
    assert alive[-1] == alive[-2]


async def test_the_target_is_told_by_the_servers_own_name_with_the_final_arguments() -> None:
    diary = Diary()
    async with _observed(Opener(a=[FullUpstream()]), diary) as client:
        await client.call("a", "a__echo", '{"text": "there"}')

    [seen] = diary.seen
    assert seen.group is not None
    assert (seen.group.name, seen.name, seen.asked) == ("a", "echo", "a__echo")
    assert seen.params is not None
    assert wire.value(seen.params["arguments"]) == {"text": "there"}
    assert wire.text(seen.request.id) == "c2"
    assert seen.sent is not None


async def test_what_an_observer_refuses_reaches_no_upstream() -> None:
    upstream, diary = FullUpstream(), Diary(refuse="echo")
    async with _observed(Opener(a=[upstream]), diary) as client:
        assert "this is not recorded" in text_of(await client.call("a", "echo", {"text": "there"}))

    assert upstream.heard("tools/call") == []
    assert [type(error) for error in diary.errors] == [InvalidArguments]


async def test_what_an_observer_changes_is_what_is_sent() -> None:
    class Stamp(Observer):
        def send(self, seen: Observation, message: UpstreamRequest) -> UpstreamRequest:
            return replace(message, params={**(message.params or {}), "_meta": Raw(b'{"mark":1}')})

    upstream = FullUpstream()
    async with _observed(Opener(a=[upstream]), Stamp()) as client:
        await client.call("a", "echo", {"text": "there"})

    assert upstream.heard("tools/call")[0]["params"]["_meta"] == {"mark": 1}


async def test_a_request_that_never_leaves_the_proxy_is_told_without_a_target() -> None:
    diary = Diary()
    async with _observed(Opener(a=[FullUpstream()]), diary) as client:
        await client.call("nobody", "echo")

    assert diary.heard == ["begin tools/call", "end NotFound"]
    assert isinstance(diary.errors[0], NotFound)
    assert diary.seen[0].group is None


async def test_a_cancelled_call_is_told_as_cancelled() -> None:
    upstream, diary = FakeUpstream(), Diary()
    async with _observed(Opener(a=[upstream]), diary) as client:
        arguments = {"group": "a", "name": "echo"}
        params = {"name": "call_dynamic_tool", "arguments": arguments}
        client.send({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params})
        await upstream.hears("tools/call")
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}})
        await settled()

    assert diary.heard == ["begin tools/call", "send a", "receive CancelledError", "end CancelledError"]
    assert isinstance(diary.errors[0], asyncio.CancelledError)


async def test_of_several_that_are_asked_for_a_resource_the_one_that_has_it_counts() -> None:
    def read(params: Json) -> Json:
        return {"contents": [{"uri": params["uri"], "text": "here"}]}

    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"resources": {}},
        "serverInfo": {"name": "fake", "version": "1"},
    }
    has = FakeUpstream(
        {
            "initialize": hello,
            "resources/list": {"resources": []},
            "resources/templates/list": {"resourceTemplates": []},
            "resources/read": read,
        }
    )
    lacks = FakeUpstream(
        {
            "initialize": hello,
            "resources/list": {"resources": []},
            "resources/templates/list": {"resourceTemplates": []},
        }
    )
    diary = Diary()
    async with _observed(Opener(a=[has], b=[lacks]), diary) as client:
        asked = asyncio.ensure_future(client.request("resources/read", {"uri": "x://unlisted"}))
        await lacks.hears("resources/read")
        await asked

    [seen] = diary.seen
    assert seen.group is not None
    assert (seen.group.name, seen.name) == ("a", "x://unlisted")


@pytest.mark.parametrize(("effect", "default"), [(Effect.DENY, Effect.ALLOW), (Effect.ALLOW, Effect.DENY)])
async def test_the_decision_and_its_rule_are_told(effect: Effect, default: Effect) -> None:
    only_here = (Condition("$.text", ("there",)),)
    rule = AccessRule("the-rule", effect, ("a",), ("echo",), None, None, arguments=only_here)
    access = Access(default, roles={"r": (rule,)}, people={LOCAL_NAME: ("r",)})
    diary = Diary()
    async with _observed(Opener(a=[FullUpstream()]), diary, access=access) as client:
        await client.call("a", "echo", {"text": "there"})

    [seen] = diary.seen
    assert (seen.decision, seen.rule) == (effect.value, "the-rule")
    assert isinstance(diary.errors[0], AccessDenied) == (effect is Effect.DENY)
