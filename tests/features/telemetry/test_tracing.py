"""Requests of clients are server spans and those to upstreams client spans, named as OpenTelemetry says."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
from msgspec import Raw, Struct

from dynamic_mcp.config.access import LOCAL_NAME, Access, AccessRule, Effect
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.features.telemetry.recorder import Recorder
from dynamic_mcp.features.telemetry.tracing import Tracing
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.observe.trace_context import parse_context
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import ApprovalNote, Observation, Observer, Observers, Request, UpstreamRequest
from dynamic_mcp.session.legacy import Session
from tests.fakes import Client, FakeUpstream, FullUpstream, Json, Opener, config_of, group_config, settled
from tests.features.telemetry.parties import FakeExporter, Recorded, record_to, recorded
from tests.modern_client import ModernClient

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
OTHER = f"00-{'a' * 32}-{'b' * 16}-01"


class Traced(Struct):
    """A client of a proxy that is traced."""

    client: Client
    proxy: Proxy
    recorder: Recorder
    exporter: FakeExporter

    def end(self) -> Recorded:
        """Return what was recorded."""
        return recorded(self.recorder, self.exporter)


@contextlib.asynccontextmanager
async def traced(
    opener: Opener,
    *beside: Observer,
    access: Access | None = None,
    exporter: FakeExporter | None = None,
    with_payloads: bool = False,
    traces: bool = True,
    has_sampler: bool = False,
    is_early: bool = False,
) -> AsyncIterator[Traced]:
    proxy = Proxy(config_of(*map(group_config, opener.plan), access=access), opener=opener)
    exporter = exporter or FakeExporter()
    recorder = record_to(exporter, traces=traces, has_sampler=has_sampler)
    try:
        observers = Observers([Tracing(recorder, with_payloads=with_payloads), *beside])
        proxy.observers = observers if is_early else None
        client = Client(proxy)
        await client.initialize()
        await settled()
        proxy.observers = observers
        yield Traced(client, proxy, recorder, exporter)
    finally:
        await proxy.close()
        await asyncio.to_thread(recorder.close)


def meta_of(upstream: FakeUpstream, method: str = "tools/call") -> Mapping[str, Json]:
    """Return the `_meta` that an upstream was sent."""
    return upstream.heard(method)[-1]["params"].get("_meta", {})  # type: ignore[no-any-return]


# --- spans -----------------------------------------------------------------------------------------------------


async def test_a_call_through_our_tool_is_named_by_the_tool_that_was_meant() -> None:
    async with traced(Opener(a=[FullUpstream()])) as it:
        await it.client.call("a", "a__echo", {"text": "there"})
    found = it.end()
    server, client = found.span("server", "tools/call echo"), found.span("client", "tools/call echo")
    assert server.attributes == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "jsonrpc.request.id": "c2",
        "mcp.protocol.version": "2025-11-25",
        "mcp.session.id": it.client.session.id,
        "network.transport": "pipe",
        "dynamic_mcp.group": "a",
    }
    assert client.attributes == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "network.transport": "pipe",
        "dynamic_mcp.group": "a",
        "dynamic_mcp.era": "legacy",
    }
    assert (server.error, client.error) == (None, None)
    assert (client.trace.id, client.parent_id) == (server.trace.id, server.id)
    assert server.started <= client.started <= client.ended <= server.ended


async def test_a_prompt_and_a_resource_are_named_by_what_the_catalog_has() -> None:
    async with traced(Opener(a=[FullUpstream()])) as it:
        await it.client.request("prompts/list")
        await it.client.request("prompts/get", {"name": "a__greet", "arguments": {"who": "x"}})
        await it.client.request("resources/read", {"uri": "full://text"})
    found = it.end()
    assert found.span("server", "prompts/get greet").attributes["gen_ai.prompt.name"] == "greet"
    reading = found.span("client", "resources/read").attributes
    assert reading["mcp.resource.uri"] == "full://text"
    assert "gen_ai.operation.name" not in reading


async def test_names_that_are_in_no_catalog_are_in_no_span_name_and_no_metric() -> None:
    async with traced(Opener(a=[FullUpstream()])) as it:
        await it.client.call("a", "made_up", {})
        await it.client.call("made_up", "made_up", {})
        await it.client.request("made/up", {})
        await it.client.request("prompts/get", {"name": "made_up"})
    found = it.end()
    assert {span.name for span in found.spans} == {"tools/call", "_other", "prompts/get"}
    said = [label for each in found.measurements for label in each.attributes.values()]
    assert "made_up" not in said
    assert "made/up" not in said
    assert [each["gen_ai.tool.name"] for each in found.labels("mcp.server.operation.duration")[:2]] == ["_other"] * 2
    assert found.labels("mcp.server.operation.duration")[2]["mcp.method.name"] == "_other"


async def test_our_own_search_is_named() -> None:
    async with traced(Opener(a=[FullUpstream()])) as it:
        await it.client.request("tools/call", {"name": "get_dynamic_tools", "arguments": {"group": "a"}})
    assert it.end().span("server", "tools/call get_dynamic_tools").error is None


async def test_a_modern_client_has_no_session() -> None:
    async with traced(Opener(a=[FullUpstream()])) as it:
        client = ModernClient(it.proxy)
        id = client.begin(
            "tools/call",
            {"name": "call_dynamic_tool", "arguments": {"group": "a", "name": "echo", "args": {"text": "x"}}},
        )
        await client.answer_to(id)
    attributes = it.end().span("server", "tools/call echo").attributes
    assert attributes["mcp.protocol.version"] == "2026-07-28"
    assert "mcp.session.id" not in attributes


# --- failures --------------------------------------------------------------------------------------------------


async def test_a_result_that_says_it_failed_is_a_failure_of_both_spans() -> None:
    failed: Json = {"content": [], "isError": True}
    async with traced(Opener(a=[FakeUpstream({"tools/call": failed})])) as it:
        await it.client.call("a", "echo")
    found = it.end()
    for kind in ("server", "client"):
        span = found.span(kind, "tools/call echo")
        assert (span.attributes["error.type"], span.error) == ("tool_error", "")
        assert "rpc.response.status_code" not in span.attributes
    for metric in ("mcp.server.operation.duration", "mcp.client.operation.duration"):
        assert found.labels(metric)[0]["error.type"] == "tool_error"


@pytest.mark.parametrize(("code", "is_failure"), [(-32601, False), (-32002, False), (-32603, True), (7, True)])
async def test_an_error_of_the_callers_own_is_no_failure_of_the_server_span(code: int, *, is_failure: bool) -> None:
    upstream = FakeUpstream()
    upstream.answers["initialize"]["capabilities"] = {"prompts": {}}
    async with traced(Opener(a=[upstream])) as it:
        answer = asyncio.ensure_future(it.client.request("made/up", {"_meta": {"dynamic-mcp/group": "a"}}))
        asked = await upstream.hears("made/up")
        upstream.say({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": code, "message": "no such thing"}})
        await answer
    found = it.end()
    server, client = found.span("server", "_other"), found.span("client", "_other")
    assert server.error == ("no such thing" if is_failure else None)
    assert client.error == "no such thing"
    for span in (server, client):
        assert (span.attributes["error.type"], span.attributes["rpc.response.status_code"]) == (str(code), str(code))
    label = found.labels("mcp.client.operation.duration")[0]["error.type"]
    assert label == ("_OTHER" if code == 7 else str(code))


async def test_a_message_of_an_error_carries_no_secret() -> None:
    async with traced(Opener(a=[FullUpstream()])) as it:
        request = Frame(method="resources/read", params=Raw(b'{"uri":"x://y"}'), id=Raw(b"1"))
        seen_error = DynamicMcpError("no entry for sk-abcdefghijklmnop here")

        async def fail(_: object) -> Frame:
            raise seen_error

        assert it.proxy.observers is not None
        with contextlib.suppress(DynamicMcpError):
            await it.proxy.observers.answer(fail, _request_of(it.client.session, it.proxy, request))
    assert it.end().span("server", "resources/read").error == "no entry for *** here"


async def test_a_message_of_a_server_is_masked_before_it_is_cut() -> None:
    upstream = FullUpstream()
    upstream.answers.pop("prompts/get", None)
    url = f"https://ann:{'p' * 300}@host/?api_key={'k' * 300}&page=1"
    async with traced(Opener(a=[upstream])) as it:
        await it.client.request("prompts/list")
        answer = asyncio.ensure_future(it.client.request("prompts/get", {"name": "a__greet", "arguments": {}}))
        asked = await upstream.hears("prompts/get")
        upstream.say(
            {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32603, "message": f"{url} is {'x' * 999}"}}
        )
        await answer
    found = it.end()
    for kind in ("server", "client"):
        said = found.span(kind, "prompts/get greet").error
        assert said is not None
        assert said.startswith("https://host/?api_key=***&page=1 is xxx")
        assert len(said) == 256


@pytest.mark.parametrize("is_answered", [True, False])
async def test_what_a_model_is_told_in_a_result_is_in_no_span(*, is_answered: bool) -> None:
    failed: Json = {"content": [{"type": "text", "text": "hunter2"}], "isError": True}
    async with traced(Opener(a=[FakeUpstream({"tools/call": failed})])) as it:
        await it.client.call("a" if is_answered else "hunter2", "echo", {"text": "hunter2"})
    assert "hunter2" not in "".join(map(repr, it.end().spans))


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://ann:hunter2@host/x?page=2&api_key=hunter2#top", "https://host/x?page=2&api_key=***#top"),
        ("https://hunter2@host", "https://host"),
        ("note:1?token=hunter2", "note:1?token=***"),
        ("file:///home/ann@work/x", "file:///home/ann@work/x"),
        (f"https://ann:{'p' * 2000}@host/x", "https://host/x"),
        (f"odd:{'x' * 10_000}", "odd:…"),
        (f"odd:{'x' * 2000}", f"odd:{'x' * 996}"),
    ],
)
async def test_the_uri_of_a_resource_is_recorded_without_secrets(uri: str, shown: str) -> None:
    async with traced(Opener(a=[FullUpstream()])) as it:
        await it.client.request("resources/read", {"uri": uri})
    found = it.end()
    assert {span.attributes["mcp.resource.uri"] for span in found.spans} == {shown}


async def test_a_cancelled_call_is_recorded_as_such_and_blames_nobody() -> None:
    upstream = FakeUpstream()
    async with traced(Opener(a=[upstream])) as it:
        arguments = {"name": "call_dynamic_tool", "arguments": {"group": "a", "name": "echo"}}
        it.client.send({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": arguments})
        await upstream.hears("tools/call")
        it.client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}})
        await upstream.hears("notifications/cancelled")
        await settled()
    found = it.end()
    server = found.span("server", "tools/call echo")
    assert (server.attributes["error.type"], server.error) == ("cancelled", None)
    assert found.span("client", "tools/call echo").attributes["error.type"] == "cancelled"


async def test_what_the_rules_and_a_person_say_is_on_the_server_span() -> None:
    class Asked(Observer):
        def begin(self, seen: Observation) -> None:
            seen.approval = ApprovalNote("7K2F", "allowed", channel="queue", waited_s=1.5)

    rule = AccessRule("rule", Effect.ALLOW, servers=("*",), tools=("echo",))
    access = Access(default=Effect.DENY, roles={"all": (rule,)}, people={LOCAL_NAME: ("all",)})
    async with traced(Opener(a=[FullUpstream()]), Asked(), access=access) as it:
        await it.client.call("a", "echo", {"text": "there"})
    span = it.end().span("server", "tools/call echo")
    assert span.attributes["dynamic_mcp.decision"] == "allow"
    assert span.attributes["dynamic_mcp.rule"]
    assert span.attributes["dynamic_mcp.approval.outcome"] == "allowed"
    assert span.attributes["dynamic_mcp.approval.wait"] == 1.5
    assert [event.name for event in span.events] == ["dynamic_mcp.decision", "dynamic_mcp.approval"]
    assert all(span.started <= event.at <= span.ended for event in span.events)


# --- contexts --------------------------------------------------------------------------------------------------


async def test_the_client_is_the_parent_and_the_upstream_gets_our_span() -> None:
    upstream = FullUpstream()
    async with traced(Opener(a=[upstream])) as it:
        meta = {"traceparent": PARENT, "tracestate": "v=1", "baggage": "k=v", "own/key": [1]}
        await it.client.call("a", "echo", {"text": "there"}, _meta=meta)
    found = it.end()
    server, client = found.span("server", "tools/call echo"), found.span("client", "tools/call echo")
    assert server.trace.parent == parse_context(PARENT, "v=1")
    assert (server.trace.id, server.parent_id, client.parent_id) == (TRACE, "", server.id)
    sent = {"traceparent": f"00-{TRACE}-{client.id}-01", "tracestate": "v=1", "baggage": "k=v", "own/key": [1]}
    assert meta_of(upstream) == sent


async def test_what_a_parent_does_not_record_is_not_recorded_and_handed_on_so() -> None:
    upstream = FullUpstream()
    async with traced(Opener(a=[upstream])) as it:
        await it.client.call("a", "echo", {"text": "there"}, _meta={"traceparent": PARENT[:-2] + "00"})
    found = it.end()
    handed_on = parse_context(meta_of(upstream)["traceparent"])
    assert handed_on is not None
    assert (handed_on.trace_id, handed_on.is_sampled) == (TRACE, False)
    assert handed_on.span_id != SPAN
    assert found.spans == []
    assert len(found.measurements) > 0


async def test_a_context_that_is_not_valid_begins_a_new_trace_without_its_state() -> None:
    upstream = FullUpstream()
    async with traced(Opener(a=[upstream])) as it:
        await it.client.call("a", "echo", {"text": "there"}, _meta={"traceparent": "00-bad", "tracestate": "v=1"})
    server = it.end().span("server", "tools/call echo")
    assert server.trace.parent is None
    assert "tracestate" not in meta_of(upstream)
    assert server.trace.id in meta_of(upstream)["traceparent"]


async def test_a_retry_of_a_trace_is_decided_by_the_sampler_once_it_is_there() -> None:
    upstream = FullUpstream()
    async with traced(Opener(a=[upstream]), exporter=FakeExporter(samples=False), has_sampler=True) as it:
        await it.client.call("a", "echo", {"text": "there"})
        early = parse_context(meta_of(upstream)["traceparent"])
        assert early is not None
        assert early.is_sampled, "nobody knows better yet"


def _request_of(session: Session, proxy: Proxy, frame: Frame, channel: object = None) -> Json:
    return Request(frame.method, frame.params, session, proxy.view_for(session), channel, frame.id)  # type: ignore[arg-type]


class Post:
    """The channel of a request that came over HTTP."""

    address, port, log_level, is_parked = "192.0.2.1", 1234, "", False

    def __init__(self, client: Session, **headers: str) -> None:
        self.client = self.recipient = self.stream = client
        self.headers = {name.encode(): value.encode() for name, value in headers.items()}

    def notify(self, frame: Frame) -> None:
        """Nobody listens."""

    async def ask(self, frame: Frame, on_status: Callable[[Frame], None]) -> Frame:
        """Answer nothing."""
        return frame


@pytest.mark.parametrize(
    ("meta", "header", "parent", "link"),
    [
        (PARENT, OTHER, PARENT, OTHER),
        (PARENT, PARENT, PARENT, None),
        (None, OTHER, OTHER, None),
        ("bad", OTHER, OTHER, None),
        (PARENT, "bad", PARENT, None),
        (None, None, None, None),
    ],
)
async def test_the_context_of_http_is_linked_or_the_parent_where_the_message_has_none(
    meta: str | None, header: str | None, parent: str | None, link: str | None
) -> None:
    async with traced(Opener(a=[FullUpstream()])) as it:
        params: Json = {} if meta is None else {"_meta": {"traceparent": meta}}
        frame = Frame(method="tools/list", params=Raw(json.dumps(params).encode()), id=Raw(b"5"))
        channel = Post(it.client.session, **({} if header is None else {"traceparent": header}))
        await it.proxy.answer(_request_of(it.client.session, it.proxy, frame, channel))
    span = it.end().span("server", "tools/list")
    assert span.trace.parent == (None if parent is None else parse_context(parent))
    assert span.link == (None if link is None else parse_context(link))
    assert (span.attributes["client.address"], span.attributes["client.port"]) == ("192.0.2.1", 1234)


async def test_requests_to_several_upstreams_at_once_have_a_span_each() -> None:
    upstreams = {name: FullUpstream() for name in ("a", "b", "c")}
    async with traced(Opener(**{name: [each] for name, each in upstreams.items()})) as it:
        calls = (it.client.call(name, "echo", {"text": name}) for name in upstreams)
        await asyncio.gather(*calls)
    found = it.end()
    for name, upstream in upstreams.items():
        [client] = [
            each for each in found.spans if each.kind == "client" and each.attributes["dynamic_mcp.group"] == name
        ]
        [server] = [each for each in found.spans if each.id == client.parent_id]
        assert client.id in meta_of(upstream)["traceparent"]
        assert server.attributes["dynamic_mcp.group"] == name


@pytest.mark.parametrize("is_metrics_only", [False, True])
async def test_without_traces_what_a_client_sends_passes_untouched(*, is_metrics_only: bool) -> None:
    upstream = FullUpstream()
    meta = b'{"traceparent" : "00-whatever", "baggage":"k=v" , "tracestate":"v=\\u0031"}'
    async with traced(Opener(a=[upstream]), traces=False) as it:
        if not is_metrics_only:
            it.proxy.observers = None
        params = (
            b'{"name":"call_dynamic_tool","arguments":{"group":"a","name":"echo","args":{"text":"x"}},"_meta":'
            + meta
            + b"}"
        )
        it.client.session.receive(b'{"jsonrpc":"2.0","id":"raw","method":"tools/call","params":' + params + b"}")
        await upstream.hears("tools/call")
    [line] = [each for each in upstream.lines if b'"tools/call"' in each]
    assert meta in line


# --- more ------------------------------------------------------------------------------------------------------


async def test_arguments_and_results_are_recorded_only_if_asked_for_and_without_secrets() -> None:
    async with traced(Opener(a=[FullUpstream()])) as it:
        await it.client.call("a", "echo", {"text": "private"})
    assert "private" not in str(it.end())
    async with traced(Opener(a=[FullUpstream()]), with_payloads=True) as it:
        await it.client.call("a", "echo", {"text": "sk-abcdefghijklmnop", "token": "x"})
        await it.client.call("a", "echo", {"text": "y" * 100_000})
    first, second = (each for each in it.end().spans if each.kind == "server")
    assert first.payloads is not None
    said = dict(first.payloads())
    assert json.loads(said["gen_ai.tool.call.arguments"]) == {"text": "***", "token": "***"}
    assert "sk-abc" not in said["gen_ai.tool.call.result"]
    assert second.payloads is not None
    assert second.payloads()["gen_ai.tool.call.arguments"].endswith("bytes)")


async def test_sessions_of_clients_and_of_upstreams_are_measured() -> None:
    async with traced(Opener(a=[FakeUpstream()]), is_early=True) as it:
        it.client.session.close()
    found = it.end()
    [label] = found.labels("mcp.server.session.duration")
    assert label == {"network.transport": "pipe", "mcp.protocol.version": "2025-11-25"}
    assert found.labels("mcp.client.session.duration") == [{"network.transport": "pipe", "dynamic_mcp.group": "a"}]
    assert all(each.seconds >= 0 for each in found.measurements)


async def test_what_another_observer_refuses_has_a_server_span_only() -> None:
    class Refusing(Observer):
        def send(self, seen: Observation, message: UpstreamRequest) -> UpstreamRequest:
            raise DynamicMcpError("this is not recorded")

    async with traced(Opener(a=[FullUpstream()]), Refusing()) as it:
        await it.client.call("a", "echo", {"text": "there"})
    assert [each.kind for each in it.end().spans] == ["server"]
