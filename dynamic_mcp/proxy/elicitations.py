"""URL elicitations (MCP 2025-11-25): whose each one is, so that its completion reaches that client alone."""

from __future__ import annotations

from msgspec import Raw

from dynamic_mcp.groups.audience import Client
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.system.bounded import BoundedDict

COMPLETE = "notifications/elicitation/complete"
# Elicitations that are remembered; the oldest is forgotten first.
_MAX_REMEMBERED = 1000


class Elicitations:
    """The elicitations that upstreams have sent, by their ids."""

    def __init__(self) -> None:
        self._clients: BoundedDict[bytes, Client] = BoundedDict(_MAX_REMEMBERED)

    def note_request(self, client: Client, frame: Frame) -> None:
        """Note an `elicitation/create` that a client is asked."""
        if frame.method == "elicitation/create":
            self._note(client, wire.member(frame.params, "elicitationId"))

    def note_error(self, client: Client, error: Raw) -> None:
        """Note the elicitations that an error with the code -32042 asks for."""
        required = wire.member(error, "data", "elicitations")
        if bytes(required)[:1] == b"[":
            for each in wire.elements(required):
                self._note(client, wire.member(each, "elicitationId"))

    def pass_completion_on(self, frame: Frame) -> bool:
        """Tell the client whose elicitation is complete; returns whether the elicitation is known."""
        client = self._clients.pop(bytes(wire.member(frame.params, "elicitationId")), None)
        if client is not None:
            client.notify(frame)
        return client is not None

    def release(self, client: Client) -> None:
        """Forget a client."""
        for id in [id for id, each in self._clients.items() if each is client]:
            del self._clients[id]

    def _note(self, client: Client, id: Raw) -> None:
        if len(id):
            self._clients[bytes(id)] = client
