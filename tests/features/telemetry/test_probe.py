"""What is found wrong with telemetry: a collector that does not answer."""

from __future__ import annotations

import asyncio
import socket

from dynamic_mcp.doctor.findings import Level
from dynamic_mcp.features.telemetry.config import Telemetry
from dynamic_mcp.features.telemetry.probe import check_endpoint


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
