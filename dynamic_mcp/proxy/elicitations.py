"""URL elicitations (MCP 2025-11-25): records the client of each, so that its completion reaches that client alone."""

from __future__ import annotations

from msgspec import Raw

from dynamic_mcp.client import Client
from dynamic_mcp.errors import URL_ELICITATION_REQUIRED
from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.elicitation import required_elicitations
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.system.bounded import BoundedDict

COMPLETE = "notifications/elicitation/complete"
# Elicitations that are remembered; the oldest is forgotten first.
_MAX_REMEMBERED = 1000
_CODE = b"%d" % URL_ELICITATION_REQUIRED


def name_asker(group: str, client: Client, answer: Frame) -> Frame:
    """Return an error with the name of the server in the elicitations that it asks for, if it does."""
    if _CODE not in bytes(answer.error):
        return answer
    from dynamic_mcp.proxy.asked_questions import prepare_error  # seldom needed

    return prepare_error(group, client, answer)


class Elicitations:
    """The elicitations that upstreams have sent, by their ids; two upstreams may choose the same."""

    def __init__(self) -> None:
        self._clients: BoundedDict[bytes, dict[Client, None]] = BoundedDict(_MAX_REMEMBERED)

    def note_request(self, client: Client, frame: Frame) -> None:
        """Note an `elicitation/create` that a client is asked."""
        if frame.method == "elicitation/create":
            self._note(client, wire.member(frame.params, "elicitationId"))

    def check_error(self, client: Client, answer: Frame) -> Frame:
        """Return an error, or another one if it asks for elicitations that a client must not be asked for.

        Those that it asks for are noted.
        """
        from dynamic_mcp.proxy.asked_questions import check_error  # seldom needed

        answer = check_error(answer)
        for each in required_elicitations(answer.error):
            self._note(client, wire.member(each, "elicitationId"))
        return answer

    def pass_completion_on(self, instance: Instance, frame: Frame) -> bool:
        """Notify the client whose elicitation is complete; returns whether it can be no other client's."""
        id = bytes(wire.member(frame.params, "elicitationId"))
        clients = [client for client in self._clients.get(id) or () if instance.users.has_served(client)]
        for client in clients:
            self._forget(client, id)
            client.notify(frame)
        return bool(clients) or instance.users.has_been_shared

    def release(self, client: Client) -> None:
        """Forget a client."""
        for id in [id for id, clients in self._clients.items() if client in clients]:
            self._forget(client, id)

    def _note(self, client: Client, id: Raw) -> None:
        if len(id):
            self._clients.setdefault(bytes(id), {})[client] = None

    def _forget(self, client: Client, id: bytes) -> None:
        clients = self._clients[id]
        del clients[client]
        if not clients:
            del self._clients[id]
