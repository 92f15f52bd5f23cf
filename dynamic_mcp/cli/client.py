"""A command as a client of a proxy of its own: its requests go through the proxy as every client's do."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp import __version__
from dynamic_mcp.cli.output import Output
from dynamic_mcp.cli.progress import Progress
from dynamic_mcp.config.values import FlawError, parse_seconds
from dynamic_mcp.embeddings import SemanticIndex
from dynamic_mcp.errors import InvalidArguments, UpstreamError
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.groups.instance import OpenLink
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.revisions import NEWEST
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.oauth.user_logins import open_logins
from dynamic_mcp.proxy.client_group import ClientGroup
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.session.legacy import Session
from dynamic_mcp.system import paths
from dynamic_mcp.upstream.open import open_link
from dynamic_mcp.upstream.process.child import terminate_all

if TYPE_CHECKING:
    from dynamic_mcp.config.resolved import Config

T = TypeVar("T")

# How a command introduces itself to its proxy.
HELLO = {
    "protocolVersion": NEWEST.name,
    "capabilities": {},
    "clientInfo": {"name": "dynamic-mcp", "title": "dynamic-mcp on the command line", "version": __version__},
}

# How long servers may take to exit once the command has its answer.
END_WITHIN_S = 2.0


class Client:
    """A session with a proxy; log messages and progress from upstreams go to stderr."""

    def __init__(self, proxy: Proxy, out: Output) -> None:
        self.proxy = proxy
        self._out = out
        self._session = Session(self._receive, proxy)

    @property
    def groups(self) -> list[ClientGroup]:
        """The groups of the config, in its order."""
        return [ClientGroup(group, self._session) for group in self.proxy.view_for(self._session)]

    def group(self, name: str) -> ClientGroup:
        """Return the group of this name. Raises NotFound."""
        return ClientGroup(self.proxy.view_for(self._session)[name], self._session)

    async def initialize(self) -> None:
        """Send `initialize`, upon which the proxy connects groups whose catalog is not cached."""
        await self.ask("initialize", HELLO)

    async def ask(self, method: str, params: Mapping[str, object], *, group: str = "") -> Raw:
        """Return the result of a request. Raises DynamicMcpError, also for an upstream's JSON-RPC error."""
        try:
            answer = await self._session.answer(Frame(method=method, params=Raw(wire.encode(params))))
        except wire.Malformed as exc:
            raise InvalidArguments(str(exc)) from exc
        if len(answer.error):
            message = wire.text(wire.member(answer.error, "message")) or bytes(answer.error).decode()
            code = bytes(wire.member(answer.error, "code")).decode()
            raise UpstreamError(group, f"the server answered with error {code}: {message}")
        return answer.result

    def _receive(self, line: bytes) -> None:
        message = json.loads(line)
        params = message.get("params") or {}
        match message.get("method"):
            case "notifications/progress":
                self._out.update_progress(_format_progress(params))
            case "notifications/message":
                self._out.say(f"{params.get('level', 'info')} {params.get('logger', '')}: {_format_data(params)}")


@contextlib.asynccontextmanager
async def open_client(
    config: Config, out: Output, *, wrap_opener: Callable[[OpenLink], OpenLink] | None = None, uses_cache: bool = True
) -> AsyncIterator[Client]:
    """Run a proxy for one command; every process that it started is gone afterwards.

    `wrap_opener` may observe how links are opened. Without the cache, every group is connected and no catalog is
    read from disk or written to it.
    """
    catalog_store = CatalogStore(paths.cache_dir() / "catalogs") if uses_cache else None
    logins = open_logins(config.file, may_open_browser=False)
    opener = partial(open_link, logins=logins)
    semantic_index = SemanticIndex(paths.cache_dir() / "vectors")
    proxy = Proxy(
        config,
        opener=wrap_opener(opener) if wrap_opener else opener,
        catalog_store=catalog_store,
        semantic_index=semantic_index,
    )
    client = Client(proxy, out)
    try:
        await client.initialize()
        yield client
        if catalog_store is not None:
            await asyncio.to_thread(_save_catalogs, client, catalog_store)
    finally:
        terminate_all(END_WITHIN_S)
        await proxy.close()
        await logins.close()


async def for_each_group(client: Client, progress: Progress, do: Callable[[ClientGroup], Awaitable[T]]) -> list[T]:
    """Do something with all groups at once; return the results in the order of the groups."""

    async def do_one(group: ClientGroup) -> T:
        try:
            return await do(group)
        finally:
            progress.complete(group.name)

    return await asyncio.gather(*map(do_one, client.groups))


def with_timeout(config: Config, text: str | None, kind: Literal["tools_s", "resources_s", "prompts_s"]) -> Config:
    """Return the config with the timeout that --timeout gives, if it is given. Raises InvalidArguments."""
    if text is None:
        return config
    try:
        limit_s = parse_seconds(text)
    except FlawError as exc:
        raise InvalidArguments(f"--timeout {exc}", hint=exc.hint) from exc
    change = {kind: limit_s}
    groups = (replace(group, timeouts=replace(group.timeouts, **change)) for group in config.groups)
    return replace(config, groups=tuple(groups))


def _save_catalogs(client: Client, catalog_store: CatalogStore) -> None:
    """Save the catalogs for the next command or proxy; the groups themselves would do so a moment later."""
    for group in client.groups:
        if group.state is State.READY and group.whole is not None and group.whole.knows(ListKind):
            catalog_store.save(group.config, group.whole)


def _format_progress(params: dict[str, Any]) -> str:  # Any: whatever JSON an upstream sends
    done, total = params.get("progress"), params.get("total")
    far = f"{done}/{total}" if total is not None else f"{done}"
    share = ""
    if isinstance(done, int | float) and isinstance(total, int | float) and total > 0:
        share = f" ({min(1.0, max(0.0, done / total)):.0%})"
    return f"progress {far}{share}{': ' if params.get('message') else ''}{params.get('message', '')}"


def _format_data(params: dict[str, Any]) -> str:  # Any: whatever JSON an upstream sends
    data = params.get("data", "")
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
