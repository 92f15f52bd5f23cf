"""Decides which clients of a group share one instance, by `share`, the server's questions and what it has offered."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping
from functools import cached_property

from msgspec import Raw, Struct

from dynamic_mcp.client import Client, ClientInfo
from dynamic_mcp.config.resolved import CommandLine, FeatureServer, Program, Share, SkillFolders
from dynamic_mcp.groups.catalog import Catalog
from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.groups.live_catalog import LiveCatalog
from dynamic_mcp.groups.offers import Offers, digest_of, kind_of
from dynamic_mcp.identity import Principal
from dynamic_mcp.mcp.revisions import MODERN, NEWEST

_EVERYBODY = "everybody"
# A command uses an instance in one of these states, the first if it can, rather than start another one.
_JOINABLE = (State.READY, State.CONNECTING)
# A server that is known to ask nothing gets a client that can be asked: a question shows that the server has changed.
_FOR_INDEPENDENT = ClientInfo(
    NEWEST, Raw(b'{"elicitation":{"form":{},"url":{}},"roots":{},"sampling":{}}'), is_common=True
)


class Peers(Struct, frozen=True):
    """The clients of one principal that an upstream cannot tell from one another."""

    principal: Principal
    identity: Hashable


def audience_of(client: Client, share: Share, *, asks: bool, common: ClientInfo | None = None) -> Hashable:
    """Return what all clients of one instance have in common.

    `asks` tells that the server has asked a client something. Over stdio nothing says whose call a question belongs
    to, so such a server is not shared by itself. `common` is the hello that replaces the client's own, if
    the server makes no difference between kinds of clients.
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


def find_joinable(key: Hashable, instances: Mapping[Hashable, Instance]) -> Hashable:
    """Return the audience of an instance that a command can use, or its `own`.

    That is an instance which several clients of the same principal may share, however they call themselves; never one
    that belongs to one session.
    """
    joinable = [
        audience
        for audience, instance in instances.items()
        if isinstance(audience, Peers) and isinstance(key, Peers) and audience.principal == key.principal
        if instance.state in _JOINABLE
    ]
    return min(joinable, key=lambda each: _JOINABLE.index(instances[each].state), default=key)


def hello_for(client: Client, share: Share, common: ClientInfo | None = None) -> ClientInfo:
    """Return the `initialize` params for an instance: its client's, or the newest of ours if all clients share it.

    `common` is how it is greeted if its server makes no difference between kinds of clients.
    """
    return ClientInfo(MODERN) if share is Share.ALL else common or client.hello


class Sharing:
    """A group's knowledge of whether its server treats its clients differently.

    A client over stdio is the only one of its proxy: for it nothing is compared, and it shares with none.
    """

    def __init__(self, catalog: LiveCatalog) -> None:
        self._catalog = catalog
        self._has_several_clients = False

    @cached_property
    def is_known(self) -> bool:
        """True if the server is known to treat all clients alike, so that nothing is compared."""
        from dynamic_mcp.config.client_independent import is_client_independent  # not asked where nothing is shared

        return is_client_independent(self._catalog.config.upstream)

    @property
    def may_be_common(self) -> bool:
        """True if several kinds of clients may use one instance: of a process that has asked no client anything."""
        catalog = self._catalog
        upstream = catalog.config.upstream
        is_here = catalog.config.is_api or isinstance(upstream, Program | CommandLine | SkillFolders | FeatureServer)
        return is_here and catalog.config.share is Share.AUTO and not catalog.asks

    @property
    def offers(self) -> Offers:
        return self._catalog.offers

    def common_hello(self, client: Client) -> ClientInfo | None:
        """Return the hello that replaces a client's own; None if the server receives the client's."""
        if client.transport == "stdio":
            return None
        self._has_several_clients = True
        return self._common_hello(client.hello)

    def is_superseded(self, hello: ClientInfo) -> bool:
        """Return whether clients like those of an instance initialized with this hello now share another one."""
        common = self._common_hello(hello) if self._has_several_clients else None
        return common is not None and common.identity != hello.identity

    def _common_hello(self, hello: ClientInfo) -> ClientInfo | None:
        if not self.may_be_common:
            return None
        if self.is_known:
            return _FOR_INDEPENDENT
        kind = kind_of(hello)
        return None if kind is None else self._catalog.offers.common_hello(kind)

    async def compare(self, hello: ClientInfo, offer: Catalog) -> None:
        """Record what the server offers over a new link that was initialized with this hello."""
        kind = kind_of(hello)
        if kind is not None and self._has_several_clients and self.may_be_common and not self.is_known:
            digest = await asyncio.to_thread(digest_of, offer)
            self._catalog.offers = self._catalog.offers.record(kind, digest)
