"""A command as a client of an in-process proxy, which ends with the command, together with its servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp.cli.client import encode_params, introduce
from dynamic_mcp.cli.inbox import Inbox
from dynamic_mcp.config.resolved import Pinning
from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.host.observing import Observing
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.oauth.user_logins import login_command, open_logins
from dynamic_mcp.proxy.client_group import ViewedGroup
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.shared_store import has_shared_store, using_shared_store
from dynamic_mcp.session.client_connection import ClientConnection, ClientOrigin
from dynamic_mcp.session.command_messages import upstream_error
from dynamic_mcp.session.legacy import Session
from dynamic_mcp.system import paths
from dynamic_mcp.upstream.open import OpenLink, open_link
from dynamic_mcp.upstream.process.child import terminate_all

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation
    from dynamic_mcp.config.resolved import Config
    from dynamic_mcp.oauth.logins import Logins

# The time for servers to exit once the command has its result.
END_WITHIN_S = 2.0


class OwnClient:
    """A session in memory with a proxy in this process."""

    def __init__(self, context: Invocation, proxy: Proxy, *, may_ask: bool = False) -> None:
        self._this = context
        self._proxy = proxy
        self._inbox = Inbox(context.out, lambda line: self._session.receive(line), may_ask=may_ask)
        connection = ClientConnection(
            lambda line: self._inbox.receive(wire.parse(line)), origin=ClientOrigin(profile=context.profile)
        )
        self._session = Session(connection, proxy)

    @property
    def groups(self) -> list[ViewedGroup]:
        return [ViewedGroup(group, self._session) for group in self._proxy.view_for(self._session)]

    def group(self, name: str) -> ViewedGroup:
        return ViewedGroup(self._proxy.view_for(self._session)[name], self._session)

    async def initialize(self) -> Raw:
        """Send `initialize`; the proxy then connects groups without a cached catalog."""
        return await self.ask("initialize", introduce(self._this.command, self._inbox))

    async def ask(self, method: str, params: Mapping[str, object], *, group: str = "") -> Raw:
        """Return the result of a request. Raises DynamicMcpError, also for an upstream's JSON-RPC error."""
        try:
            answer = await self._session.answer(Frame(method=method, params=Raw(encode_params(params))))
        except wire.Malformed as exc:
            raise InvalidArguments(str(exc)) from exc
        if len(answer.error):
            raise upstream_error(answer.error, group)
        return answer.result

    async def close(self) -> None:
        await self._inbox.close()
        self._session.close()


@contextlib.asynccontextmanager
async def open_own_client(
    context: Invocation,
    config: Config,
    *,
    may_ask: bool = False,
    wrap_opener: Callable[[OpenLink], OpenLink] | None = None,
    uses_cache: bool = True,
) -> AsyncIterator[OwnClient]:
    """Run a proxy for one command; all its processes have exited afterwards.

    Its requests are recorded in the audit log of the config, like those of every client. With `may_ask`, the user
    answers forms at the terminal. Raises ConfigError if a plug-in cannot be opened.

    `wrap_opener` may observe the opening of links. Without the cache, every group is connected, no catalog is read
    from disk or written to it, and catalogs are not filtered.
    """
    if not uses_cache:
        trusted = {name: replace(each, pinning=Pinning()) for name, each in config.presentations.items()}
        config = replace(config, presentations=trusted)
    catalog_store = CatalogStore(paths.cache_dir() / "catalogs") if uses_cache else None
    logins = open_logins(partial(login_command, config.file), may_open_browser=False)
    opener = partial(open_link, logins=lambda: logins)
    proxy = Proxy(
        config,
        opener=wrap_opener(opener) if wrap_opener else opener,
        catalog_store=catalog_store,
        vectors=paths.cache_dir() / "vectors",
    )
    client = OwnClient(context, proxy, may_ask=may_ask)
    try:
        async with _observed(proxy, config), _shared(logins, config):
            try:
                await proxy.open(config)
                await client.initialize()
                yield client
                if catalog_store is not None:
                    await asyncio.to_thread(_save_catalogs, client, catalog_store)
            finally:
                await client.close()
    finally:
        terminate_all(END_WITHIN_S)
        await proxy.close()
        await logins.close()


@contextlib.asynccontextmanager
async def _observed(proxy: Proxy, config: Config) -> AsyncIterator[None]:
    """Run the features that observe commands."""
    observing = Observing(proxy, is_command=True)
    observing.apply(config)
    try:
        yield
    finally:
        await observing.close()


@contextlib.asynccontextmanager
async def _shared(logins: Logins, config: Config) -> AsyncIterator[None]:
    """Use the logins that replicas share, if the config names a store."""
    if not has_shared_store(config):
        yield
        return
    async with using_shared_store(config) as store:
        logins.share(store)
        try:
            yield
        finally:
            await logins.settle()


def _save_catalogs(client: OwnClient, catalog_store: CatalogStore) -> None:
    """Save the catalogs for the next command or proxy; the groups would save them only later."""
    for group in client.groups:
        if group.state is State.READY and group.whole is not None and group.whole.knows(ListKind):
            catalog_store.save(group.config, group.whole)
