"""Events of clients besides their requests: connected, authenticated, disconnected."""

from __future__ import annotations

import time
from collections.abc import Iterator

from dynamic_mcp.client import Client
from dynamic_mcp.identity import Principal
from dynamic_mcp.proxy.request import Event

SESSION_CLOSED = "session.closed"


def events_of_beginning(client: Client) -> Iterator[Event]:
    """Yield that a client was let in, unless it needs no credential, and that its session has begun."""
    authentication = client.authentication
    if not authentication.is_local:
        yield Event("auth.accepted", {"provider": authentication.provider}, client)
    members: dict[str, object] = {"transport": client.transport, "protocol": client.hello.revision.name}
    chosen = {"profile": client.profile, "group": client.only, "command": client.is_command or None}
    yield Event(
        "session.opened", members | {name: value for name, value in chosen.items() if value is not None}, client
    )


def event_of_login(group: str, person: Principal | None) -> Event:
    """Return the event that a user logged in to a server; None is the local user."""
    whose = {} if person is None else {"of": person.subject, "of_issuer": person.issuer}
    return Event("login.done", {"group": group, **whose})


def event_of_end(client: Client) -> Event:
    """Return that a session has ended, with how many requests it had and how long it was."""
    seconds = round(max(time.time() - client.since, 0.0), 1)
    return Event(SESSION_CLOSED, {"requests": client.requests, "seconds": seconds}, client)
