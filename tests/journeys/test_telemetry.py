"""One trace from a client through the program to a server, all three of which send their spans to a collector."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

from dynamic_mcp.observe.trace_context import parse_context
from tests.http_program import serving_http
from tests.journeys.remote_server import free_port, listening
from tests.otlp_receiver import Receiver, Span, receiving
from tests.own_process import OWN
from tests.program import BOUND_S, UPSTREAMS, Json, full, serving, text_of

ROOT = Path(__file__).parent.parent.parent
SERVER = str(UPSTREAMS / "sdk_traced.py")
CALL = "tools/call headers"
pytestmark = pytest.mark.alone_only("it is about what a program sends, whoever serves")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def variables(receiver: Receiver, service: str) -> dict[str, str]:
    """Return the variables with which a program sends to the receiver, under this name."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_SERVICE_NAME": service,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "PYTHONPATH": str(ROOT),
    }


@contextlib.asynccontextmanager
async def call_from_client(env: Mapping[str, str], *target: str) -> AsyncIterator[str]:
    """Call a tool with the Python SDK in a process of its own, which stays for a while; yield what it says."""
    pipe, quiet = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.journeys.tracing_sdk", "headers", *target),
        env={**os.environ, **env},
        stdin=pipe,
        stdout=pipe,
        stderr=quiet,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(BOUND_S):
            said = await process.stdout.readline()
        yield said.decode().strip()
    finally:
        async with asyncio.timeout(BOUND_S):
            await process.communicate(b"")


async def check_trace(receiver: Receiver) -> Span:
    """Check that the call is one trace, each span the parent of the next; return our last span in it."""
    wanted = {("dynamic-mcp", "server"), ("dynamic-mcp", "client"), ("server", "server")}

    def has_come(receiver: Receiver) -> bool:
        found = {(each.service, each.kind) for each in receiver.spans if each.name == CALL}
        return wanted <= found and any(each.name == "turn of a model" for each in receiver.spans)

    await asyncio.to_thread(receiver.wait_for, has_come)
    turn = receiver.find(name="turn of a model")
    sent = receiver.find(name="MCP send tools/call call_dynamic_tool", trace=turn.trace)
    ours = receiver.find(service="dynamic-mcp", kind="server", name=CALL)
    onward = receiver.find(service="dynamic-mcp", kind="client", name=CALL)
    answered = receiver.find(service="server", kind="server", trace=turn.trace)
    assert [each.parent for each in (sent, ours, onward, answered)] == [turn.id, sent.id, ours.id, onward.id]
    assert ours.attributes["gen_ai.tool.name"] == onward.attributes["gen_ai.tool.name"] == "headers"
    assert turn.started <= ours.started <= onward.started <= answered.started
    return onward


async def test_a_trace_of_a_client_goes_on_to_the_server(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    turn = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    settings = {"telemetry": {"endpoint": receiver.url}}
    async with serving(tmp_path, {"a": full()}, settings=settings) as program:
        await program.call("a", "plain", _meta={"traceparent": f"00-{turn[0]}-{turn[1]}-01"})
        recorded = text_of(await program.call("a", "record"))
        wanted = {"server", "client"}
        await asyncio.to_thread(
            receiver.wait_for, lambda it: wanted <= {each.kind for each in it.spans if each.trace == turn[0]}
        )
    ours = receiver.find(kind="server", name="tools/call plain", trace=turn[0])
    onward = receiver.find(kind="client", name="tools/call plain", trace=turn[0])
    assert (ours.parent, onward.parent) == (turn[1], ours.id)
    assert f"00-{turn[0]}-{onward.id}-01" in recorded


@pytest.mark.full
async def test_one_trace_goes_through_over_stdio(tmp_path: Path, receiver: Receiver) -> None:
    server: Json = {"command": sys.executable, "args": [SERVER, "stdio"], "env": variables(receiver, "server")}
    settings = {"telemetry": {"endpoint": receiver.url}}
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {"a": server}, "settings": settings}))
    async with call_from_client(variables(receiver, "client"), *OWN, str(file)):
        onward = await check_trace(receiver)
    assert onward.attributes["network.transport"] == "pipe"


@pytest.mark.full
async def test_one_trace_goes_through_over_http(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    port = free_port()
    env = variables(receiver, "server")
    servers: Json = {"a": {"url": f"http://127.0.0.1:{port}/mcp"}}
    settings = {"telemetry": {"endpoint": receiver.url}}
    async with (
        listening(sys.executable, SERVER, str(port), port=port, env=env),
        serving_http(tmp_path, servers, settings=settings) as program,
        call_from_client(variables(receiver, "client"), program.url) as said,
    ):
        onward = await check_trace(receiver)
    context = parse_context(said)
    assert context is not None, "the header of HTTP names the span, too"
    assert (context.trace_id, context.span_id) == (onward.trace, onward.id)
    assert onward.attributes["server.port"] == port
    assert onward.attributes["network.protocol.name"] == "http"


async def test_a_signal_sends_what_is_left_at_once(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    tiny: Json = {"command": sys.executable, "args": ["-I", "-S", str(UPSTREAMS / "tiny.py")]}
    async with serving(tmp_path, {"a": tiny}) as program:
        await program.call("a", "echo", {"text": "there"})
        await asyncio.to_thread(receiver.wait_for, lambda it: "mcp.server.operation.duration" in it.metrics)
        assert receiver.spans == []
        program.ask_to_end()
        assert await program.ends() == 0
    assert [each.name for each in receiver.spans] == ["tools/call echo"] * 2
    assert "mcp.server.session.duration" in receiver.metrics
