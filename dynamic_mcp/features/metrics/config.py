"""Configures the metrics listener for Prometheus: `settings.metrics`, with its variables resolved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from msgspec.structs import replace

from dynamic_mcp.config.addresses import TcpAddress, UnixAddress
from dynamic_mcp.config.section import Private, Section
from dynamic_mcp.config.substitute import Substitution, Surroundings
from dynamic_mcp.config.types import Address

DEFAULT_PORT = 9464


class Metrics(Section, Private, frozen=True):
    """Metrics for Prometheus, at `/metrics` on an address of their own."""

    shown: ClassVar = ("listen",)
    listen: Annotated[
        Address,
        "The address: `9464`, `127.0.0.1:9464` or `[::1]:9464`. One that other machines can reach needs a `token`."
        " Default: 127.0.0.1:9464.",
    ] = TcpAddress(port=DEFAULT_PORT)
    token: Annotated[
        str | None, "The bearer token that a reader must send. Write `${VARIABLE}`, not the token itself."
    ] = None

    @property
    def address(self) -> TcpAddress:
        """The listener's address; a Unix socket is refused when the config is resolved."""
        assert isinstance(self.listen, TcpAddress)
        return self.listen


def resolve(
    section: Metrics, file: Path, surroundings: Surroundings, *, authenticates: bool
) -> tuple[Metrics | None, list[str]]:
    """Return the metrics settings, with warnings; None if metrics cannot be served, as in every workspace."""
    if surroundings.working_directory is not None:
        return None, []
    texts = Substitution(surroundings.all_variables())
    token = (
        "" if section.token is None else texts.fill(("settings", "metrics", "token"), section.token, is_required=True)
    )
    complaints = [*texts.warnings, *texts.failures]
    if section.token is not None and (texts.failures or not token.strip()):
        complaints.append("settings.metrics: not served, because its `token` is empty")
    elif isinstance(section.listen, UnixAddress):
        complaints.append("settings.metrics: not served: `listen` must be a host and a port")
    elif not token and not _is_loopback(section.listen.host):
        complaints.append("settings.metrics: not served, because other machines can reach it without a `token`")
    else:
        return replace(section, token=token or None), complaints
    return None, complaints


def _is_loopback(host: str) -> bool:
    from ipaddress import ip_address

    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
