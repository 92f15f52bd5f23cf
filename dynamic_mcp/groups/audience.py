"""Which clients of a group share one instance."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from dynamic_mcp.client import Client, ClientHello
from dynamic_mcp.config.resolved import Share
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.identity import Principal
from dynamic_mcp.mcp.revisions import MODERN

if TYPE_CHECKING:
    from dynamic_mcp.groups.instance import Instance

_EVERYBODY = "everybody"
# A command uses an instance in one of these states, the first if it can, rather than start another one.
_JOINABLE = (State.READY, State.CONNECTING)


class Peers(Struct, frozen=True):
    """The clients of one principal that an upstream cannot tell from one another."""

    principal: Principal
    identity: Hashable


def audience_of(client: Client, share: Share, *, asks: bool, common: ClientHello | None = None) -> Hashable:
    """Return what all clients of one instance have in common.

    `asks` tells that the server has asked a client something. Over stdio nothing says whose call a question belongs
    to, so such a server is not shared by itself. `common` is what the server is told instead of the client's own
    hello, if it makes no difference between kinds of clients.
    """
    match share:
        case Share.SESSION:
            return client
        case Share.USER:
            return client.principal
        case Share.ALL:
            return _EVERYBODY
        case Share.AUTO:
            return client if asks else Peers(client.principal, (common or client.hello).identity)


def find_joinable(own: Hashable, instances: Mapping[Hashable, Instance]) -> Hashable:
    """Return the audience of an instance that a command can use, or its `own`.

    That is an instance which several clients of the same principal may share, however they call themselves; never one
    that belongs to one session.
    """
    joinable = [
        audience
        for audience, instance in instances.items()
        if isinstance(audience, Peers) and isinstance(own, Peers) and audience.principal == own.principal
        if instance.state in _JOINABLE
    ]
    return min(joinable, key=lambda each: _JOINABLE.index(instances[each].state), default=own)


def hello_for(client: Client, share: Share, common: ClientHello | None = None) -> ClientHello:
    """Return how an instance is greeted: as its client, or as ourselves, in the newest way, if it is everybody's.

    `common` is how it is greeted if its server makes no difference between kinds of clients.
    """
    return ClientHello(MODERN) if share is Share.ALL else common or client.hello
