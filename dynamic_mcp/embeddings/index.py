"""Semantic similarity of texts: vectors are fetched in the background, queries have a timeout, results go to disk.

After a failure, the search uses words alone.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING

from dynamic_mcp.config.resolved import Embeddings
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.system.task_set import TaskSet

if TYPE_CHECKING:  # loaded with the first endpoint
    from dynamic_mcp.embeddings.endpoint import EmbeddingEndpoint, EndpointError, Vector
    from dynamic_mcp.embeddings.vectors import VectorStore

log = logging.getLogger(__name__)

# The search uses words alone if the vector of a query takes longer.
QUERY_WITHIN_S = 0.3
BATCH = 32
BATCH_WITHIN_S = 60.0
# The delays after failed batches; the last one repeats.
RETRY_S = (5.0, 30.0, 120.0)
MAX_QUERY = 1000
MAX_QUERIES = 256

Texts = Callable[[], Awaitable[Sequence[str]]]
Sleep = Callable[[float], Awaitable[None]]


class SemanticIndex:
    """The vectors of tools and queries. Without a config, it is empty and sends nothing."""

    def __init__(
        self, folder: Path | None = None, *, query_within_s: float = QUERY_WITHIN_S, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._folder = folder
        self._query_within_s = query_within_s
        self._sleep = sleep
        self._config: Embeddings | None = None
        self._endpoint: EmbeddingEndpoint | None = None
        self._vectors: dict[bytes, Vector] = {}
        self._queries: BoundedDict[str, Vector] = BoundedDict(MAX_QUERIES)
        self._texts: Texts | None = None
        self._updating: asyncio.Task[None] | None = None
        self._closing = TaskSet(log)
        self._is_stale = False
        self._is_failing = False

    @property
    def is_enabled(self) -> bool:
        return self._endpoint is not None

    def configure(self, config: Embeddings | None) -> None:
        """Use this endpoint from now on, or none."""
        if config == self._config:
            return
        self._stop()
        self._config = config
        self._endpoint = None if config is None else _open(config)
        self._vectors, self._texts, self._is_failing = {}, None, False
        self._queries.clear()

    def update(self, texts: Texts) -> None:
        """Fetch the vectors of these texts in the background. Call it again when there are new texts."""
        if self._endpoint is None:
            return
        self._texts, self._is_stale = texts, True
        if self._updating is None or self._updating.done():
            self._updating = asyncio.create_task(self._run_updates(self._endpoint), name="embedding tools")

    async def similarity(self, query: str, texts: Sequence[Sequence[str]]) -> list[list[float | None]]:
        """Return the similarity of each text to a query, -1 to 1; empty if unknown in time."""
        if self._endpoint is None:
            return []
        from dynamic_mcp.embeddings.endpoint import EndpointError
        from dynamic_mcp.embeddings.vectors import text_key

        vectors = [[self._vectors.get(text_key(text)) for text in each] for each in texts]
        if self._texts is not None and not all(vector for each in vectors for vector in each):
            self.update(self._texts)
        if not any(vector for each in vectors for vector in each):
            return []
        try:
            async with asyncio.timeout(self._query_within_s):
                vector_of_query = await self._embed_query(query[:MAX_QUERY])
                return await asyncio.to_thread(
                    lambda: [[_cosine(vector_of_query, vector) for vector in each] for each in vectors]
                )
        except EndpointError as exc:
            self._report_failure(exc)
        except TimeoutError:
            self._report_failure(EndpointError(f"no answer within {self._query_within_s:g} s"))
        return []

    async def close(self) -> None:
        """Stop updating, and close the endpoint."""
        self._stop()
        await self._closing.wait()

    # --- updating --------------------------------------------------------------------------------------

    async def _run_updates(self, endpoint: EmbeddingEndpoint) -> None:
        assert self._config is not None, "only called with an endpoint"
        from dynamic_mcp.embeddings.endpoint import EndpointError
        from dynamic_mcp.embeddings.vectors import VectorStore

        vectors = VectorStore(self._folder, f"{self._config.url}\n{self._config.model}") if self._folder else None
        if vectors is not None and not self._vectors:
            self._vectors = await asyncio.to_thread(vectors.load)
        await endpoint.open()
        failures = 0
        while self._is_stale:
            self._is_stale = False
            try:
                await self._embed_missing(endpoint, await self._find_missing(), vectors)
                failures = 0
            except EndpointError as exc:
                self._report_failure(exc)
                await self._sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])
                failures += 1
                self._is_stale = True

    async def _find_missing(self) -> dict[bytes, str]:
        """Return the texts without a vector, and drop the vectors of texts that no longer exist."""
        from dynamic_mcp.embeddings.vectors import text_key

        texts = await self._texts() if self._texts else ()
        texts_by_key = {text_key(text): text for text in texts}
        self._vectors = {key: vector for key, vector in self._vectors.items() if key in texts_by_key}
        return {key: text for key, text in texts_by_key.items() if key not in self._vectors}

    async def _embed_missing(
        self, endpoint: EmbeddingEndpoint, missing: dict[bytes, str], vectors: VectorStore | None
    ) -> None:
        keys = list(missing)
        if not keys:
            return
        try:
            for at in range(0, len(keys), BATCH):
                batch = keys[at : at + BATCH]
                vectors_of_batch = await endpoint.embed([missing[key] for key in batch], BATCH_WITHIN_S)
                self._vectors.update(zip(batch, vectors_of_batch, strict=True))
                self._is_failing = False
        finally:
            if vectors is not None:
                saving = self._closing.create(asyncio.to_thread(vectors.save, dict(self._vectors)))
                await asyncio.shield(saving)  # keep the vectors even when this task is cancelled

    # --- querying ----------------------------------------------------------------------------------------

    async def _embed_query(self, query: str) -> Vector:
        assert self._endpoint is not None, "only called with an endpoint"
        vector = self._queries.pop(query, None)
        if vector is None:
            (vector,) = await self._endpoint.embed([query], self._query_within_s)
            self._is_failing = False
        self._queries[query] = vector
        return vector

    def _report_failure(self, error: EndpointError) -> None:
        if not self._is_failing:
            self._is_failing = True
            log.warning("the embeddings endpoint failed, searching by words only: %s", error)

    def _stop(self) -> None:
        endpoint, learning = self._endpoint, self._updating
        self._endpoint = self._updating = None
        if endpoint is not None:
            self._closing.create(_close_endpoint(endpoint, learning), name="end of the embeddings endpoint")


def _open(config: Embeddings) -> EmbeddingEndpoint:
    from dynamic_mcp.embeddings.endpoint import EmbeddingEndpoint
    from dynamic_mcp.embeddings.vectors import VectorStore  # noqa: F401 - while nothing was upgraded

    return EmbeddingEndpoint(config)


async def _close_endpoint(endpoint: EmbeddingEndpoint, learning: asyncio.Task[None] | None) -> None:
    if learning is not None:
        learning.cancel()
        await asyncio.wait([learning])
    await endpoint.close()


def _cosine(one: Vector, other: Vector | None) -> float | None:
    return None if other is None or len(other) != len(one) else float(_sumprod(one, other))


def _plain_sumprod(one: Iterable[float], other: Iterable[float]) -> float:
    return sum(map(mul, one, other), 0.0)


_sumprod: Callable[[Iterable[float], Iterable[float]], float] = getattr(math, "sumprod", _plain_sumprod)
