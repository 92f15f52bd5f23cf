"""The listener of the metrics is opened when it may be, follows the config, and gives way to nobody in silence."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
from msgspec.structs import replace

from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.config.read import ReloadCounts
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.features.metrics import definitions
from dynamic_mcp.features.metrics.config import Metrics
from dynamic_mcp.features.metrics.exposition import Form
from dynamic_mcp.features.metrics.service import MetricsService
from dynamic_mcp.proxy.observer_service import ObserverContext
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import BOUND_S, FakeUpstream, Opener, config_of, group_config
from tests.features.metrics.readers import read_families, read_samples, sample
from tests.http_client import HttpClient

ANYWHERE = Metrics(TcpAddress("127.0.0.1", 0))


class LogLines(logging.Handler):
    """What is logged, for a test that waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._more = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self._more.set()

    async def says(self, words: str, times: int = 1) -> str:
        """Wait until so many lines with these words were logged, and return the latest."""
        async with asyncio.timeout(BOUND_S):
            while len(found := [line for line in self.lines if words in line]) < times:
                self._more.clear()
                await self._more.wait()
        return found[-1]


@pytest.fixture
def log() -> Iterator[LogLines]:
    lines, logger = LogLines(), logging.getLogger("dynamic_mcp")
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(lines)


class Waiting:
    """The time until a listener may be opened."""

    def __init__(self) -> None:
        self.is_over = asyncio.Event()
        self.has_begun = asyncio.Event()

    async def __call__(self, proxy: Proxy) -> None:
        self.has_begun.set()
        await self.is_over.wait()


def metered(metrics: Metrics | None) -> Config:
    return replace(config_of(group_config("a")), metrics=metrics)


@contextlib.asynccontextmanager
async def _serving(waiting: Waiting | None = None) -> AsyncIterator[MetricsService]:
    proxy = Proxy(config_of(group_config("a")), opener=Opener(a=[FakeUpstream()]))
    if waiting is None:
        waiting = Waiting()
        waiting.is_over.set()
    context = ObserverContext(proxy, ReloadCounts(now=lambda: 1234.5), lambda: 7)
    service = MetricsService(context, wait=waiting)
    try:
        yield service
    finally:
        await service.close()
        await proxy.close()


async def _get(url: str, **headers: str) -> tuple[int, str]:
    async with HttpClient(url) as client:
        response = await client.request("GET", "/metrics", headers)
        return response.status, (await response.read()).decode()


async def test_nothing_listens_before_the_first_client_was_answered(log: LogLines) -> None:
    waiting = Waiting()
    async with _serving(waiting) as service:
        service.apply(metered(ANYWHERE))
        await waiting.has_begun.wait()
        assert service.url == ""
        waiting.is_over.set()
        await log.says("metrics are served at")
        status, text = await _get(service.url)

    assert status == 200
    assert sample(read_samples(text), "dynamic_mcp_upstream_up", dynamic_mcp_group="a") == 1
    assert sample(read_samples(text), "dynamic_mcp_audit_failures_total") == 7
    assert sample(read_samples(text), "dynamic_mcp_config_last_reload_success_timestamp_seconds") == 1234.5


async def test_every_metric_that_is_served_is_in_the_list(log: LogLines) -> None:
    known = {each.name.removesuffix("_total"): each for each in definitions.ALL}
    async with _serving() as service:
        service.apply(metered(ANYWHERE))
        await log.says("metrics are served at")
        for form in Form:
            _, text = await _get(service.url, accept=form.value)
            families = read_families(text, form)
            assert {family.name.removesuffix("_total") for family in families} <= known.keys()
            for family in families:
                definition = known[family.name.removesuffix("_total")]
                assert (family.type, family.documentation) == (definition.kind.value, definition.description)
                for each in family.samples:
                    assert set(each.labels) - {"le"} <= set(definition.labels)
            assert len(families) >= (15 if sys.platform == "win32" else 20)  # which tells less of a process


async def test_an_address_in_use_is_said_and_tried_again_at_the_next_reload(log: LogLines) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        wanted = Metrics(TcpAddress("127.0.0.1", port))
        async with _serving() as service:
            service.apply(metered(wanted))
            said = await log.says("metrics are not served")
            assert f"`127.0.0.1:{port}` is in use" in said
            assert service.url == ""
            service.apply(metered(wanted))
            await log.says("metrics are not served", times=2)
            other.close()
            service.apply(metered(wanted))
            await log.says("metrics are served at")
            assert (await _get(service.url))[0] == 200


async def test_a_reload_changes_the_token_switches_off_and_on_and_leaves_the_same_alone(log: LogLines) -> None:
    async with _serving() as service:
        service.apply(metered(ANYWHERE))
        await log.says("metrics are served at")
        first = service.url
        service.apply(metered(Metrics(TcpAddress("127.0.0.1", 0))))
        assert (await _get(first))[0] == 200
        assert service.url == first

        service.apply(metered(Metrics(TcpAddress("127.0.0.1", 0), token="t")))
        await log.says("metrics are served at", times=2)
        assert (await _get(service.url))[0] == 401
        assert (await _get(service.url, authorization="Bearer t"))[0] == 200
        with pytest.raises(ConnectionRefusedError):
            await _get(first)

        last = service.url
        service.apply(metered(None))
        await log.says("stopped serving metrics")
        with pytest.raises(ConnectionRefusedError):
            await _get(last)
        service.apply(metered(ANYWHERE))
        await log.says("metrics are served at", times=3)
        assert (await _get(service.url))[0] == 200


async def test_it_moves_to_the_same_port_with_another_token(log: LogLines) -> None:
    async with _serving() as service:
        service.apply(metered(ANYWHERE))
        at = await log.says("metrics are served at")
        port = int(at.rpartition(":")[2].removesuffix("/metrics"))
        for times in (2, 3):
            service.apply(metered(Metrics(TcpAddress("127.0.0.1", port), token=f"t{times}")))
            await log.says("metrics are served at", times=times)
            assert (await _get(service.url, authorization=f"Bearer t{times}"))[0] == 200


async def test_a_name_of_another_machine_needs_a_token(log: LogLines) -> None:
    async with _serving() as service:
        service.apply(metered(Metrics(TcpAddress("0.0.0.0", 0))))  # noqa: S104
        assert "no `token`" in await log.says("metrics are not served")


async def test_the_end_of_the_proxy_ends_the_listener(log: LogLines) -> None:
    async with _serving() as service:
        service.apply(metered(ANYWHERE))
        await log.says("metrics are served at")
        url = service.url
    assert service.url == ""
    with pytest.raises(ConnectionRefusedError):
        await _get(url)


async def test_reloads_are_counted(log: LogLines) -> None:
    counts = ReloadCounts(now=iter((1.0, 2.0, 3.0)).__next__)
    counts.record_failure("is not JSON")
    counts.record_failure("is empty")
    assert (counts.refusal, counts.refused_at) == ("is empty", 2.0), "it is refused since the first of them"

    counts.record_repair()
    counts.record_success()

    assert (counts.successes, counts.failures, counts.last_success) == (1, 2, 3.0)
    assert not counts.refusal
