"""A registry on loopback: serves documents with the API v0.1 as the official one does, or anything else."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from dynamic_mcp.features.registry.config import Registry

Json = Any  # whatever JSON a test writes down
OFFICIAL = "io.modelcontextprotocol.registry/official"


class Response:
    """What is sent: a status, a body, and further headers. Without `length`, the body ends with the connection."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.body, self.headers = status, body, dict(headers or {})


def reply(value: Json, status: int = 200, **headers: str) -> Response:
    return Response(status, json.dumps(value).encode(), headers)


class FakeRegistry:
    """Holds versions of servers, oldest first; `override` may answer a path in its place."""

    def __init__(self) -> None:
        self.page_size = 100
        self.requests: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.override: Callable[[str], Response | None] = lambda path: None
        self.released = threading.Event()
        self._versions: dict[str, list[Json]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def registry(self) -> Registry:
        return Registry("fake", self.url)

    def publish(self, server: Json, *, status: str = "active", message: str = "") -> None:
        """Add a version of a server."""
        official = {"status": status, "publishedAt": "2026-01-02T03:04:05Z", "isLatest": True}
        entry = {"server": server, "_meta": {OFFICIAL: official | ({"statusMessage": message} if message else {})}}
        self._versions.setdefault(server["name"], []).append(entry)

    def forget(self) -> None:
        """Remove everything."""
        self._versions.clear()

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def respond(self, target: str, headers: Mapping[str, str]) -> Response:
        """Answer a request."""
        self.requests.append(target)
        self.headers.append(headers)
        replaced = self.override(target)
        if replaced is not None:
            return replaced
        parts = urlsplit(target)
        response = self._find(parts.path, {key: values[0] for key, values in parse_qs(parts.query).items()})
        etag = f'"{sha256(response.body).hexdigest()[:16]}"'
        if response.status == 200 and headers.get("if-none-match") == etag:
            return Response(304, b"", {"etag": etag})
        response.headers["etag"] = etag
        return response

    def _find(self, path: str, query: Mapping[str, str]) -> Response:
        prefix, *words = path.strip("/").split("/")
        words = [unquote(word) for word in words]
        if prefix != "v0.1":
            return reply({"title": "Not Found"}, 404)
        match words:
            case ["servers"]:
                word = query.get("search", "").casefold()
                latest = [versions[-1] for versions in self._versions.values()]
                return self._page([each for each in latest if word in each["server"]["name"].casefold()], query)
            case ["servers", name, "versions"] if name in self._versions:
                return self._page(self._versions[name][::-1], query)
            case ["servers", name, "versions", "latest"] if name in self._versions:
                return reply(self._versions[name][-1])
            case ["servers", name, "versions", version]:
                found = [each for each in self._versions.get(name, []) if each["server"]["version"] == version]
                return reply(found[0]) if found else reply({"title": "Not Found"}, 404)
        return reply({"title": "Not Found"}, 404)

    def _page(self, entries: list[Json], query: Mapping[str, str]) -> Response:
        start = int(query.get("cursor", "0"))
        end = start + min(self.page_size, int(query.get("limit", "30")))
        metadata = {"count": len(entries[start:end])} | ({"nextCursor": str(end)} if end < len(entries) else {})
        return reply({"servers": entries[start:end], "metadata": metadata})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                response = fake.respond(self.path, headers)
                with contextlib.suppress(ConnectionError):
                    self.send_response(response.status)
                    for name, value in response.headers.items():
                        self.send_header(name, value)
                    self.send_header("content-length", str(len(response.body)))
                    self.end_headers()
                    self.wfile.write(response.body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@contextlib.contextmanager
def fake_registry() -> Iterator[FakeRegistry]:
    """Run a registry on loopback."""
    fake = FakeRegistry()
    try:
        yield fake
    finally:
        fake.close()
