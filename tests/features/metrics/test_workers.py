"""The metrics of all workers are those of the workers that answer, whatever the others say."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("Windows has one process", allow_module_level=True)

from dynamic_mcp.config.addresses import UnixAddress
from dynamic_mcp.face.http.options import HttpOptions
from dynamic_mcp.face.http.server import HttpServer
from dynamic_mcp.features.metrics.listener import MetricsFace
from dynamic_mcp.features.metrics.workers import gather
from dynamic_mcp.system.worker import WorkerIdentity

LOAD = "# HELP load The load of `Zürich`\n# TYPE load gauge\nload 1\n".encode()
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"


@contextlib.asynccontextmanager
async def answering(path: str, answer: bytes) -> AsyncIterator[None]:
    """Be a worker that answers so, and ends."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_unix_server(serve, path):
        yield


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(HEAD % len(LOAD) + LOAD[: LOAD.index(b"\xbc")], id="ended within a character"),
        pytest.param(HEAD % len(LOAD) + LOAD[:-4], id="ended within a line"),
        pytest.param(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 5\r\n\r\nbusy\n", id="busy"),
        pytest.param(b"", id="ended at once"),
    ],
)
async def test_what_a_worker_has_not_said_to_the_end_is_missing(
    answer: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worker = WorkerIdentity(0, 2, str(tmp_path), "")
    own = HttpServer(MetricsFace(lambda _: ("text/plain", LOAD), HttpOptions(own_hosts=("localhost",))))
    await own.open(UnixAddress(worker.metrics_socket_of(0)))

    with caplog.at_level(logging.WARNING, "dynamic_mcp"):
        async with answering(worker.metrics_socket_of(1), answer):
            _, body = await gather(worker, "")
    await own.abort()

    assert [line for line in body.splitlines() if not line.startswith(b"#")] == [b'load{worker="w0"} 1']
    assert "the metrics of a worker are missing" in caplog.text
