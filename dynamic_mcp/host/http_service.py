"""An HTTP server in front of a proxy. It can move to another address and keep its sessions."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from dynamic_mcp.config.addresses import Address, TcpAddress, UnixAddress
from dynamic_mcp.config.http import Http
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ListenError
from dynamic_mcp.face.auth.make import ProviderPool
from dynamic_mcp.face.http import limits
from dynamic_mcp.face.http.authenticator import Authenticator, LocalAuthenticator
from dynamic_mcp.face.http.core import HttpFace
from dynamic_mcp.face.http.listen_address import ListenAddress, listen_at, refuse_unsafe, resolve_address
from dynamic_mcp.face.http.options import HttpOptions
from dynamic_mcp.face.http.server import HttpServer
from dynamic_mcp.host.http_certificate import Certificate
from dynamic_mcp.host.http_cluster import ClusterControl
from dynamic_mcp.host.http_face import make_options, tick
from dynamic_mcp.host.http_logins import add_login_pages, find_base_url, make_keeper, use_logins
from dynamic_mcp.host.http_ui import UiPages
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.system.worker import WorkerIdentity

if TYPE_CHECKING:
    from dynamic_mcp.host.systemd import PassedSockets

log = logging.getLogger("dynamic_mcp")

# The time for clients to read their last response.
_FLUSH_WITHIN_S = 1.0
# How long it goes on listening at least where another process goes on, for connections to end with an answer.
_RETIRES_WITHIN_S = 1.0
# The connections of a session: an open stream, and one for requests beside it.
_CONNECTIONS_OF_SESSION = 2
# Descriptors for other files: pipes to servers, logs, databases.
_OTHER_DESCRIPTORS = 128
_FEWEST_CONNECTIONS = 16


class _Listener(Struct, frozen=True):
    """A listening server: its address, the options that requested it, and its certificate."""

    server: HttpServer
    address: Address
    origin: str
    certificate: Certificate | None
    socket_mode: int

    def is_at(self, http: Http) -> bool:
        """Return whether this listener serves these options, given the right certificate."""
        is_secure = self.certificate is not None
        return (self.address, is_secure, self.socket_mode) == (http.listen, http.tls is not None, http.socket_mode)


class HttpService:
    """Serves a proxy over HTTP, with one core for the sessions, whatever address it listens at.

    It may be one of several workers, and `passed` sockets that listen already.
    """

    def __init__(
        self, proxy: Proxy, worker: WorkerIdentity | None = None, passed: PassedSockets | None = None
    ) -> None:
        self._proxy = proxy
        self._worker = worker
        self._passed = passed
        self._http = Http()
        self._options = HttpOptions()
        self._config_file = Path()
        self._providers = ProviderPool()
        self._ui = UiPages(proxy)
        self._authenticator: Authenticator = LocalAuthenticator()
        self._face: HttpFace | None = None
        self._listener: _Listener | None = None
        self._for_workers: HttpServer | None = None  # where other workers pass requests on
        self._replicas = ClusterControl(proxy, worker)
        self._background = TaskSet(log)

    @property
    def url(self) -> str:
        """The URL for clients; empty without a listener."""
        match self._listener:
            case None:
                return ""
            case _Listener(address=UnixAddress()) as listener:
                return str(listener.address)
            case listener:
                return f"{listener.origin}{self._http.path}"

    @property
    def _descriptors_of_client(self) -> int:
        """How many descriptors a client may need: its connection, another to the replica of its session, and the
        request that another worker passes on to this one meanwhile."""
        if self._worker is not None:
            return 3
        return 1 if self._proxy.replicas is None else 2

    async def serve(self, http: Http, config: Config) -> None:
        """Serve with these options from now on. Raises ListenError, which leaves everything unchanged."""
        config_file, max_body_bytes = config.file, config.max_message_bytes
        if self._worker is not None and isinstance(http.listen, TcpAddress) and not http.listen.port:
            raise ListenError("each worker would listen at a port of its own", hint="name a port in `listen`")
        place = await resolve_address(http.listen) if isinstance(http.listen, TcpAddress) else None
        if place is not None and not http.insecure and not http.auth:
            refuse_unsafe(place)
        options = _read_options(http, place, max_body_bytes)
        await self._replicas.open_store(config)
        self._providers.shared_store = self._proxy.shared_store
        keeper = make_keeper(config, self._proxy)
        authenticator = self._providers.make_authenticator(http, config_file, keeper)
        authenticator = add_login_pages(authenticator, http, self._proxy)
        authenticator = self._ui.add(authenticator, config, http, find_base_url(http) or _find_origin(http, place))
        face = self._face or HttpFace(self._proxy, options, authenticator=authenticator)
        if self._face is not None and not authenticator.is_open:  # before the move makes it reachable by others
            face.configure(self._options, authenticator)
        try:
            await self._listen_at(face, http, place)
        except BaseException:
            if self._face is not None:
                face.configure(self._options, self._authenticator)
                await self._replicas.revert_store()
                self._providers.shared_store = self._proxy.shared_store
            else:
                await self._replicas.close()
            await self._providers.keep_only(self._http, self._config_file)
            raise
        face.configure(options, authenticator)
        face.see_tokens_of_peers(is_wanted=keeper is not None)
        use_logins(http, config, self._proxy)
        self._http, self._config_file = http, config_file
        self._options, self._authenticator = options, authenticator
        if self._face is None:
            self._face = face
            self._background.create(tick(face), name="clock of the HTTP server")
        if self._worker is not None and self._for_workers is None:
            self._for_workers = await _listen_for_workers(face, self._worker)
        await self._replicas.apply(face, config)
        servers = [self._for_workers, None if self._listener is None else self._listener.server]
        for server in servers:
            if server is not None:
                set_bounds(server, http, self._descriptors_of_client)
        await self._providers.keep_only(http, config_file)

    async def _listen_at(self, face: HttpFace, http: Http, place: ListenAddress | None) -> None:
        """Listen at the configured address, or keep a listener that is already there. Raises ListenError."""
        listener = self._listener
        if listener is None or not listener.is_at(http):
            self._listener = await self._move(face, http, place)
            self._drain(listener)
        elif listener.certificate is not None and http.tls is not None:
            await asyncio.to_thread(listener.certificate.replace, http.tls)

    def reload_certificate(self) -> None:
        if self._listener is not None and self._listener.certificate is not None and self._http.tls is not None:
            self._background.create(self._reload(self._listener.certificate), name="reload of the certificate")

    async def finish(self, within_s: float) -> None:
        """Start no new session, let calls end within a bound, then end all streams and sessions.

        It keeps listening meanwhile: calls may need answers from clients, and load balancers check its readiness. One
        of several replicas does so for a moment at least, in which balancers give up their connections to it. At a
        socket that was passed, whoever connects meanwhile waits for the next process.
        """
        if self._face is not None:
            goes_on = self._face.cluster is not None or self._passed is not None
            if self._listener is not None and goes_on:
                if self._passed is not None:
                    await self._listener.server.stop_accepting(leaves_waiting=True)
                self._listener.server.retire()
                await asyncio.gather(self._face.drain(within_s), asyncio.sleep(min(within_s, _RETIRES_WITHIN_S)))
            else:
                await self._face.drain(within_s)
        if self._listener is not None:
            await self._listener.server.stop_accepting()
            await self._listener.server.drain(_FLUSH_WITHIN_S)
            self._listener = None
        if self._for_workers is not None:
            await self._for_workers.drain(_FLUSH_WITHIN_S)
        if self._face is not None:
            self._face.close()
        await self._replicas.close()
        self._background.cancel_all()
        await self._background.wait()
        await self._ui.close()
        await self._providers.close()

    @property
    def shutdown_timeout_s(self) -> float:
        return self._http.shutdown_timeout_s

    # --- listening -------------------------------------------------------------------------------------

    async def _move(self, face: HttpFace, http: Http, place: ListenAddress | None) -> _Listener:
        """Listen at another address, beside the old listener unless both need the same port."""
        certificate = None if http.tls is None else await asyncio.to_thread(Certificate, http.tls)
        old = self._listener
        try:
            return await self._open_listener(face, http, place, certificate)
        except OSError as exc:
            if old is None or exc.errno != errno.EADDRINUSE or not _overlaps(old.address, http.listen):
                raise listen_error(http.listen, exc) from exc
        old.server.close()
        try:
            return await self._open_listener(face, http, place, certificate)
        except OSError as exc:
            await self._restore(face, old)
            raise listen_error(http.listen, exc) from exc

    async def _open_listener(
        self, face: HttpFace, http: Http, place: ListenAddress | None, certificate: Certificate | None
    ) -> _Listener:
        """Listen with a new server. Raises OSError."""
        if self._passed is not None:
            self._passed.check(http.listen, () if place is None else place.addresses)
        server = HttpServer(face, shares_port=self._worker is not None, passed=self._passed)
        try:
            origin = await _open(server, http, place, certificate)
        except BaseException:
            await server.drain(0)
            raise
        return _Listener(server, http.listen, origin, certificate, http.socket_mode)

    async def _restore(self, face: HttpFace, old: _Listener) -> None:
        """Listen at the old address again after the new one failed."""
        self._drain(old)
        self._listener = None
        try:
            place = await resolve_address(old.address) if isinstance(old.address, TcpAddress) else None
            self._listener = await self._open_listener(face, self._http, place, old.certificate)
        except (OSError, ListenError) as exc:
            log.error("stopped serving HTTP at `%s`: %s", old.address, exc)  # noqa: TRY400

    def _drain(self, listener: _Listener | None) -> None:
        """Close an old listener after its requests in flight end; its clients reconnect."""
        if listener is not None:
            self._background.create(listener.server.drain(self._http.shutdown_timeout_s), name="end of a listener")

    async def _reload(self, certificate: Certificate) -> None:
        assert self._http.tls is not None
        try:
            await asyncio.to_thread(certificate.replace, self._http.tls)
        except ListenError as exc:
            log.error("the old certificate is still used: %s", exc)  # noqa: TRY400
        else:
            log.info("the certificate `%s` was read again", self._http.tls.cert)


async def _listen_for_workers(face: HttpFace, worker: WorkerIdentity) -> HttpServer:
    """Listen where the other workers pass requests on. Raises ListenError."""
    server, address = HttpServer(face), UnixAddress(worker.socket_of(worker.number))
    try:
        await server.open(address)
    except OSError as exc:
        raise listen_error(address, exc) from exc
    return server


async def _open(server: HttpServer, http: Http, place: ListenAddress | None, certificate: Certificate | None) -> str:
    """Open a server at an address, or at every address of a host name; return its origin."""
    tls = None if certificate is None else certificate.context
    scheme = "http" if tls is None else "https"
    if place is None:
        await server.open(http.listen, tls=tls, unix_mode=http.socket_mode)
        return ""
    return f"{scheme}://{await listen_at(server, place, tls)}"


def _find_origin(http: Http, place: ListenAddress | None) -> str:
    """Return the URL of the address that is listened at; empty if it has none, or any free port."""
    if place is None or not isinstance(http.listen, TcpAddress) or not http.listen.port:
        return ""
    scheme = "http" if http.tls is None else "https"
    return f"{scheme}://{place.list_hosts()[0]}:{http.listen.port}"


def _overlaps(old: Address, new: Address) -> bool:
    """Return whether an old address may block a new one."""
    match old, new:
        case TcpAddress(port=port), TcpAddress(port=other):
            return port == other
        case UnixAddress(path=path), UnixAddress(path=other):
            return path == other
    return False


def _read_options(http: Http, place: ListenAddress | None, max_body_bytes: int) -> HttpOptions:
    own_hosts = ("localhost",) if place is None else place.list_hosts()
    is_any = place is not None and place.is_any
    return make_options(http, max_body_bytes, own_hosts=own_hosts, accepts_any_address=is_any)


def listen_error(address: Address, exc: OSError) -> ListenError:
    """Return the error for an address at which nothing can listen."""
    match exc.errno:
        case errno.EADDRINUSE:
            hint = (
                "choose another with `--http [HOST:]PORT` or `settings.http.listen`; `dynamic-mcp status` shows the"
                " proxies that run"
            )
            return ListenError(f"the address `{address}` is in use", hint=hint)
        case errno.EACCES if isinstance(address, TcpAddress):
            hint = "ports below 1024 are for root; a reverse proxy can pass requests on to another port"
            return ListenError(f"the address `{address}` may not be used by you", hint=hint)
        case number:
            why = os.strerror(number).lower() if number else str(exc)
            return ListenError(f"the address `{address}` cannot be used: {why}")


def set_bounds(server: HttpServer, http: Http, descriptors_of_client: int) -> None:
    """Limit a server's connections to those its sessions need and the system allows."""
    wanted = max(limits.CONNECTIONS, _CONNECTIONS_OF_SESSION * http.max_sessions)
    most = max(_available_descriptors() // descriptors_of_client, _FEWEST_CONNECTIONS)
    server.set_bounds(connections=min(wanted, most), forwarders=http.forwarders)


def _available_descriptors() -> int:
    """Return how many connections may be open, leaving descriptors for servers."""
    if sys.platform != "win32":  # which has no such limit
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit != resource.RLIM_INFINITY:
            return limit - max(limit // 4, _OTHER_DESCRIPTORS)
    return sys.maxsize
