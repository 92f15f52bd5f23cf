"""Where a shared store is: the URL of `settings.cluster.store`, read without the client that connects to it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from msgspec import Struct

from dynamic_mcp.config.flaws import FlawError

# By scheme, whether TLS is used.
_SERVERS = {"valkey": False, "redis": False, "valkeys": True, "rediss": True}
_SENTINELS = {f"{scheme}+sentinel": is_secure for scheme, is_secure in _SERVERS.items()}
SCHEMES = (*_SERVERS, "unix", "sqlite", *_SENTINELS)
_TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_SENTINEL_LOGIN = ("sentinel_username", "sentinel_password")
_PORT, _SENTINEL_PORT = 6379, 26379


class StoreAddress(Struct, frozen=True):
    """One server, or the sentinels that know it by its `service`; or, with a `path`, its socket, or a SQLite file."""

    scheme: str
    hosts: tuple[tuple[str, int], ...] = ()
    path: str = ""
    service: str = ""
    database: int = 0
    is_secure: bool = False
    username: str = ""
    password: str = ""
    ca_file: str = ""
    certificate: str = ""
    key_file: str = ""
    sentinel_username: str = ""
    sentinel_password: str = ""

    @property
    def is_file(self) -> bool:
        return self.scheme == "sqlite"

    def __repr__(self) -> str:
        return f"<StoreAddress {self}>"

    def __str__(self) -> str:
        """Return the URL without what is secret."""
        if self.path:
            return f"{self.scheme}://{self.path}"
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        return f"{self.scheme}://{hosts}{self.service and '/' + self.service}/{self.database}"


def parse_address(url: str, folder: Path) -> StoreAddress:
    """Return the address in a URL; files are relative to `folder`. Raises FlawError."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise FlawError(
            f"has no scheme of a store: {_first_part(url)}",
            hint="write `valkey://HOST:6379/0`, `valkeys://…` with TLS, `unix:///PATH`,"
            " `valkey+sentinel://HOST:26379,HOST:26379/SERVICE/0`, or `sqlite:///FILE` for one machine",
        )
    if parts.scheme in ("unix", "sqlite"):
        return _parse_path(parts)
    is_sentinel = parts.scheme in _SENTINELS
    is_secure = (_SENTINELS if is_sentinel else _SERVERS)[parts.scheme]
    login, _, hosts = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    names = [unquote(each) for each in parts.path.split("/") if each]
    if is_sentinel and not names:
        raise FlawError("names no service", hint="write the name that the sentinels know: `…:26379/SERVICE`")
    service = names.pop(0) if is_sentinel else ""
    known = ((*_TLS_FILES,) if is_secure else ()) + (_SENTINEL_LOGIN if is_sentinel else ())
    options = _read_options(parts, known)
    return StoreAddress(
        scheme=parts.scheme,
        hosts=tuple(
            _parse_host(each, _SENTINEL_PORT if is_sentinel else _PORT)
            for each in (hosts.split(",") if is_sentinel else [hosts])
        ),
        service=service,
        database=_parse_database(names),
        is_secure=is_secure,
        username=unquote(username),
        password=unquote(password),
        ca_file=_find_file(options, "ssl_ca_certs", folder),
        certificate=_find_file(options, "ssl_certfile", folder),
        key_file=_find_file(options, "ssl_keyfile", folder),
        sentinel_username=options.get("sentinel_username", ""),
        sentinel_password=options.get("sentinel_password", ""),
    )


def _parse_path(parts: SplitResult) -> StoreAddress:
    login, _, host = parts.netloc.rpartition("@")
    if host or not parts.path.startswith("/") or parts.path.endswith("/"):
        raise FlawError("needs the absolute path of a file", hint=f"write `{parts.scheme}:///PATH`")
    username, _, password = login.partition(":")
    options = _read_options(parts, ("db",) if parts.scheme == "unix" else ())
    return StoreAddress(
        scheme=parts.scheme,
        path=unquote(parts.path),
        database=_parse_database([options["db"]] if "db" in options else []),
        username=unquote(username),
        password=unquote(password),
    )


def _parse_host(written: str, default_port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{written}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host:
        raise FlawError("has no valid host and port", hint="write `HOST:PORT`")
    return host, port or default_port


def _parse_database(names: list[str]) -> int:
    if not names:
        return 0
    if len(names) > 1 or not names[0].isascii() or not names[0].isdigit() or len(names[0]) > 5:
        raise FlawError("must end with the number of a database, or with none", hint="such as `/0`")
    return int(names[0])


def _read_options(parts: SplitResult, known: tuple[str, ...]) -> dict[str, str]:
    if parts.fragment:
        raise FlawError("has a `#`", hint="write `%23` for one in a password")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if not options.keys() <= set(known):  # their names may be a part of a password
        hint = f"known here: {', '.join(f'`{each}`' for each in known)}" if known else "write `%3F` for a `?`"
        raise FlawError("has an unknown option behind its `?`", hint=hint)
    return options


def _find_file(options: dict[str, str], name: str, folder: Path) -> str:
    if name not in options:
        return ""
    file = folder / Path(options[name]).expanduser()
    if not file.is_file():
        raise FlawError(f"`{name}` names no file: {file}")
    return str(file)


def _first_part(url: str) -> str:
    """Return what may be shown of a URL that is none of a store."""
    scheme, separator, _ = url.partition("://")
    return f"`{scheme[:30]}://`" if separator else "it is not a URL"
