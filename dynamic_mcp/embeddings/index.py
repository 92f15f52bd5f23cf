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
from dynamic_mcp.embeddings.endpoint import Endpoint, NoAnswerError, Vector
from dynamic_mcp.embeddings.vectors import Vectors, key_of
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.system.task_set import TaskSet

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
        self._known: dict[bytes, Vector] = {}
        self._queries: BoundedDict[str, Vector] = BoundedDict(MAX_QUERIES)
        self._texts: Texts | None = None
        self._learning: asyncio.Task[None] | None = None
        self._ending = TaskSet(log)
        self._is_stale = False
        self._is_away = False

    @property
    def is_on(self) -> bool:
        """Whether the config names an endpoint."""
        return self._endpoint is not None

    def use(self, config: Embeddings | None) -> None:
        """Ask this endpoint from now on, or none."""
        if config == self._config:
            return
        self._stop()
        self._config = config
        self._endpoint = Endpoint(config) if config else None
        self._known, self._texts, self._is_away = {}, None, False
        self._queries.clear()

    def learn(self, texts: Texts) -> None:
        """Learn in the background what these texts mean; called again, it looks again for new ones."""
        if self._endpoint is None:
            return
        self._texts, self._is_stale = texts, True
        if self._learning is None or self._learning.done():
            self._learning = asyncio.create_task(self._learn(self._endpoint), name="learning what tools mean")

    async def similarity(self, query: str, texts: Sequence[Sequence[str]]) -> list[list[float | None]]:
        """Return how near to a query each text is in meaning, -1 to 1; nothing where that is not known in time."""
        known = [[self._known.get(key_of(text)) for text in each] for each in texts]
        if self._texts is not None and not all(vector for each in known for vector in each):
            self.learn(self._texts)
        if not any(vector for each in known for vector in each):
            return []
        try:
            async with asyncio.timeout(self._query_within_s):
                asked = await self._meant(query[:MAX_QUERY])
                return await asyncio.to_thread(
                    lambda: [[_cosine(asked, vector) for vector in each] for each in known]
                )
        except NoAnswerError as exc:
            self._missed(exc)
        except TimeoutError:
            self._missed(NoAnswerError(f"no answer within {self._query_within_s:g} s"))
        return []

    async def close(self) -> None:
        """Stop learning, and let go of the endpoint."""
        self._stop()
        await self._ending.wait()

    # --- learning --------------------------------------------------------------------------------------

    async def _learn(self, endpoint: Endpoint) -> None:
        assert self._config is not None, "there is nothing to learn from otherwise"
        vectors = Vectors(self._folder, f"{self._config.url}\n{self._config.model}") if self._folder else None
        if vectors is not None and not self._known:
            self._known = await asyncio.to_thread(vectors.load)
        await endpoint.open()
        failures = 0
        while self._is_stale:
            self._is_stale = False
            try:
                await self._learn_all(endpoint, await self._missing(), vectors)
                failures = 0
            except NoAnswerError as exc:
                self._missed(exc)
                await self._sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])
                failures += 1
                self._is_stale = True

    async def _missing(self) -> dict[bytes, str]:
        """Return the texts that are not known; what is known of texts that are gone is forgotten."""
        texts = await self._texts() if self._texts else ()
        wanted = {key_of(text): text for text in texts}
        self._known = {key: vector for key, vector in self._known.items() if key in wanted}
        return {key: text for key, text in wanted.items() if key not in self._known}

    async def _learn_all(self, endpoint: Endpoint, missing: dict[bytes, str], vectors: Vectors | None) -> None:
        keys = list(missing)
        if not keys:
            return
        try:
            for at in range(0, len(keys), BATCH):
                batch = keys[at : at + BATCH]
                found = await endpoint.embed([missing[key] for key in batch], BATCH_WITHIN_S)
                self._known.update(zip(batch, found, strict=True))
                self._is_away = False
        finally:
            if vectors is not None:
                saving = self._ending.create(asyncio.to_thread(vectors.save, dict(self._known)))
                await asyncio.shield(saving)  # what has been learnt is kept, also when this is the end

    # --- asking ----------------------------------------------------------------------------------------

    async def _meant(self, query: str) -> Vector:
        assert self._endpoint is not None, "nothing is known of texts otherwise"
        known = self._queries.pop(query, None)
        if known is None:
            (known,) = await self._endpoint.embed([query], self._query_within_s)
            self._is_away = False
        self._queries[query] = known
        return known

    def _missed(self, error: NoAnswerError) -> None:
        if not self._is_away:
            self._is_away = True
            log.warning("the embeddings endpoint does not work, searching by words only: %s", error)

    def _stop(self) -> None:
        endpoint, learning = self._endpoint, self._learning
        self._endpoint = self._learning = None
        if endpoint is not None:
            self._ending.create(_end(endpoint, learning), name="end of the embeddings endpoint")


async def _end(endpoint: Endpoint, learning: asyncio.Task[None] | None) -> None:
    if learning is not None:
        learning.cancel()
        await asyncio.wait([learning])
    await endpoint.close()


def _cosine(one: Vector, other: Vector | None) -> float | None:
    return None if other is None or len(other) != len(one) else float(_sumprod(one, other))


def _plain_sumprod(one: Iterable[float], other: Iterable[float]) -> float:
    return sum(map(mul, one, other), 0.0)


_sumprod: Callable[[Iterable[float], Iterable[float]], float] = getattr(math, "sumprod", _plain_sumprod)
