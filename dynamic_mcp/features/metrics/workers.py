"""The metrics of all workers of a service: whichever is asked asks the others over their private sockets."""

from __future__ import annotations

import asyncio
import logging
import sys

assert sys.platform != "win32"

from dynamic_mcp.features.metrics.exposition import Form, join, negotiate  # noqa: E402
from dynamic_mcp.system.worker import WorkerIdentity  # noqa: E402

log = logging.getLogger("dynamic_mcp")

_ANSWER_WITHIN_S = 2.0
_MAX_BYTES = 64 << 20


async def gather(worker: WorkerIdentity, accept: str) -> tuple[str, bytes]:
    """Return the content type and the text of all metrics; those of a worker that does not answer are missing."""
    form = negotiate(accept)
    numbers = range(worker.count)
    texts = await asyncio.gather(*(_read(worker.metrics_socket_of(number), form) for number in numbers))
    found = {worker.name_of(number): text for number, text in zip(numbers, texts, strict=True) if text}
    return form.value, join(found, "worker", form)


async def _read(path: str, form: Form) -> str:
    """Return the metrics that a worker shows at a socket; empty if it does not answer in time."""
    try:
        async with asyncio.timeout(_ANSWER_WITHIN_S):
            reader, writer = await asyncio.open_unix_connection(path, limit=_MAX_BYTES)
            try:
                request = (
                    f"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: {form.value}\r\nConnection: close\r\n\r\n"
                )
                writer.write(request.encode())
                answer = await reader.read(_MAX_BYTES)
                while more := await reader.read(_MAX_BYTES):
                    answer += more
            finally:
                writer.close()
    except (OSError, TimeoutError) as exc:
        log.warning("the metrics of a worker are missing: %s", exc or "it does not answer")
        return ""
    head, _, body = answer.partition(b"\r\n\r\n")
    fields = head.lower().split(b"\r\n")
    if not head.startswith(b"HTTP/1.1 200 ") or b"content-length: %d" % len(body) not in fields:
        log.warning("the metrics of a worker are missing: it has ended, or is busy")
        return ""
    return body.decode()
