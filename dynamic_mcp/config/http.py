"""Resolves `settings.http`: fills in its defaults and the variables in its paths."""

from __future__ import annotations

from typing import TypeVar

from dynamic_mcp.config import form, http_form, values
from dynamic_mcp.config.addresses import Address, TcpAddress, UnixAddress, parse_address
from dynamic_mcp.config.auth_resolve import resolve_provider
from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.resolved import Http, Tls
from dynamic_mcp.config.upstream import Substitution, Surroundings, resolve_path

T = TypeVar("T")
_AT: Keys = ("settings", "http")


def resolve_http(settings: form.Settings, surroundings: Surroundings) -> tuple[Http | None, list[str]]:
    """Resolve the HTTP server, with warnings about it; None if there is none, as in every workspace."""
    if not settings.http or surroundings.working_directory is not None:
        return None, []
    own = settings.http if isinstance(settings.http, http_form.Http) else http_form.Http()
    texts, defaults = Substitution(surroundings.all_variables()), Http()
    http = Http(
        listen=_resolve_address(own, texts, surroundings),
        socket_mode=defaults.socket_mode if own.socket_mode is None else int(own.socket_mode, 8),
        path=_or(own.path, defaults.path),
        root_path=_or(own.root_path, defaults.root_path),
        allowed_hosts=tuple(own.allowed_hosts or ()),
        allowed_origins=tuple(own.allowed_origins or ()),
        trusted_proxies=tuple(own.trusted_proxies or ()),
        public_url=own.public_url,
        auth=tuple(
            resolve_provider(each, number, texts, settings.access) for number, each in enumerate(own.auth or ())
        ),
        tls=_resolve_tls(own.tls, texts, surroundings),
        max_sessions=_or(own.max_sessions, defaults.max_sessions),
        session_timeout_s=_or(values.parse_duration(own.session_timeout), defaults.session_timeout_s),
        max_in_flight=_or(own.max_in_flight, defaults.max_in_flight),
        shutdown_timeout_s=_or(values.parse_duration(own.shutdown_timeout), defaults.shutdown_timeout_s),
        insecure=_or(own.insecure, defaults.insecure),
    )
    return http, [*texts.warnings, *texts.failures]


def _resolve_address(own: http_form.Http, texts: Substitution, surroundings: Surroundings) -> Address:
    match parse_address(own.listen):
        case None:
            return TcpAddress()
        case UnixAddress(path=path):
            return UnixAddress(str(resolve_path(texts.fill((*_AT, "listen"), path), surroundings)))
        case address:
            return address


def _resolve_tls(own: http_form.Tls | None, texts: Substitution, surroundings: Surroundings) -> Tls | None:
    """Return the files of the certificate; if a variable is not set, opening the file fails with its name."""
    if own is None:
        return None
    cert, key = (texts.fill((*_AT, "tls", name), getattr(own, name)) for name in ("cert", "key"))
    return Tls(str(resolve_path(cert, surroundings)), str(resolve_path(key, surroundings)))


def _or(own: T | None, default: T) -> T:
    return default if own is None else own
