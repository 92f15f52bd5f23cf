"""The HTTP server: `settings.http`, with the variables in its paths and secrets substituted."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field
from msgspec.structs import replace

from dynamic_mcp.config.access import Access
from dynamic_mcp.config.addresses import Address as _Address
from dynamic_mcp.config.addresses import TcpAddress, UnixAddress
from dynamic_mcp.config.auth import Forwarded, Jwt, LoginAuth, Providers, resolve_provider
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.section import Everyday, Section, Value
from dynamic_mcp.config.substitute import Substitution, Surroundings, resolve_path
from dynamic_mcp.config.types import (
    Address,
    Duration,
    Hosts,
    Origins,
    Peers,
    PublicUrl,
    RootPath,
    SocketMode,
    Text,
    UrlPath,
)

_AT: Keys = ("settings", "http")
_File = Annotated[str, Value(str, written=Text, type_name="a path")]


class Tls(Section, frozen=True):
    """The certificate of an HTTPS server. Both files are read again when the config is reloaded."""

    cert: Annotated[
        _File,
        "The path of a PEM file with the certificate of an HTTPS server and its chain, relative to the"
        " config. Default: plain HTTP.",
    ]
    key: Annotated[
        _File,
        "The path of the PEM file with the private key, without a passphrase, relative to the config.",
    ]


class Http(Section, frozen=True):
    """The HTTP server, for clients that connect by URL. `dynamic-mcp serve --http` overrides the address."""

    listen: Annotated[
        Address,
        "The address: `8808`, `127.0.0.1:8808`, `[::1]:8808`, or `unix:/path` for a Unix socket, relative to"
        " the config. Default: 127.0.0.1:8808.",
        Everyday(),
    ] = TcpAddress()
    socket_mode: Annotated[
        SocketMode,
        "The file mode of a Unix socket, such as `0660` for a reverse proxy of the same group. Default: 0600.",
    ] = 0o600
    path: Annotated[UrlPath, "The path of the MCP endpoint. Default: /mcp."] = "/mcp"
    root_path: Annotated[
        RootPath,
        "The path under which a reverse proxy serves this server, if it removes it from requests. Default: none.",
    ] = ""
    allowed_hosts: Annotated[
        Hosts,
        "Further host names under which clients reach this server, such as `mcp.example.com`. Default: only"
        " the address.",
    ] = ()
    allowed_origins: Annotated[
        Origins,
        "The origins of web pages that may call this server, such as `https://app.example.com`. Default: none.",
    ] = ()
    trusted_proxies: Annotated[
        Peers,
        "The addresses or networks of reverse proxies whose `X-Forwarded-Host` is trusted; `unix` means every"
        " process that connects to the Unix socket. Default: none.",
    ] = ()
    public_url: Annotated[
        PublicUrl | None,
        "The URL of the MCP endpoint as clients write it, such as `https://mcp.example.com/mcp`. Its host need not be"
        " among `allowed_hosts`. Needed for `jwt` and `login`; a public server card names it. Default: none.",
        Everyday(),
    ] = None
    auth: Annotated[
        Providers,
        "How clients authenticate; the first entry that recognises a credential decides. Default: everyone"
        " who reaches the address is the local user.",
        Everyday(),
    ] = ()
    tls: Annotated[Tls | None, "Serve HTTPS with this certificate. Default: plain HTTP."] = None
    max_sessions: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)],
        "The maximum number of sessions; further clients are answered 503. Default: 1000.",
    ] = 1000
    session_timeout_s: Annotated[Duration, "End a session after this much time without use. Default: 1h."] = field(
        default=3600.0, name="session_timeout"
    )
    max_in_flight: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)],
        "The maximum number of requests of one session at once, to any servers. Default: 256.",
    ] = 256
    shutdown_timeout_s: Annotated[
        Duration,
        "How long running requests may take to finish when the server stops. Default: 10s.",
    ] = field(default=10.0, name="shutdown_timeout")
    insecure: Annotated[
        bool,
        "Listen on an address that other machines can reach without `auth`: everyone there can use the"
        " servers. Default: false.",
    ] = False
    # The profile of clients whose path names none, set on the command line.
    profile: str | None = field(default=None, name="x-profile")

    def __post_init__(self) -> None:
        """Check that the rest of the server provides what the providers need."""
        for each in self.auth:
            if isinstance(each, (Jwt, LoginAuth)) and self.public_url is None:
                hint = 'add `"public_url": "https://mcp.example.com/mcp"`, as clients write it'
                kind = each.__struct_config__.tag
                raise FlawError(f"`{kind}` needs `public_url`, which its tokens are for", hint=hint)
        has_forwarded = any(isinstance(each, Forwarded) for each in self.auth)
        if any(isinstance(each, LoginAuth) and each.oidc is None for each in self.auth) and not has_forwarded:
            hint = "add `oidc` to `login`, or a `forwarded` for what the reverse proxy says"
            raise FlawError("`login` needs a provider that authenticates users: `oidc` or `forwarded`", hint=hint)

    @property
    def forwarders(self) -> tuple[str, ...]:
        """The reverse proxies whose headers are trusted for any purpose."""
        forwarded = (each for each in self.auth if isinstance(each, Forwarded))
        return (*self.trusted_proxies, *(peer for each in forwarded for peer in each.trusted_proxies))


def resolve_http(http: Http, access: Access | None, surroundings: Surroundings) -> tuple[Http, list[str]]:
    """Return the HTTP server with its variables substituted, and warnings about it."""
    texts = Substitution(surroundings.all_variables())
    http = replace(
        http,
        listen=_resolve_address(http.listen, texts, surroundings),
        auth=tuple(resolve_provider(each, number, texts, access) for number, each in enumerate(http.auth)),
        tls=None if http.tls is None else _resolve_tls(http.tls, texts, surroundings),
    )
    return http, [*texts.warnings, *texts.failures]


def _resolve_address(address: _Address, texts: Substitution, surroundings: Surroundings) -> _Address:
    if isinstance(address, UnixAddress):
        return UnixAddress(str(resolve_path(texts.fill((*_AT, "listen"), address.path), surroundings)))
    return address


def _resolve_tls(tls: Tls, texts: Substitution, surroundings: Surroundings) -> Tls:
    """Return the files of the certificate. If a variable is not set, opening the file fails and shows its name."""
    cert, key = (texts.fill((*_AT, "tls", name), getattr(tls, name)) for name in ("cert", "key"))
    return Tls(str(resolve_path(cert, surroundings)), str(resolve_path(key, surroundings)))
