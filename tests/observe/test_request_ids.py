"""JSON log lines say which request they are about, as long as it is being answered."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator

import pytest
from msgspec import Raw

from dynamic_mcp.features.telemetry.tracing import Tracing
from dynamic_mcp.observe.current_request import current_request, mark_outgoing, mark_request, outgoing_headers
from dynamic_mcp.observe.log_output import STDERR, ServerLog, group_logger
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Observers
from tests.fakes import Client, FakeUpstream, Opener, config_of, group_config
from tests.features.telemetry.parties import FakeExporter, record_to, recorded
from tests.modern_client import ModernClient

log = logging.getLogger("dynamic_mcp.test")


class Log:
    """The JSON lines on stderr."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._serving = ServerLog("debug", "json", stderr=self._write)

    def lines(self) -> list[dict[str, object]]:
        """End the log, and return its lines."""
        self._serving.close(within_s=5)
        os.close(self._write)
        with os.fdopen(self._read) as lines:
            return [json.loads(line) for line in lines]


@pytest.fixture(name="lines")
async def _lines() -> AsyncIterator[Log]:
    names = ["", "dynamic_mcp", STDERR]
    loggers = [logging.getLogger(name or None) for name in names]
    before = [(each, each.handlers[:], each.level, each.propagate) for each in loggers]
    yield Log()
    for each, handlers, level, propagate in before:
        each.handlers[:], each.propagate = handlers, propagate
        each.setLevel(level)


def upstream_that_logs() -> FakeUpstream:
    """Return an upstream during whose answer something is logged, for a request and by the server."""

    def answer(params: object) -> object:
        log.info("answering")
        return {"content": []}

    return FakeUpstream({"tools/call": answer})


async def test_a_line_has_the_id_as_it_came_and_the_ids_of_the_trace(lines: Log) -> None:
    exporter = FakeExporter()
    recorder = record_to(exporter)
    proxy = Proxy(config_of(group_config("a")), opener=Opener(a=[upstream_that_logs(), upstream_that_logs()]))
    client = Client(proxy)
    await client.initialize()
    proxy.observers = Observers([Tracing(recorder)])
    await client.call("a", "echo")
    modern = ModernClient(proxy)
    call = {"name": "call_dynamic_tool", "arguments": {"group": "a", "name": "echo"}}
    await modern.answer_to(modern.begin("tools/call", call))
    proxy.observers = None
    await client.call("a", "echo")
    await proxy.close()
    first, second, third = (each for each in lines.lines() if each["message"] == "answering")
    spans = [each for each in recorded(recorder, exporter).spans if each.kind == "server"]
    assert [each["request_id"] for each in (first, second, third)] == ["c2", 1, "c3"]
    assert [(each["trace_id"], each["span_id"]) for each in (first, second)] == [(s.trace.id, s.id) for s in spans]
    assert "trace_id" not in third


async def test_what_goes_on_after_a_request_is_not_about_it_any_more(lines: Log) -> None:
    may_go_on = asyncio.Event()

    async def go_on() -> None:
        log.info("during")
        await may_go_on.wait()
        log.info("after")

    async def answer() -> asyncio.Task[None]:
        mark = mark_request(Raw(b"7"))
        task = asyncio.create_task(go_on())
        await asyncio.sleep(0)
        group_logger(logging.getLogger(STDERR), "a").warning("a word of the server")
        mark.is_over = True
        return task

    task = await asyncio.create_task(answer())
    may_go_on.set()
    await task
    said = {str(each["message"]): each.get("request_id") for each in lines.lines()}
    assert said == {"during": 7, "a word of the server": None, "after": None}


async def test_a_line_about_a_request_whose_id_no_number_can_hold_goes_without_it(lines: Log) -> None:
    mark_request(Raw(b"1" * 5000))

    log.info("answering")

    assert [(each["message"], each.get("request_id")) for each in lines.lines()] == [("answering", None)]


async def test_each_task_has_its_own_request_and_its_own_headers() -> None:
    async def answer(number: int) -> tuple[bytes, object]:
        mark_request(Raw(b"%d" % number))
        mark = mark_outgoing(((b"traceparent", b"%d" % number),))
        await asyncio.sleep(0)
        headers = outgoing_headers()
        mark.is_over = True
        request = current_request()
        assert outgoing_headers() == ()
        assert request is not None
        return bytes(request.id), headers

    found = await asyncio.gather(*(asyncio.create_task(answer(n)) for n in range(3)))
    assert found == [(b"%d" % n, ((b"traceparent", b"%d" % n),)) for n in range(3)]
    assert current_request() is None
