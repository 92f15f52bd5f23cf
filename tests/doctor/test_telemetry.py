"""What is found wrong with telemetry and metrics: addresses that nobody answers at, or that are taken."""

from __future__ import annotations

import asyncio
import socket

import pytest

from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.config.observe import Metrics, Telemetry
from dynamic_mcp.doctor.findings import Level
from dynamic_mcp.doctor.telemetry import check_endpoint, check_metrics


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert isinstance(port, int)
        return port


async def test_a_collector_that_answers_is_said_to() -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
        (found,) = await check_endpoint(Telemetry(), environment)

    assert found.level is Level.OK


async def test_a_collector_that_does_not_is_a_warning_without_its_password() -> None:
    url = f"http://user:s3cret@127.0.0.1:{free_port()}/otlp"
    (found,) = await check_endpoint(Telemetry(endpoint=url), {})

    assert found.level is Level.WARNING
    assert "s3cret" not in found.what


def test_a_free_address_for_metrics_is_nothing_to_say() -> None:
    assert list(check_metrics(Metrics(TcpAddress("127.0.0.1", free_port())), is_served=False)) == []


@pytest.mark.parametrize(("is_served", "level"), [(True, Level.OK), (False, Level.WARNING)])
def test_an_address_that_is_taken_is_a_warning_unless_it_is_ours(*, is_served: bool, level: Level) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = TcpAddress("127.0.0.1", taken.getsockname()[1])
        (found,) = check_metrics(Metrics(address), is_served=is_served)

    assert (found.level, found.where) == (level, "settings.metrics.listen")
