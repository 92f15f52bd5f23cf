"""What every POST of streamable HTTP must say of itself in its head, whatever its revision."""

from __future__ import annotations

from collections.abc import Mapping

from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.headers import accepts_answers, is_json
from dynamic_mcp.face.http.responses import refusal


def refuse_post(headers: Mapping[bytes, bytes]) -> Response | None:
    """Return why a message is not taken; None if its body may come, unless that is too long."""
    if not is_json(headers):
        return refusal(415, "`Content-Type` must be `application/json`")
    if not accepts_answers(headers):
        return refusal(406, "`Accept` must name both `application/json` and `text/event-stream`")
    return None
