"""What every POST of streamable HTTP must say of itself in its head, whatever its revision."""

from __future__ import annotations

from collections.abc import Mapping

from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.headers import accepts_answers, declared_bytes, is_json
from dynamic_mcp.face.http.responses import refusal, too_long


def refuse_post(headers: Mapping[bytes, bytes], max_body_bytes: int) -> Response | None:
    """Return why a message is not taken; None if its body may come."""
    if not is_json(headers):
        return refusal(415, "`Content-Type` must be `application/json`")
    if not accepts_answers(headers):
        return refusal(406, "`Accept` must name both `application/json` and `text/event-stream`")
    if declared_bytes(headers) > max_body_bytes:
        return too_long(max_body_bytes)
    return None
