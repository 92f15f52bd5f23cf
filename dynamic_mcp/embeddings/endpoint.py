"""A client for embeddings endpoints with OpenAI's protocol: turns texts into vectors of length one."""

from __future__ import annotations

import asyncio
import math
from array import array
from collections.abc import Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import msgspec

from dynamic_mcp.config.resolved import Embeddings
from dynamic_mcp.system.decoding import decode_as

if TYPE_CHECKING:
    from httpx2 import AsyncClient

Vector: TypeAlias = "array[float]"
HTTP_OK = 200


class EndpointError(Exception):
    """The endpoint is slow, down, or does not answer correctly; the message says which."""


class _Item(msgspec.Struct):
    embedding: list[float]
    index: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Item]


class EmbeddingEndpoint:
    """A client for one endpoint. It connects with the first request."""

    def __init__(self, config: Embeddings) -> None:
        self._config = config
        self._url = endpoint_url(config.url)
        self._client: AsyncClient | None = None
        self._opening = asyncio.Lock()

    async def embed(self, texts: Sequence[str], within_s: float) -> list[Vector]:
        """Return a vector for each text, in the same order. Raises EndpointError."""
        try:
            async with asyncio.timeout(within_s):
                return await self._embed(texts)
        except TimeoutError:
            raise EndpointError(f"no answer within {within_s:g} s") from None

    async def open(self) -> AsyncClient:
        """Open the client once; this may take longer than the time limit of a query."""
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(self._create_client)
            return self._client

    async def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _embed(self, texts: Sequence[str]) -> list[Vector]:
        client = self._client or await self.open()
        from dynamic_mcp.system.request_errors import REQUEST_ERRORS

        body = {"model": self._config.model, "input": list(texts), "encoding_format": "float"}
        try:
            answer = await client.post(self._url, json=body)
        except REQUEST_ERRORS as exc:
            raise EndpointError(f"{type(exc).__name__}: {exc}") from exc
        if answer.status_code != HTTP_OK:
            raise EndpointError(f"HTTP status {answer.status_code}")
        return _parse_vectors(answer.content, len(texts))

    def _create_client(self) -> AsyncClient:
        from httpx2 import AsyncClient

        key = self._config.api_key
        return AsyncClient(
            headers={"authorization": f"Bearer {key}"} if key else {},
            timeout=None,  # each request has its own timeout
            trust_env=not _is_local(self._url),
        )


def endpoint_url(url: str) -> str:
    """Return the full URL: `http://host`, `http://host/v1` and `http://host/v1/embeddings` mean the same."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if not path.endswith("/embeddings"):
        path = f"{path or '/v1'}/embeddings"
    return urlunsplit(parts._replace(path=path))


def _is_local(url: str) -> bool:
    """Return whether a URL is on this machine, which HTTP proxies do not reach."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _parse_vectors(content: bytes, count: int) -> list[Vector]:
    try:
        items = decode_as(content, _Answer).data
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise EndpointError(f"not a response of an embeddings endpoint: {exc}") from exc
    if all(item.index is not None for item in items):
        items.sort(key=lambda item: item.index or 0)
    lengths = {len(item.embedding) for item in items}
    if len(items) != count or len(lengths) != 1 or 0 in lengths:
        raise EndpointError(f"{len(items)} vectors of {sorted(lengths)} numbers for {count} texts")
    return [_normalize(item.embedding) for item in items]


def _normalize(numbers: list[float]) -> Vector:
    length = math.hypot(*numbers)
    if not 0 < length < math.inf:
        raise EndpointError("a vector without a direction")
    return array("f", [number / length for number in numbers])
