"""What went wrong has one name, whoever records it: the audit log, spans, OpenTelemetry's metrics and Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dynamic_mcp.config.access import LOCAL_NAME, Access, AccessRule, Condition, Effect
from dynamic_mcp.features.metrics.observer import MetricsObserver
from dynamic_mcp.features.telemetry.tracing import Tracing
from dynamic_mcp.proxy.request import Observers
from tests.fakes import Client, Json
from tests.features.audit.audited import Audited, audited
from tests.features.metrics.readers import samples_of
from tests.features.telemetry.parties import FakeExporter, record_to, recorded

SERVER, CLIENT = "mcp_server_operation_duration_seconds_count", "mcp_client_operation_duration_seconds_count"
NO: Json = {"message": "no"}


@dataclass(frozen=True)
class Words:
    """What a request failed with, by who says so; the last two are of the request to the server, if there was one."""

    audit: str
    span: str
    otel: str
    prometheus: str
    server_span: str = ""
    server_prometheus: str = ""


class Recording:
    """A proxy that everybody observes, and a client of it."""

    def __init__(self, on: Audited, client: Client) -> None:
        self.on = on
        self.client = client
        self.metrics, self._exporter = MetricsObserver(), FakeExporter()
        self._recorder = record_to(self._exporter)
        assert on.proxy.observers is not None
        on.proxy.observers = Observers([Tracing(self._recorder), self.metrics, *on.proxy.observers])

    async def answer(self, method: str, params: Json, error: Json) -> None:
        """Make a request that the server answers with an error."""
        name = "tools/call" if method == "tools/call" else method
        self.on.upstream.answers.pop(name, None)
        request = asyncio.create_task(self.client.request(method, params))
        sent = await self.on.upstream.hears(name)
        self.on.upstream.say({"jsonrpc": "2.0", "id": sent["id"], "error": error})
        await request

    async def words(self) -> Words:
        """Return how everybody calls what went wrong with the one request that was made."""
        found = await asyncio.to_thread(recorded, self._recorder, self._exporter)
        (line,) = self.on.lines()
        (span,) = (each for each in found.spans if each.kind == "server")
        (otel,) = found.labels("mcp.server.operation.duration")
        of_server = [each for each in found.spans if each.kind == "client"]
        labels = [(name, dict(labels)) for name, labels in samples_of([*self.metrics.families])]
        (prometheus,) = (each for name, each in labels if name == SERVER)
        server_prometheus = [each for name, each in labels if name == CLIENT]
        return Words(
            line.get("error", ""),
            str(span.attributes.get("error.type", "")),
            str(otel.get("error.type", "")),
            prometheus.get("error_type", ""),
            str(of_server[0].attributes.get("error.type", "")) if of_server else "",
            server_prometheus[0].get("error_type", "") if server_prometheus else "",
        )


@contextlib.asynccontextmanager
async def recording(directory: Path, access: Access | None = None) -> AsyncIterator[Recording]:
    async with audited(directory, access=access) as on:
        client = await on.join()
        for method in ("tools/list", "prompts/list", "resources/list"):
            await client.request(method)
        yield Recording(on, client)


CALL: Json = {"name": "up__get_thing", "arguments": {}}


async def test_a_tool_that_says_that_it_failed_is_a_tool_error(tmp_path: Path) -> None:
    async with recording(tmp_path) as this:
        this.on.upstream.answers["tools/call"] = {"content": [], "isError": True}
        await this.client.request("tools/call", CALL)
        assert await this.words() == Words(*["tool_error"] * 6)


@pytest.mark.parametrize(
    ("method", "params"),
    [("tools/call", CALL), ("prompts/get", {"name": "up__review"}), ("resources/read", {"uri": "file:///a"})],
)
async def test_the_error_of_a_server_is_its_code_also_where_a_model_is_told_in_words(
    tmp_path: Path, method: str, params: Json
) -> None:
    async with recording(tmp_path) as this:
        await this.answer(method, params, {**NO, "code": -32603})
        assert await this.words() == Words(*["-32603"] * 6)


async def test_a_code_that_is_not_known_is_other_in_metrics_only(tmp_path: Path) -> None:
    async with recording(tmp_path) as this:
        await this.answer("prompts/get", {"name": "up__review"}, {**NO, "code": 777})
        assert await this.words() == Words("777", "777", "_OTHER", "_OTHER", "777", "_OTHER")


DENY = AccessRule("no", Effect.DENY, servers=("*",), arguments=(Condition("$.x", (1,)),))
ALLOW = AccessRule("yes", servers=("*",))
GOVERNED = Access(roles={"all": (ALLOW, DENY)}, people={LOCAL_NAME: ("all",)})


@pytest.mark.parametrize(
    ("method", "params", "word"),
    [
        ("tools/call", {"name": "up__get_thing", "arguments": {"x": 1}}, "AccessDenied"),
        ("tools/call", {"name": "nothing", "arguments": {}}, "NotFound"),
        ("prompts/get", {"name": "nothing"}, "NotFound"),
        ("prompts/get", {}, "Malformed"),
        ("resources/read", {}, "Malformed"),
    ],
)
async def test_our_own_error_has_its_name_however_the_client_is_told(
    tmp_path: Path, method: str, params: Json, word: str
) -> None:
    async with recording(tmp_path, GOVERNED) as this:
        await this.client.request(method, params)
        assert await this.words() == Words(*[word] * 4)


async def test_a_request_that_goes_well_has_no_word(tmp_path: Path) -> None:
    async with recording(tmp_path) as this:
        await this.client.request("tools/call", CALL)
        assert await this.words() == Words(*[""] * 6)
