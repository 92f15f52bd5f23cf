"""The metrics of all workers of a service: whichever is asked asks the others over their private sockets."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable

assert sys.platform != "win32"

from dynamic_mcp.face.http.exchange import BodyReceiver, Exchange, RequestHead  # noqa: E402
from dynamic_mcp.face.http.options import HttpOptions  # noqa: E402
from dynamic_mcp.features.metrics.exposition import Form, join, negotiate  # noqa: E402
from dynamic_mcp.features.metrics.listener import MetricsFace, accepted, metrics_answer  # noqa: E402
from dynamic_mcp.system.task_set import TaskSet  # noqa: E402
from dynamic_mcp.system.worker import Worker  # noqa: E402

log = logging.getLogger("dynamic_mcp")

_ANSWER_WITHIN_S = 2.0
_MAX_BYTES = 64 << 20


class WorkersFace(MetricsFace):
    """Answers with the metrics of all workers; `read` returns those of this one."""

    def __init__(
        self,
        worker: Worker,
        read: Callable[[str], tuple[str, bytes]],
        options: HttpOptions,
        *,
        token: str | None = None,
    ) -> None:
        super().__init__(read, options, token=token)
        self._worker = worker
        self._work = TaskSet(log)

    def begin(self, head: RequestHead, exchange: Exchange) -> BodyReceiver | None:
        if (refusal := self.refuse(head)) is not None:
            exchange.respond(refusal)
        else:
            self._work.create(self._gather(head, exchange), name="metrics of all workers")
        return None

    async def _gather(self, head: RequestHead, exchange: Exchange) -> None:
        exchange.respond(metrics_answer(*await gather(self._worker, accepted(head))))


async def gather(worker: Worker, accept: str) -> tuple[str, bytes]:
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
                head = (
                    f"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: {form.value}\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode())
                answer = await reader.read(_MAX_BYTES)
                while more := await reader.read(_MAX_BYTES):
                    answer += more
            finally:
                writer.close()
    except (OSError, TimeoutError) as exc:
        log.warning("the metrics of a worker are missing: %s", exc or "it does not answer")
        return ""
    return answer.partition(b"\r\n\r\n")[2].decode()
