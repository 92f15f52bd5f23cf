"""The checks of a POST's head that all revisions of streamable HTTP share."""

from __future__ import annotations

from collections.abc import Mapping

from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.headers import accepts_answers, is_json
from dynamic_mcp.face.http.responses import refusal


def refuse_post(headers: Mapping[bytes, bytes]) -> Response | None:
    """Return the refusal of a message's head; None if the body may follow, unless it is too long."""
    if not is_json(headers):
        return refusal(415, "`Content-Type` must be `application/json`")
    if not accepts_answers(headers):
        return refusal(406, "`Accept` must name both `application/json` and `text/event-stream`")
    return None
