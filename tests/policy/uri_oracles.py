"""What parsers make of a URI: Node's `URL`, pydantic's `AnyUrl`, and Python's `urlsplit`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from posixpath import normpath
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

from pydantic import AnyUrl, TypeAdapter, ValidationError

_SCRIPT = """
const read = (text) => {
  try {
    const url = new URL(text)
    const readings = [url.href]
    url.username = url.password = ""
    readings.push(url.href)
    const origin = `${url.protocol}//${url.host}`
    try { if (url.href.startsWith(origin)) readings.push(origin + decodeURIComponent(url.pathname)) } catch {}
    return readings
  } catch {
    return []
  }
}
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  process.stdout.write(JSON.stringify(read(JSON.parse(line))) + "\\n")
})
"""
_ANY_URL = TypeAdapter(AnyUrl)
_DEFAULT_PORTS = {"http": 80, "https": 443}


class NodeUrls:
    """Node's `URL`, by one process for all texts."""

    def __init__(self, node: str) -> None:
        self._process = subprocess.Popen(
            [node, "-e", _SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()

    def read(self, uri: str) -> list[str]:
        """Return the readings of a server that uses `URL`, with and without escapes and users, if it takes it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(uri) + "\n")
        self._process.stdin.flush()
        readings: list[str] = json.loads(self._process.stdout.readline())
        return readings


def read_with_pydantic(uri: str) -> Iterator[str]:
    """Yield the readings of a server that uses `AnyUrl`, whose texts it takes apart by other means."""
    try:
        text = str(_ANY_URL.validate_python(uri))
    except ValidationError:
        return
    yield text
    yield from read_with_urlsplit(text)


def read_with_urlsplit(uri: str) -> Iterator[str]:
    """Yield the readings of a server that uses `urlsplit`: as a URL, and as a file."""
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        return
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    has_authority = parts.netloc or parts.scheme == "file" or parts.path.startswith("//")
    authority = f"//{host}" if has_authority else ""
    if port is not None and port != _DEFAULT_PORTS.get(parts.scheme):
        authority += f":{port}"
    path = parts.path or ("/" if parts.scheme in ("http", "https", "file") else "")
    yield f"{parts.scheme}:{authority}{path}"
    yield f"{parts.scheme}:{authority}{unquote(path)}"
    if parts.scheme == "file":
        slash = "/" if path.endswith("/") else ""
        yield f"file://{normpath(f'/{unquote(path)}')}{slash}".replace(":////", ":///")
