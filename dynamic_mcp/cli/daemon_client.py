"""A command as a client of the running daemon of its config, whose servers it uses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Raw

from dynamic_mcp.cli.client import encode_params, introduce
from dynamic_mcp.cli.inbox import Inbox
from dynamic_mcp.config.location import identify
from dynamic_mcp.errors import DaemonError, Interrupted, NotFound
from dynamic_mcp.face import window
from dynamic_mcp.face.daemon_connection import DaemonConnection
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.session.command_messages import (
    CATALOG,
    OPEN_UI,
    PING,
    REREAD,
    SESSIONS,
    VIEW,
    CatalogAnswer,
    CatalogRequest,
    GroupFacts,
    GroupFactsList,
    SessionList,
    UiAddress,
    decode_error,
    view_options,
)
from dynamic_mcp.system.decoding import decode_as

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation
    from dynamic_mcp.config.resolved import Config, GroupConfig
    from dynamic_mcp.system.private_socket import Socket

_Message = TypeVar("_Message", bound=msgspec.Struct)

# The time for a daemon to complete the handshake, and to load a config that has just changed.
_GREET_WITHIN_S = 10.0
_LOAD_WITHIN_S = 3.0
_POLL_S = 0.05


async def find_daemon(context: Invocation, config: Config, *, may_ask: bool = False) -> DaemonClient | None:
    """Open a session with the daemon of a config; None if none runs, or if it has just ended.

    Raises DaemonError if it does not respond, or has not loaded the config.
    """
    file = identify(config.file)
    connection = window.find_daemon(file)
    if connection is None:
        return None
    client = DaemonClient(context, config, may_ask=may_ask)
    try:
        async with asyncio.timeout(_GREET_WITHIN_S):
            await client.open(connection)
        await client.choose_view()
    except BaseException as exc:
        await client.aclose()
        if isinstance(exc, TimeoutError):
            why = f"the daemon of `{file}` has not answered within {_GREET_WITHIN_S:g} s"
            hint = "`--alone` does without it, `dynamic-mcp daemon restart` starts it anew"
            raise DaemonError(why, hint=hint) from exc
        if isinstance(exc, Interrupted | OSError):  # nothing but the handshake was sent
            return None
        raise
    return client


class DaemonClient:
    """A session with the daemon. Timeouts and limits on results come from the config of the command."""

    def __init__(self, context: Invocation, config: Config, *, may_ask: bool = False) -> None:
        self._this = context
        self._config = config
        self._inbox = Inbox(context.out, lambda line: self._connection.send(line), may_ask=may_ask)
        self._connection = DaemonConnection(self._inbox.receive)
        self._groups: dict[str, DaemonGroup] = {}

    @property
    def groups(self) -> list[DaemonGroup]:
        return list(self._groups.values())

    @property
    def socket(self) -> str:
        return self._connection.path

    def group(self, name: str) -> DaemonGroup:
        try:
            return self._groups[name]
        except KeyError:
            raise NotFound("group", name, self._groups) from None

    async def open(self, connection: Socket) -> None:
        """Perform the handshake with the daemon. Raises Interrupted if it has just ended, and DaemonError."""
        await self._connection.open(connection, identify(self._config.file), self._this.profile)
        await self.initialize()

    async def aclose(self) -> None:
        await self._inbox.close()
        await self._connection.close()

    async def choose_view(self) -> None:
        """Choose the groups of the config; wait briefly for those that were just added to the file.

        Raises DaemonError if the daemon does not load them.
        """
        options = msgspec.to_builtins(view_options(self._config))
        deadline = asyncio.get_running_loop().time() + _LOAD_WITHIN_S
        while True:
            facts = {each.name: each for each in (await self._exchange(VIEW, options, GroupFactsList)).groups}
            missing = [group.name for group in self._config.groups if group.name not in facts]
            if not missing:
                break
            if asyncio.get_running_loop().time() > deadline:
                why = f"the daemon of `{self._config.file}` has not loaded the group `{missing[0]}`"
                raise DaemonError(why, hint="`dynamic-mcp logs` may say why; `--alone` does without the daemon")
            await asyncio.sleep(_POLL_S)
        self._groups = {each.name: DaemonGroup(self, each, facts[each.name]) for each in self._config.groups}

    async def list_sessions(self) -> SessionList:
        """Return the other sessions of the daemon."""
        return await self._exchange(SESSIONS, {}, SessionList)

    async def open_ui(self) -> str:
        """Have the daemon serve the page; return the URL that its path is below. Raises DynamicMcpError."""
        return (await self._exchange(OPEN_UI, {}, UiAddress)).url

    async def initialize(self) -> Raw:
        return await self.ask("initialize", introduce(self._this.command, self._inbox))

    async def ask(self, method: str, params: Mapping[str, object], *, group: str = "") -> Raw:
        """Return the result of a request. Raises DynamicMcpError, also for an upstream's JSON-RPC error."""
        answer = await self._connection.request(method, encode_params(params))
        if len(answer.error):
            raise decode_error(answer.error, group)
        return answer.result

    async def ask_group(self, method: str, request: CatalogRequest) -> CatalogAnswer:
        """Return the result of a request about a group. Raises DynamicMcpError."""
        return await self._exchange(method, msgspec.to_builtins(request), CatalogAnswer)

    async def _exchange(self, method: str, params: Mapping[str, object], kind: type[_Message]) -> _Message:
        return decode_as(await self.ask(method, params), kind)


class DaemonGroup:
    """One group of the config, as the daemon runs it."""

    def __init__(self, client: DaemonClient, config: GroupConfig, facts: GroupFacts) -> None:
        self.name = config.name
        self.config = config
        self.catalog: Catalog | None = None
        self._client = client
        self._facts = facts

    @property
    def description(self) -> str:
        return self._facts.description

    @property
    def is_ready(self) -> bool:
        return self._facts.is_ready

    def offers(self, feature: str) -> bool:
        """Return whether the config allows this feature."""
        return feature in self._facts.features

    def complaint(self, kinds: Iterable[ListKind]) -> str:
        """Return the reason why these lists are incomplete; empty if they are complete."""
        complaint = None if self.catalog is None else self.catalog.complaint(kinds)
        return self._facts.complaint if complaint is None else complaint

    async def read_catalog(self, kinds: Iterable[ListKind] = (ListKind.TOOLS,)) -> Catalog:
        """Return the catalog of the group; the daemon connects if it is not known. Raises DynamicMcpError."""
        return await self._learn(CATALOG, CatalogRequest(self.name, [kind.name for kind in kinds]))

    async def reread(self) -> Catalog:
        """Fetch the tools again. Raises DynamicMcpError."""
        return await self._learn(REREAD, CatalogRequest(self.name))

    async def ping(self) -> None:
        """Ping the server. Raises DynamicMcpError."""
        await self._client.ask(PING, msgspec.to_builtins(CatalogRequest(self.name)))

    async def _learn(self, method: str, request: CatalogRequest) -> Catalog:
        answer = await self._client.ask_group(method, request)
        self._facts, self.catalog = answer.group, answer.read_catalog()
        return self.catalog
