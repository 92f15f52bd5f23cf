"""A command as a client of the proxy: what it asks goes the way of every request, from the proxy on down."""

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
from dynamic_mcp.cli.progress import Waiting
from dynamic_mcp.config.values import FlawError, seconds
from dynamic_mcp.embeddings import SemanticIndex
from dynamic_mcp.errors import InvalidArguments, UpstreamError
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.groups.instance import Group, OpenLink
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.oauth.user_logins import open_logins
from dynamic_mcp.proxy.router import Proxy
from dynamic_mcp.system import paths
from dynamic_mcp.upstream.open import PROTOCOL_VERSIONS, open_link
from dynamic_mcp.upstream.process.child import terminate_all

if TYPE_CHECKING:
    from dynamic_mcp.config.resolved import Config

T = TypeVar("T")

# Who a command is, as a client.
HELLO = {
    "protocolVersion": PROTOCOL_VERSIONS[0],
    "capabilities": {},
    "clientInfo": {"name": "dynamic-mcp", "title": "dynamic-mcp on the command line", "version": __version__},
}

# How long servers may take to end once a command has its answer, whatever they do.
END_WITHIN_S = 2.0


class Client:
    """One session of a proxy of its own; what upstreams say meanwhile goes to stderr."""

    def __init__(self, proxy: Proxy, out: Output) -> None:
        self.proxy = proxy
        self._out = out
        self._session = proxy.connect(self._told)

    async def begin(self) -> None:
        """Greet the proxy, which lets groups begin whose catalog is not known."""
        await self.ask("initialize", HELLO)

    async def ask(self, method: str, params: Mapping[str, object], *, group: str = "") -> Raw:
        """Return the result of a request. Raises DynamicMcpError, also for an upstream's JSON-RPC error."""
        try:
            answer = await self.proxy.answer(self._session, Frame(method=method, params=Raw(wire.encode(params))))
        except wire.Malformed as exc:
            raise InvalidArguments(str(exc)) from exc
        if len(answer.error):
            message = wire.text(wire.member(answer.error, "message")) or bytes(answer.error).decode()
            code = bytes(wire.member(answer.error, "code")).decode()
            raise UpstreamError(group, f"the server answered with error {code}: {message}")
        return answer.result

    def _told(self, line: bytes) -> None:
        message = json.loads(line)
        params = message.get("params") or {}
        match message.get("method"):
            case "notifications/progress":
                self._out.progressed(_progress(params))
            case "notifications/message":
                self._out.words(f"{params.get('level', 'info')} {params.get('logger', '')}: {_data(params)}")


@contextlib.asynccontextmanager
async def client(
    config: Config, out: Output, *, wrapped: Callable[[OpenLink], OpenLink] | None = None, learns_anew: bool = False
) -> AsyncIterator[Client]:
    """Run a proxy for one command; whatever it started is gone afterwards.

    `wrapped` may look on while links are opened. One that `learns_anew` connects to every group, and neither reads
    nor keeps catalogs on disk.
    """
    catalog_store = None if learns_anew else CatalogStore(paths.cache_dir() / "catalogs")
    known = open_logins(config.file, may_open_browser=False)
    opener = partial(open_link, logins=known)
    semantic_index = SemanticIndex(paths.cache_dir() / "vectors")
    proxy = Proxy(
        config,
        opener=wrapped(opener) if wrapped else opener,
        catalog_store=catalog_store,
        semantic_index=semantic_index,
    )
    made = Client(proxy, out)
    try:
        await made.begin()
        yield made
        if catalog_store is not None:
            await asyncio.to_thread(_keep, proxy, catalog_store)
    finally:
        terminate_all(END_WITHIN_S)
        await proxy.close()
        await known.close()


async def each_group(made: Client, waiting: Waiting, ask: Callable[[Group], Awaitable[T]]) -> list[T]:
    """Ask all groups at once, and return the answers in their order."""

    async def asked(group: Group) -> T:
        try:
            return await ask(group)
        finally:
            waiting.done(group.name)

    return await asyncio.gather(*map(asked, made.proxy.groups))


def with_timeout(config: Config, text: str | None, kind: Literal["tools_s", "resources_s", "prompts_s"]) -> Config:
    """Return the config with the time that --timeout allows, if it allows any. Raises InvalidArguments."""
    if text is None:
        return config
    try:
        limit_s = seconds(text)
    except FlawError as exc:
        raise InvalidArguments(f"--timeout {exc}", hint=exc.hint) from exc
    change = {kind: limit_s}
    groups = (replace(group, timeouts=replace(group.timeouts, **change)) for group in config.groups)
    return replace(config, groups=tuple(groups))


def _keep(proxy: Proxy, catalog_store: CatalogStore) -> None:
    """Keep what was learnt, for the next command and the next proxy; a group by itself would do so a moment later."""
    for group in proxy.groups:
        if group.state is State.READY and group.known is not None and group.known.knows(ListKind):
            catalog_store.save(group.config, group.known)


def _progress(params: dict[str, Any]) -> str:  # Any: whatever JSON an upstream sends
    done, total = params.get("progress"), params.get("total")
    far = f"{done}/{total}" if total is not None else f"{done}"
    share = ""
    if isinstance(done, int | float) and isinstance(total, int | float) and total > 0:
        share = f" ({min(1.0, max(0.0, done / total)):.0%})"
    return f"progress {far}{share}{': ' if params.get('message') else ''}{params.get('message', '')}"


def _data(params: dict[str, Any]) -> str:  # Any: whatever JSON an upstream sends
    data = params.get("data", "")
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
