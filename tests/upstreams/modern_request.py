"""Requests of MCP 2026-07-28 as conformance_modern.py takes them: each is checked before anything is done.

A request says who sends it and what that can do; nothing is known from other requests.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Json = Any  # what a peer sent, of any shape

VERSION = "2026-07-28"
META = "io.modelcontextprotocol/"
SERVER_INFO = {"name": "conformance-modern", "version": "1.0.0"}
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
_STATUSES = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
}
# Constant, because a retry may reach another process of the same server.
_KEY = b"the key of a fixture"


class Refusal(Exception):
    """An error that a request is answered with; `status` is the one of HTTP."""

    def __init__(self, code: int, message: str, data: Json = None, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = _STATUSES.get(code, 200) if status is None else status
        self.error: Json = {"code": code, "message": message, **({} if data is None else {"data": data})}


class NeedsInput(Exception):
    """The questions, by their keys, without whose answers a request cannot be completed."""

    def __init__(self, questions: dict[str, Json], state: str | None) -> None:
        super().__init__(", ".join(questions))
        self.result: Json = {"resultType": "input_required", "inputRequests": questions}
        if state is not None:
            self.result["requestState"] = state


@dataclass(frozen=True)
class Request:
    """One request of a client; `send` sends a message before the answer, `open_stream` makes the answer a stream."""

    id: str | int
    method: str
    params: dict[str, Json]
    send: Callable[[Json], None]
    open_stream: Callable[[], None] = field(default=lambda: None)

    @property
    def meta(self) -> dict[str, Json]:
        meta: dict[str, Json] = self.params["_meta"]
        return meta

    @property
    def arguments(self) -> dict[str, Json]:
        return self.params.get("arguments") or {}

    @property
    def capabilities(self) -> dict[str, Json]:
        capabilities: dict[str, Json] = self.meta[f"{META}clientCapabilities"]
        return capabilities

    def has_extension(self, name: str) -> bool:
        return name in self.capabilities.get("extensions", {})

    def notify(self, method: str, params: Json) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def log(self, level: str, data: str) -> None:
        """Send a log message, if the request asks for messages of this level."""
        wanted = self.meta.get(f"{META}logLevel")
        if wanted is not None and LEVELS.index(level) >= LEVELS.index(wanted):
            self.notify("notifications/message", {"level": level, "logger": "conformance", "data": data})

    def report_progress(self, progress: int, total: int, message: str) -> None:
        """Report progress, if the request has a token for it."""
        token = self.meta.get("progressToken")
        if token is not None:
            params = {"progressToken": token, "progress": progress, "total": total, "message": message}
            self.notify("notifications/progress", params)

    def require(self, *capabilities: str) -> None:
        """Refuse the request of a client that cannot do this."""
        missing: dict[str, Json] = {name: {} for name in capabilities if name not in self.capabilities}
        if missing:
            raise Refusal(MISSING_CAPABILITY, "the client cannot do this", {"requiredCapabilities": missing})

    # --- state between the rounds ------------------------------------------------------------------------

    def seal(self, state: Json) -> str:
        """Return state that the client brings back, with the same request under another id."""
        body = json.dumps({"state": state, "of": self._digest(), "id": self.id}).encode()
        parts = (body, hmac.digest(_KEY, body, "sha256"))
        return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)

    def unseal(self) -> Json:
        """Return the state that the client has brought back, None if there is none; refuse any other."""
        sealed = self.params.get("requestState")
        if sealed is None:
            return None
        try:
            body, signature = (base64.urlsafe_b64decode(part + "==") for part in sealed.split("."))
        except (AttributeError, ValueError, binascii.Error):
            raise Refusal(INVALID_PARAMS, "requestState is not of this server") from None
        if not hmac.compare_digest(signature, hmac.digest(_KEY, body, "sha256")):
            raise Refusal(INVALID_PARAMS, "requestState was changed")
        content = json.loads(body)
        if content["of"] != self._digest():
            raise Refusal(INVALID_PARAMS, "requestState is of another request")
        if content["id"] == self.id:
            raise Refusal(INVALID_REQUEST, "a retry needs an id of its own")
        return content["state"]

    def _digest(self) -> str:
        members = {key: value for key, value in self.params.items() if key in ("name", "uri", "arguments")}
        return hashlib.sha256(json.dumps([self.method, members], sort_keys=True).encode()).hexdigest()


def check_message(message: Json) -> None:
    """Refuse what is no message of a client."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise Refusal(INVALID_REQUEST, "not a JSON-RPC message")
    id = message.get("id", "")
    if "method" not in message:
        raise Refusal(INVALID_REQUEST, "a client sends no answers")
    if not isinstance(message["method"], str) or isinstance(id, bool) or not isinstance(id, str | int):
        raise Refusal(INVALID_REQUEST, "a method is a text, and an id a text or an integer")
    if not isinstance(message.get("params", {}), dict):
        raise Refusal(INVALID_PARAMS, "params is an object", status=400)


def check_meta(message: Json) -> None:
    """Refuse a request that does not say who sends it."""
    meta = message.get("params", {}).get("_meta")
    if not isinstance(meta, dict):
        raise _malformed("there is no _meta", message)
    shapes = {"protocolVersion": str, "clientCapabilities": dict}
    for name, shape in shapes.items():
        if not isinstance(meta.get(META + name), shape):
            raise _malformed(f"_meta has no {META}{name}", message)
    info = meta.get(f"{META}clientInfo", {"name": "", "version": ""})
    if not (isinstance(info, dict) and isinstance(info.get("name"), str) and isinstance(info.get("version"), str)):
        raise _malformed(f"{META}clientInfo has no name or version", message)
    if meta.get(f"{META}logLevel", "info") not in LEVELS:
        raise _malformed(f"{META}logLevel is no level", message)
    for server_only in ("serverInfo", "subscriptionId"):
        if META + server_only in meta:
            raise _malformed(f"{META}{server_only} is for servers", message)


def check_version(message: Json) -> None:
    """Refuse a request of a revision that is not served."""
    requested = message["params"]["_meta"][f"{META}protocolVersion"]
    if requested != VERSION:
        data = {"supported": [VERSION], "requested": requested}
        raise Refusal(UNSUPPORTED_VERSION, f"only {VERSION} is served", data)


def name_versions(message: Json) -> str:
    """Return what an error says besides to a client that says `initialize`: the revisions that are served."""
    return f"; this server speaks {VERSION} only" if message.get("method") == "initialize" else ""


def _malformed(words: str, message: Json) -> Refusal:
    """Return the error for a request whose `_meta` is not as it has to be."""
    return Refusal(INVALID_PARAMS, words + name_versions(message), status=400)
