"""What texts mean, as far as an endpoint has told: learnt in the background, asked within a bound, kept on disk.

Every failure means only that the search goes by words alone.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from operator import mul
from pathlib import Path

from dynamic_mcp.config.resolved import Embeddings
from dynamic_mcp.embeddings.endpoint import Endpoint, EndpointError, Vector
from dynamic_mcp.embeddings.vectors import VectorStore, text_key

log = logging.getLogger(__name__)

# A query is answered by words alone when its meaning takes longer.
QUERY_WITHIN_S = 0.3
BATCH = 32
BATCH_WITHIN_S = 60.0
# After a failed batch the next is tried after this, and after ever longer.
RETRY_S = (5.0, 30.0, 120.0)
MAX_QUERY = 1000
MAX_QUERIES = 256

Texts = Callable[[], Awaitable[Sequence[str]]]
Sleep = Callable[[float], Awaitable[None]]


class SemanticIndex:
    """The meanings of tools and queries. Without a config it knows nothing and sends nothing."""

    def __init__(
        self, folder: Path | None = None, *, query_within_s: float = QUERY_WITHIN_S, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._folder = folder
        self._query_within_s = query_within_s
        self._sleep = sleep
        self._config: Embeddings | None = None
        self._endpoint: Endpoint | None = None
        self._vectors: dict[bytes, Vector] = {}
        self._queries: dict[str, Vector] = {}
        self._texts: Texts | None = None
        self._updating: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._is_stale = False
        self._is_failing = False

    @property
    def is_enabled(self) -> bool:
        """Whether the config names an endpoint."""
        return self._endpoint is not None

    def configure(self, config: Embeddings | None) -> None:
        """Ask this endpoint from now on, or none."""
        if config == self._config:
            return
        self._stop()
        self._config = config
        self._endpoint = Endpoint(config) if config else None
        self._vectors, self._queries, self._texts, self._is_failing = {}, {}, None, False

    def update(self, texts: Texts) -> None:
        """Learn in the background what these texts mean; called again, it looks again for new ones."""
        if self._endpoint is None:
            return
        self._texts, self._is_stale = texts, True
        if self._updating is None or self._updating.done():
            self._updating = asyncio.create_task(self._run_updates(self._endpoint), name="learning what tools mean")

    async def similarity(self, query: str, texts: Sequence[Sequence[str]]) -> list[list[float | None]]:
        """Return how near to a query each text is in meaning, -1 to 1; nothing where that is not known in time."""
        known = [[self._vectors.get(text_key(text)) for text in each] for each in texts]
        if self._texts is not None and not all(vector for each in known for vector in each):
            self.update(self._texts)
        if not any(vector for each in known for vector in each):
            return []
        try:
            async with asyncio.timeout(self._query_within_s):
                asked = await self._embed_query(query[:MAX_QUERY])
                return await asyncio.to_thread(
                    lambda: [[_cosine(asked, vector) for vector in each] for each in known]
                )
        except EndpointError as exc:
            self._report_failure(exc)
        except TimeoutError:
            self._report_failure(EndpointError(f"no answer within {self._query_within_s:g} s"))
        return []

    async def close(self) -> None:
        """Stop learning, and let go of the endpoint."""
        self._stop()
        while self._closing:
            await asyncio.wait(self._closing)

    # --- learning --------------------------------------------------------------------------------------

    async def _run_updates(self, endpoint: Endpoint) -> None:
        assert self._config is not None, "there is nothing to learn from otherwise"
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
        """Return the texts that are not known; what is known of texts that are gone is forgotten."""
        texts = await self._texts() if self._texts else ()
        wanted = {text_key(text): text for text in texts}
        self._vectors = {key: vector for key, vector in self._vectors.items() if key in wanted}
        return {key: text for key, text in wanted.items() if key not in self._vectors}

    async def _embed_missing(
        self, endpoint: Endpoint, missing: dict[bytes, str], vectors: VectorStore | None
    ) -> None:
        keys = list(missing)
        if not keys:
            return
        try:
            for at in range(0, len(keys), BATCH):
                batch = keys[at : at + BATCH]
                found = await endpoint.embed([missing[key] for key in batch], BATCH_WITHIN_S)
                self._vectors.update(zip(batch, found, strict=True))
                self._is_failing = False
        finally:
            if vectors is not None:
                saving = asyncio.create_task(asyncio.to_thread(vectors.save, dict(self._vectors)))
                self._hold(saving)
                await asyncio.shield(saving)  # what has been learnt is kept, also when this is the end

    # --- asking ----------------------------------------------------------------------------------------

    async def _embed_query(self, query: str) -> Vector:
        assert self._endpoint is not None, "nothing is known of texts otherwise"
        known = self._queries.pop(query, None)
        if known is None:
            (known,) = await self._endpoint.embed([query], self._query_within_s)
            self._is_failing = False
        self._queries[query] = known
        if len(self._queries) > MAX_QUERIES:
            del self._queries[next(iter(self._queries))]
        return known

    def _report_failure(self, error: EndpointError) -> None:
        if not self._is_failing:
            self._is_failing = True
            log.warning("the embeddings endpoint does not work, searching by words only: %s", error)

    def _stop(self) -> None:
        endpoint, learning = self._endpoint, self._updating
        self._endpoint = self._updating = None
        if endpoint is not None:
            self._hold(asyncio.create_task(_close_endpoint(endpoint, learning)))

    def _hold(self, task: asyncio.Task[None]) -> None:
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _close_endpoint(endpoint: Endpoint, learning: asyncio.Task[None] | None) -> None:
    if learning is not None:
        learning.cancel()
        await asyncio.wait([learning])
    await endpoint.close()


def _cosine(one: Vector, other: Vector | None) -> float | None:
    return None if other is None or len(other) != len(one) else float(_sumprod(one, other))


def _plain_sumprod(one: Iterable[float], other: Iterable[float]) -> float:
    return sum(map(mul, one, other), 0.0)


_sumprod: Callable[[Iterable[float], Iterable[float]], float] = getattr(math, "sumprod", _plain_sumprod)
