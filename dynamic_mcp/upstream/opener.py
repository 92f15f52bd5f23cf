"""Opens links by the kind of the upstream, in one switch. Imported with the first link."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Literal, cast

from msgspec import Struct, structs

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.resolved import (
    ApiDocument,
    Broken,
    CommandLine,
    FeatureServer,
    Grant,
    GroupConfig,
    Home,
    OAuth,
    Program,
    Remote,
    SkillFolders,
)
from dynamic_mcp.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    DynamicMcpError,
    ErrorAnswer,
    HttpError,
    LoginNeeded,
    TimedOut,
    Unreachable,
)
from dynamic_mcp.mcp import wire
from dynamic_mcp.upstream.call import LineTransport
from dynamic_mcp.upstream.handshake import Era, Opened, initialize, lacking
from dynamic_mcp.upstream.link import Link, LinkOwner
from dynamic_mcp.upstream.mask import mask_of
from dynamic_mcp.upstream.stdio import StdioTransport

if TYPE_CHECKING:  # loaded with the first remote server, or the first server in this process
    from dynamic_mcp.oauth.authorization import ServerCredentials
    from dynamic_mcp.oauth.logins import Logins
    from dynamic_mcp.upstream.own_transport import OwnTransport

# Statuses of a server with only the older transport for the first POST (MCP 2025-11-25, basic/transports).
_TRY_OLDER = frozenset({400, 404, 405})
# Statuses with which modern-only servers may answer `initialize`.
_REFUSALS = frozenset(
    (
        *(UNSUPPORTED_VERSION, HEADER_MISMATCH, MISSING_CAPABILITY),
        *(METHOD_NOT_FOUND, INVALID_PARAMS, INVALID_REQUEST),
    )
)
# URLs of servers with only the older transport, since the start.
_OLDER: set[str] = set()

TransportKind = Literal["http", "sse"]
# https://modelcontextprotocol.io/extensions, the authorization extensions.
_BY_GRANT: Mapping[Grant, str] = {
    "client_credentials": "io.modelcontextprotocol/oauth-client-credentials",
    "cross_app": "io.modelcontextprotocol/enterprise-managed-authorization",
}


async def open_link(
    config: GroupConfig,
    listener: LinkOwner,
    hello: ClientInfo,
    *,
    lacks: Era | None = None,
    logins: Callable[[], Logins | None],
) -> Opened:
    """Implement `open.open_link`."""
    if isinstance(config.upstream, Program | Remote) and config.upstream.lookups is not None:
        config = await _look_up(config, config.upstream)
    is_modern_first = lacks != "modern" if hello.revision.is_stateless else lacks == "legacy"
    match config.upstream:
        case Program(home=None) as program:
            return await _open_program(config, program, listener, hello, lacks, is_modern_first=is_modern_first)
        case Program() as program:
            from dynamic_mcp.upstream.home import open_at_home  # where several processes serve one config

            return await open_at_home(
                config.name,
                partial(_open_program, config, program, listener, hello, lacks, is_modern_first=is_modern_first),
            )
        case Remote(api=ApiDocument() as api) as remote:
            return await _open_api(config, remote, api, listener, hello, lacks, logins=logins)
        case Remote() as remote:
            opened_logins = logins()
            authorization = None if opened_logins is None else opened_logins.authorization(config.name, remote)
            hello = declare_login(hello, remote.oauth)
            far = _RemoteServer(config, remote, listener, hello, authorization)
            return await (far.open_modern_first(lacks) if is_modern_first else far.open_legacy_first(lacks))
        case CommandLine() as line:
            return await _open_command_line(config, line, listener, hello, lacks)
        case SkillFolders() as folders:
            return await _open_skills(config, folders, listener, hello, lacks)
        case FeatureServer() as server:
            return await _open_feature(config, server, listener, hello, lacks)
        case Broken(reason=reason):
            raise Unreachable(config.name, reason, final=True)


async def _look_up(config: GroupConfig, upstream: Program | Remote) -> GroupConfig:
    """Return the config with the secrets that programs are asked for; the home of a server asks by itself."""
    if isinstance(upstream, Program) and upstream.home is not None:
        return config
    from dynamic_mcp.upstream.lookups import look_up  # with the first that has them

    return await look_up(config, upstream)


async def _open_program(
    config: GroupConfig,
    program: Program,
    listener: LinkOwner,
    hello: ClientInfo,
    lacks: Era | None,
    *,
    is_modern_first: bool,
) -> Opened:
    if not is_modern_first:
        return await _initialize_program(config, program, listener, hello, lacks)
    # with the first client that asks for it: most programs are greeted
    from dynamic_mcp.upstream import modern_open

    start = partial(_start, config, program, listener)
    link, server = await modern_open.open_program(config, listener, hello, start, lacks=lacks)
    return link, lacking(server.lacks or lacks, server)


async def _initialize_program(
    config: GroupConfig, program: Program, listener: LinkOwner, hello: ClientInfo, lacks: Era | None
) -> Opened:
    link, transport = await _start(config, program, listener)
    try:
        try:
            return link, lacking(lacks, await initialize(link, hello, config))
        except ErrorAnswer as exc:
            if exc.code not in _REFUSALS:
                raise
            from dynamic_mcp.upstream import modern_open  # as above

            opened = await modern_open.open_refusing(config, listener, hello, link, transport)
            if opened is None:
                raise
            return opened
    except BaseException:
        await asyncio.shield(link.close())
        raise


async def _open_skills(
    config: GroupConfig, folders: SkillFolders, listener: LinkOwner, hello: ClientInfo, lacks: Era | None
) -> Opened:
    """Open a link to folders of skills, which are turned into a server here and are the same in both eras."""
    from dynamic_mcp.upstream.skills.transport import SkillTransport  # with the first of them

    return await _greet_own(config, SkillTransport(config.name, folders), listener, hello, lacks)


async def _open_feature(
    config: GroupConfig, server: FeatureServer, listener: LinkOwner, hello: ClientInfo, lacks: Era | None
) -> Opened:
    """Open a link to a server that a feature is in this process, and that is the same in both eras."""
    from dynamic_mcp.features.table import find_transport  # with the first of them

    return await _greet_own(
        config, find_transport(server.feature)(config.name, server.folder), listener, hello, lacks
    )


async def _open_api(
    config: GroupConfig,
    remote: Remote,
    api: ApiDocument,
    listener: LinkOwner,
    hello: ClientInfo,
    lacks: Era | None,
    *,
    logins: Callable[[], Logins | None],
) -> Opened:
    """Open a link to an HTTP service, which is turned into a server here and is the same in both eras."""
    await asyncio.to_thread(import_module, "dynamic_mcp.upstream.openapi.transport")  # with the first of them
    from dynamic_mcp.upstream.openapi.transport import ApiTransport

    opened_logins = logins() if api.has_login else None
    authorization = None if opened_logins is None else opened_logins.authorization(config.name, remote)
    return await _greet_own(config, ApiTransport(config, remote, api, authorization), listener, hello, lacks)


async def _open_command_line(
    config: GroupConfig, line: CommandLine, listener: LinkOwner, hello: ClientInfo, lacks: Era | None
) -> Opened:
    """Open a link to a command line program, which is turned into a server here and is the same in both eras."""
    from dynamic_mcp.upstream.cli.transport import CommandLineTransport  # with the first of them

    return await _greet_own(config, CommandLineTransport(config.name, line), listener, hello, lacks)


async def _greet_own(
    config: GroupConfig, transport: OwnTransport, listener: LinkOwner, hello: ClientInfo, lacks: Era | None
) -> Opened:
    """Open a link to a server in this process."""
    assert not isinstance(config.upstream, Broken)
    link = Link(config.name, transport, listener, mask_of(config.upstream))
    transport.receive, transport.lost = link.receive, link.lose
    transport.fail, transport.left_s = link.fail_request, link.left_s
    try:
        await transport.start()
        return link, lacking(lacks, await initialize(link, hello, config))
    except BaseException:
        await asyncio.shield(link.close())
        raise


async def _start(config: GroupConfig, program: Program, listener: LinkOwner) -> tuple[Link, LineTransport]:
    if program.home is not None:
        return await _reach_home(config, program, program.home, listener)
    transport = StdioTransport(config.name, config.max_message_bytes)
    link = Link(config.name, transport, listener, mask_of(program))
    transport.receive, transport.lost = link.receive, link.lose
    link.pid = await transport.start(program)
    return link, transport


async def _reach_home(
    config: GroupConfig, program: Program, home: Home, listener: LinkOwner
) -> tuple[Link, LineTransport]:
    """Return a link to a program that another process runs."""
    from dynamic_mcp.upstream.home import HomeTransport, LinkToHomeOwner  # where several processes serve one config

    transport = HomeTransport(config.name, config.max_message_bytes)
    link = Link(config.name, transport, listener, mask_of(program))
    transport.receive, transport.lost = link.receive, link.lose
    transport.note_asking = cast(LinkToHomeOwner, listener).note_asking
    await transport.connect(home)
    return link, transport


class _RemoteServer(Struct, frozen=True):
    """The transport and the credentials of one remote server."""

    config: GroupConfig
    remote: Remote
    listener: LinkOwner
    hello: ClientInfo
    authorization: ServerCredentials | None

    async def open_modern_first(self, lacks: Era | None) -> Opened:
        """Open a modern link, or a legacy one if the server is not modern or does not answer in time."""
        if self.remote.kind == "sse":
            return await self._greet("sse")
        try:
            opened = await self._discover()
        except TimedOut:
            opened = None
        if opened is not None:
            return opened[0], lacking(lacks, opened[1])
        return await self._greet_any(lacks="modern")

    async def open_legacy_first(self, lacks: Era | None) -> Opened:
        """Greet a server, or open a modern link if it refuses the greeting."""
        return await self._greet_any(lacks=lacks, may_discover=True)

    async def _greet_any(self, *, lacks: Era | None, may_discover: bool = False) -> Opened:
        match self.remote.kind:
            case "sse":
                link, server = await self._greet("sse")
            case "http":
                link, server = await self._greet_newer(may_discover=may_discover)
            case None:
                link, server = await self._greet_either(may_discover=may_discover)
        return link, lacking(server.lacks or lacks, server)

    async def _greet_either(self, *, may_discover: bool) -> Opened:
        """Detect the transport of a server, as the specification describes; the older one is remembered."""
        url = self.remote.url
        if url in _OLDER:
            try:
                return await self._greet("sse")
            except HttpError:
                _OLDER.remove(url)  # it may have learnt the newer one
        try:
            return await self._greet_newer(may_discover=may_discover)
        except HttpError as exc:
            if exc.status not in _TRY_OLDER:
                raise
            newer = exc
        try:
            opened = await self._greet("sse")
        except (HttpError, TimedOut):
            raise newer from None  # it supports neither, and the first error explains more
        _OLDER.add(url)
        return opened

    async def _greet_newer(self, *, may_discover: bool) -> Opened:
        try:
            return await self._greet("http")
        except (HttpError, ErrorAnswer) as exc:
            if not may_discover or not _may_be_modern(exc):
                raise
            try:
                opened = await self._discover()
            except LoginNeeded:
                raise  # a modern server may refuse the handshake before it looks at the token
            except DynamicMcpError:
                opened = None
            if opened is None:
                raise  # the first error explains more
            return opened[0], lacking("legacy", opened[1])

    async def _greet(self, kind: TransportKind) -> Opened:
        await _import_remote()
        from dynamic_mcp.upstream.remote import connect

        link = await connect(self.config, self.remote, kind, listener=self.listener, authorization=self.authorization)
        try:
            return link, await initialize(link, self.hello, self.config)
        except BaseException:
            await asyncio.shield(link.close())
            raise

    async def _discover(self) -> Opened | None:
        await _import_remote()
        from dynamic_mcp.upstream.modern_open import open_remote

        return await open_remote(self.config, self.remote, self.listener, self.hello, self.authorization)


async def _import_remote() -> None:
    await asyncio.to_thread(import_module, "dynamic_mcp.upstream.remote")  # other calls go on during the import


def _may_be_modern(refusal: HttpError | ErrorAnswer) -> bool:
    """Return whether a modern-only server may refuse `initialize` with this error."""
    if isinstance(refusal, HttpError):
        return refusal.status in _TRY_OLDER
    return refusal.code in _REFUSALS


def declare_login(hello: ClientInfo, oauth: OAuth) -> ClientInfo:
    """Return the introduction of the client, with the extension for the grant of the login, if it has one."""
    name = _BY_GRANT.get(oauth.grant)
    if name is None or len(wire.member(hello.capabilities, "extensions", name)):
        return hello
    try:
        capabilities = wire.with_member(hello.capabilities, {}, "extensions", name)
    except wire.Malformed:  # the server checks the declaration of the client
        return hello
    return structs.replace(hello, capabilities=capabilities)
