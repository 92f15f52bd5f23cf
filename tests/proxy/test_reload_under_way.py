"""A config that comes while a call is under way holds for the rest of its way."""

from __future__ import annotations

import asyncio
import threading
from typing import ClassVar

import pytest
from msgspec import Raw

from dynamic_mcp.features.redaction.config import Redact
from dynamic_mcp.features.redaction.redactor import Redactor
from dynamic_mcp.middleware import CallRequest, CallResult, Middleware, Next
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Observation, Observer, Observers, UpstreamRequest
from tests.fakes import BOUND_S, Client, FakeUpstream, Opener, config_of, group_config
from tests.features.plugins.scene import ANSWERS, proxy_of, upstream, use
from tests.policy.rules import access_of, person

EFFECTS = pytest.mark.parametrize("effect", ["ask", "deny"])
RULES = {"redact": (Redact("redact[0]", places=("arguments",), pattern="secret", replacement="***"),)}
ABLE = {"tools": {"listChanged": True}, "tasks": {"requests": {"tools": {"call": {}}}}}
TASK = {"taskId": "t1", "status": "working", "ttl": None, "createdAt": "2026-01-01T00:00:00Z"}


class Slow(Middleware):
    """Holds calls up, and changes those that say so."""

    has_call = asyncio.Event()
    may_go_on = asyncio.Event()

    async def call(self, request: CallRequest, next: Next) -> CallResult:
        Slow.has_call.set()
        await Slow.may_go_on.wait()
        if request.arguments.get("text") == "change":
            request = request.replace(arguments={"text": "changed"})
        return await next(request)


@pytest.fixture(autouse=True)
def hold_calls_up() -> None:
    Slow.has_call, Slow.may_go_on = asyncio.Event(), asyncio.Event()


@EFFECTS
@pytest.mark.parametrize("text", ["keep", "change"])
@pytest.mark.parametrize("plugins", [(use(Slow),), (use(Slow), use(Slow))], ids=["one", "two"])
async def test_the_first_access_rules_hold_for_a_call_that_is_in_a_plug_in(
    effect: str, text: str, plugins: tuple[object, ...]
) -> None:
    server = upstream()
    rules = access_of(roles={"dev": [{}, {"tools": ["echo"], "effect": effect}]})
    before, after = (config_of(group_config("a"), middleware=plugins, access=access) for access in (None, rules))
    async with proxy_of(before, Opener(a=[server])) as proxy, asyncio.timeout(BOUND_S):
        client = Client(proxy, authentication=person("ann", "dev"))
        await client.initialize()
        calling = asyncio.create_task(client.call("a", "echo", {"text": text}))
        await Slow.has_call.wait()
        await proxy.prepare(after)
        proxy.apply(after)
        Slow.may_go_on.set()

        assert (await calling)["isError"]
        assert server.heard("tools/call") == []


async def test_a_plug_in_sees_a_call_once_whatever_the_config_becomes_meanwhile() -> None:
    server = upstream()
    rules = access_of(roles={"dev": [{}]})
    before, after = (config_of(group_config("a"), middleware=(use(Slow),), access=access) for access in (None, rules))
    async with proxy_of(before, Opener(a=[server])) as proxy, asyncio.timeout(BOUND_S):
        client = Client(proxy, authentication=person("ann", "dev"))
        await client.initialize()
        calling = asyncio.create_task(client.call("a", "echo", {"text": "change"}))
        await Slow.has_call.wait()
        Slow.has_call.clear()
        await proxy.prepare(after)
        proxy.apply(after)
        Slow.may_go_on.set()
        await calling

        assert not Slow.has_call.is_set()
        (call,) = server.heard("tools/call")
        assert call["params"]["arguments"] == {"text": "changed"}


class Following(Middleware):
    """Notes the arguments of calls."""

    seen: ClassVar[list[object]] = []

    async def call(self, request: CallRequest, next: Next) -> CallResult:
        Following.seen.append(dict(request.arguments))
        return await next(request)


async def test_the_next_plug_in_sees_what_the_first_has_changed_whatever_the_config_becomes_meanwhile() -> None:
    Following.seen.clear()
    server, plugins = upstream(), (use(Slow), use(Following))
    before, after = (
        config_of(group_config("a"), middleware=plugins, access=access)
        for access in (None, access_of(roles={"dev": [{}]}))
    )
    async with proxy_of(before, Opener(a=[server])) as proxy, asyncio.timeout(BOUND_S):
        client = Client(proxy, authentication=person("ann", "dev"))
        await client.initialize()
        calling = asyncio.create_task(client.call("a", "echo", {"text": "change"}))
        await Slow.has_call.wait()
        await proxy.prepare(after)
        proxy.apply(after)
        Slow.may_go_on.set()

        assert not (await calling).get("isError")
        assert Following.seen == [{"text": "changed"}]


class SlowRedactor(Redactor):
    """Holds up the thread that replaces in long arguments."""

    def __init__(self) -> None:
        super().__init__(RULES["redact"])
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def redact_arguments(self, tool: str | None, arguments: Raw | None) -> Raw | None:
        if threading.current_thread() is not threading.main_thread():
            self.has_begun.set()
            assert self.may_end.wait(BOUND_S)
        return super().redact_arguments(tool, arguments)


class Lengthening(Middleware):
    """Makes arguments so long that they are redacted in a thread."""

    async def call(self, request: CallRequest, next: Next) -> CallResult:
        return await next(request.replace(arguments={"text": "a secret" + "!" * 50_000}))


@pytest.mark.parametrize("effect", [None, "ask", "deny"])
async def test_long_arguments_of_a_plug_in_are_redacted_and_decided_by_the_config_of_then(effect: str | None) -> None:
    server, redactor = upstream(), SlowRedactor()
    plugins, group = (use(Lengthening),), group_config("a", rules=RULES)
    rules = access_of(roles={"dev": [{}, {"tools": ["echo"], "effect": effect}]}) if effect else None
    async with proxy_of(config_of(group, middleware=plugins), Opener(a=[server])) as proxy, asyncio.timeout(BOUND_S):
        client = Client(proxy, authentication=person("ann", "dev"))
        await client.initialize()
        proxy.view_for(client.session)["a"].call_rules["redaction"] = redactor
        calling = asyncio.create_task(client.call("a", "echo", {"text": "short"}))
        assert await asyncio.to_thread(redactor.has_begun.wait, BOUND_S)
        if rules is not None:
            after = config_of(group, middleware=plugins, access=rules)
            await proxy.prepare(after)
            proxy.apply(after)
        redactor.may_end.set()

        assert bool((await calling).get("isError")) is (effect is not None)
        sent = [each["params"]["arguments"] for each in server.heard("tools/call")]
        assert sent == ([] if effect else [{"text": "a ***" + "!" * 50_000}])


@EFFECTS
async def test_the_first_access_rules_hold_for_a_call_whose_long_arguments_are_redacted(effect: str) -> None:
    server, redactor = upstream(), SlowRedactor()
    access = access_of(roles={"dev": [{}, {"tools": ["echo"], "effect": effect}]})
    proxy = Proxy(config_of(group_config("a", rules=RULES)), opener=Opener(a=[server]))
    try:
        client = Client(proxy, authentication=person("ann", "dev"))
        await client.initialize()
        proxy.view_for(client.session)["a"].call_rules["redaction"] = redactor
        calling = asyncio.create_task(client.call("a", "echo", {"text": "x" * 50_000}))
        assert await asyncio.to_thread(redactor.has_begun.wait, BOUND_S)
        proxy.apply(config_of(group_config("a", rules=RULES), access=access))
        redactor.may_end.set()

        assert (await calling)["isError"]
        assert server.heard("tools/call") == []
    finally:
        redactor.may_end.set()
        await proxy.close()


async def test_a_task_that_began_before_the_first_access_rules_can_be_asked_for_afterwards() -> None:
    answers = {**ANSWERS, "initialize": {**ANSWERS["initialize"], "capabilities": ABLE}, "tasks/get": TASK}
    answers.pop("tools/call")
    server = FakeUpstream(answers, tools=("echo",))
    proxy = Proxy(config_of(group_config("a")), opener=Opener(a=[server]))
    try:
        client = Client(proxy, authentication=person("ann", "dev"))
        await client.initialize()
        params = {"name": "call_dynamic_tool", "arguments": {"group": "a", "name": "echo"}, "task": {}}
        calling = asyncio.create_task(client.request("tools/call", params))
        call = await server.hears("tools/call")
        proxy.apply(config_of(group_config("a"), access=access_of(roles={"dev": [{"tools": ["echo"]}]})))
        server.say({"jsonrpc": "2.0", "id": call["id"], "result": {"task": TASK}})
        await calling

        assert "result" in await client.request("tasks/get", {"taskId": "t1"})
    finally:
        await proxy.close()


class Notes(Observer):
    """Notes what is sent, and which groups requests went to."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.groups: list[str] = []

    def send(self, seen: Observation, message: UpstreamRequest) -> UpstreamRequest:
        self.sent.append(message.method)
        return message

    def end(self, seen: Observation, answer: object, error: BaseException | None) -> None:
        self.groups += [] if seen.group is None else [seen.group.name]


async def test_a_request_that_began_while_it_was_observed_is_observed_to_its_end() -> None:
    answers = {**ANSWERS}
    listed = answers.pop("tools/list", {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]})
    server = FakeUpstream(answers, tools=("echo",))
    server.answers.pop("tools/list")
    proxy = Proxy(config_of(group_config("a")), opener=Opener(a=[server]))
    notes = Notes()
    proxy.observers = Observers([notes])
    try:
        client = Client(proxy)
        await client.initialize()
        calling = asyncio.create_task(client.call("a", "echo", {"text": "x"}))
        reading = await server.hears("tools/list")
        proxy.observers = None
        server.say({"jsonrpc": "2.0", "id": reading["id"], "result": listed})
        await calling
    finally:
        await proxy.close()
    assert (notes.sent, notes.groups) == (["tools/call"], ["a"])


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("x/custom", {"name": 5}),
        ("x/custom", {"type": {"a": 1}, "URI": "q"}),
        ("x/custom", {"ref": 7}),
        ("tools/call", {"name": "echo", "arguments": {"text": "x"}, "type": 3}),
    ],
)
async def test_odd_parameters_pass_where_everything_is_allowed(method: str, params: dict[str, object]) -> None:
    server = FakeUpstream({**ANSWERS, "x/custom": {"ok": True}}, tools=("echo",))
    access = access_of(roles={"dev": [{"tools": ["echo"]}], "free": [{}]})
    proxy = Proxy(config_of(group_config("a"), access=access), opener=Opener(a=[server]))
    try:
        client = Client(proxy, authentication=person("ann", "free"), only="a")
        await client.initialize()

        assert "result" in await client.request(method, params)
    finally:
        await proxy.close()


async def test_a_malformed_request_is_observed_with_its_target() -> None:
    access = access_of(roles={"dev": [{"tools": ["echo"]}]})
    proxy = Proxy(config_of(group_config("a"), access=access), opener=Opener(a=[upstream()]))
    notes = Notes()
    proxy.observers = Observers([notes])
    try:
        client = Client(proxy, authentication=person("ann", "dev"), only="a")
        await client.initialize()
        notes.groups.clear()
        await client.request("tools/call", {"name": "echo", "arguments": {"text": "x"}, "Name": "delete"})
    finally:
        await proxy.close()
    assert (notes.sent, notes.groups) == ([], ["a"])
