"""The form of `settings.http`, as `form` has it for the rest of the file."""

from typing import Annotated

from msgspec import Meta

from dynamic_mcp.config import http_values
from dynamic_mcp.config.addresses import parse_address
from dynamic_mcp.config.auth_form import Providers
from dynamic_mcp.config.section import Duration, Section

Address = Annotated[str | int | None, parse_address]
SocketMode = Annotated[str, http_values.check_socket_mode]
UrlPath = Annotated[str, http_values.check_path]
RootPath = Annotated[str, http_values.check_root_path]
Hosts = Annotated[list[str], http_values.check_hosts]
Origins = Annotated[list[str], http_values.check_origins]
PublicUrl = Annotated[str, http_values.check_public_url]
Proxies = Annotated[list[str], http_values.check_proxies]


class Tls(Section, frozen=True, kw_only=True):
    """The certificate of an HTTPS server. Both files are read again when the config is reloaded."""

    cert: Annotated[
        Annotated[str, Meta(min_length=1)],
        "The path of a PEM file with the certificate and its chain, relative to this file.",
    ]
    key: Annotated[
        Annotated[str, Meta(min_length=1)],
        "The path of the PEM file with the private key, without a passphrase, relative to this file.",
    ]


class Http(Section, frozen=True):
    """The HTTP server, for clients that connect by URL. `dynamic-mcp serve --http` overrides the address."""

    listen: Annotated[
        Address,
        "The address: `8808`, `127.0.0.1:8808`, `[::1]:8808`, or `unix:/path` for a Unix socket, relative to this"
        " file. Default: 127.0.0.1:8808.",
    ] = None
    socket_mode: Annotated[
        SocketMode | None,
        "The file mode of a Unix socket, such as `0660` for a reverse proxy of the same group. Default: 0600.",
    ] = None
    path: Annotated[UrlPath | None, "The path of the MCP endpoint. Default: /mcp."] = None
    root_path: Annotated[
        RootPath | None,
        "The path under which a reverse proxy serves this server, if it removes it from requests. Default: none.",
    ] = None
    allowed_hosts: Annotated[
        Hosts | None,
        "Further names under which clients reach this server, such as `mcp.example.com`. Default: only the address.",
    ] = None
    allowed_origins: Annotated[
        Origins | None,
        "The origins of web pages that may call this server, such as `https://app.example.com`. Default: none.",
    ] = None
    trusted_proxies: Annotated[
        Proxies | None,
        "The addresses or networks of reverse proxies whose `X-Forwarded-Host` is believed; `unix` means all peers on"
        " the Unix socket. Default: none.",
    ] = None
    public_url: Annotated[
        PublicUrl | None,
        "The URL of the MCP endpoint as clients write it, such as `https://mcp.example.com/mcp`. Its host need not be"
        " among `allowed_hosts`. Needed for `jwt` and `login`. Default: none.",
    ] = None
    auth: Annotated[
        Providers | None,
        "How clients say who they are; the first that recognises a credential decides. Default: everybody who reaches"
        " the address is the local user.",
    ] = None
    tls: Annotated[Tls | None, "Serve HTTPS with this certificate. Default: plain HTTP."] = None
    max_sessions: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        "The maximum number of sessions; further clients are answered 503. Default: 1000.",
    ] = None
    session_timeout: Annotated[Duration, "End a session after this much time without use. Default: 1h."] = None
    max_in_flight: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None,
        "The maximum number of concurrent requests of one session. Default: 256.",
    ] = None
    shutdown_timeout: Annotated[
        Duration,
        "How long requests in flight may take to finish when the server is told to end. Default: 10s.",
    ] = None
    insecure: Annotated[
        bool | None,
        "Listen on an address that other machines can reach, though anybody there can then use the servers."
        " Default: false.",
    ] = None

    def __post_init__(self) -> None:
        """Judge what its members need of each other too. Raises FlawError."""
        super().__post_init__()
        http_values.check_server(self)
