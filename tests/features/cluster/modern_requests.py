"""Requests of clients of 2026-07-28, which go to any replica."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from tests.face.http.modern_parties import headers_for
from tests.fakes import Json
from tests.features.cluster.replicas import as_user
from tests.http_client import HttpClient
from tests.mcp_client import BOTH, McpStream
from tests.modern_client import PREFIX

TASKS = f"{PREFIX}tasks"
CAPABILITIES: Json = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}, "extensions": {TASKS: {}}}


def meta_of(capabilities: Json = CAPABILITIES) -> dict[str, Json]:
    """Return what says who sends a request."""
    return {
        f"{PREFIX}protocolVersion": "2026-07-28",
        f"{PREFIX}clientInfo": {"name": "modern", "version": "1"},
        f"{PREFIX}clientCapabilities": capabilities,
    }


_URI = re.compile(r"`(dynamic-mcp://results/[^`?]+)`")


def uri_in(answer: Json) -> str:
    """Return the URI of the whole result that an answer names."""
    found = _URI.search(str(answer))
    assert found is not None, answer
    return found[1]


async def begin(
    http: HttpClient,
    method: str,
    params: Json,
    *,
    user: str = "ann",
    path: str = "/mcp",
    capabilities: Json = CAPABILITIES,
    site: Mapping[str, str] | None = None,
) -> McpStream:
    """Send a request of a user; `site` are headers for what is before the replicas."""
    params = {**params, "_meta": meta_of(capabilities)}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {
        "Accept": BOTH,
        "Content-Type": "application/json",
        **headers_for(message),
        **as_user(user),
        **(site or {}),
    }
    return McpStream(await http.request("POST", path, headers, json.dumps(message).encode()))


async def send(
    http: HttpClient,
    method: str,
    params: Json,
    *,
    user: str = "ann",
    path: str = "/mcp",
    capabilities: Json = CAPABILITIES,
    site: Mapping[str, str] | None = None,
) -> dict[str, Json]:
    """Send a request of a user; return its answer."""
    stream = await begin(http, method, params, user=user, path=path, capabilities=capabilities, site=site)
    if stream.response.headers["content-type"].startswith("text/event-stream"):
        return await stream.until(1)
    answer: dict[str, Json] = json.loads(await stream.response.read())
    return answer
