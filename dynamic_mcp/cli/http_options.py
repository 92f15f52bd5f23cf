"""The HTTP options of `serve`, as typed and as parsed for the host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from dynamic_mcp.config.addresses import Address, UnixAddress, parse_address
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.http import Tls
from dynamic_mcp.config.types import check_hosts, check_origins, check_root_path
from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.host.http_control import HttpOverrides
from dynamic_mcp.system.shell import format_command

Given = TypeVar("Given")
Taken = TypeVar("Taken")


class HttpWords(Struct, frozen=True):
    """The options of `serve` about HTTP. `address` is None without `--http`, and empty with it alone."""

    address: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    root_path: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    insecure: bool = False
    profile: str | None = None


def parse_http_options(words: HttpWords) -> HttpOverrides | None:
    """Return the overrides of the config; None if no HTTP option is set. Raises InvalidArguments."""
    if words.address is None:
        if words != HttpWords(profile=words.profile):
            raise InvalidArguments(
                f"`{_first_name(words)}` is about HTTP, which is not served",
                hint="`dynamic-mcp serve CONFIG --http` serves it",
            )
        return None
    return HttpOverrides(
        listen=_parse_address(words.address) if words.address else None,
        tls=_parse_tls(words),
        root_path=None if words.root_path is None else _check("--root-path", check_root_path, words.root_path),
        allowed_hosts=tuple(_check("--allowed-host", check_hosts, words.allowed_hosts)),
        allowed_origins=tuple(_check("--allowed-origin", check_origins, words.allowed_origins)),
        insecure=words.insecure,
        profile=words.profile,
    )


def _parse_address(text: str) -> Address | None:
    try:
        address = parse_address(text)
    except FlawError as exc:
        hint = exc.hint
        if text.endswith(".json") or Path(text).is_file():
            hint = f"the config comes first: `{format_command('serve', text)} --http`"
        raise InvalidArguments(f"--http {exc}", hint=hint) from exc
    if isinstance(address, UnixAddress):
        return UnixAddress(str(Path(address.path).absolute()))
    return address


def _parse_tls(words: HttpWords) -> Tls | None:
    if not words.tls_cert and not words.tls_key:
        return None
    if not words.tls_cert or not words.tls_key:
        missing = "--tls-key" if words.tls_cert else "--tls-cert"
        raise InvalidArguments(f"`{missing}` is missing", hint="HTTPS needs a certificate and its key")
    return Tls(str(Path(words.tls_cert).absolute()), str(Path(words.tls_key).absolute()))


def _check(option: str, check: Callable[[Given], Taken], value: Given) -> Taken:
    try:
        return check(value)
    except FlawError as exc:
        raise InvalidArguments(f"{option} {exc}", hint=exc.hint) from exc


def _first_name(words: HttpWords) -> str:
    options = {
        "--tls-cert": words.tls_cert,
        "--tls-key": words.tls_key,
        "--root-path": words.root_path,
        "--allowed-host": words.allowed_hosts,
        "--allowed-origin": words.allowed_origins,
        "--insecure": words.insecure,
    }
    return next(name for name, value in options.items() if value)
