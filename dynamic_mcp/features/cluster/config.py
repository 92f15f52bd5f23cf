"""The other replicas of this service: `settings.cluster`, with the variables in it."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec.structs import replace

from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.section import Private, Section, Value
from dynamic_mcp.config.substitute import Substitution, Surroundings
from dynamic_mcp.config.types import Text, check_literal_url
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.features.cluster.store_address import parse_address

if TYPE_CHECKING:
    from dynamic_mcp.config.resolved import Config

_AT = ("settings", "cluster")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")
_SHORTEST_KEY = 32
# Before a URL whose host has an address for each replica.
DNS = "dns+"


def _parse_peers(written: object) -> tuple[str, ...]:
    peers = [written] if isinstance(written, str) else written
    if not isinstance(peers, list) or not peers or not all(isinstance(each, str) and each for each in peers):
        raise FlawError(
            "must be a URL, or a list of URLs", hint='write `"dns+http://service:8080"`, or a URL for each'
        )
    for each in peers:
        check_literal_url(each.removeprefix(DNS))
    return tuple(peers)


Peers = Annotated[
    tuple[str, ...],
    Value(
        _parse_peers,
        schema={
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
            ]
        },
        type_name="a URL, or a list of URLs",
    ),
]


class Cluster(Section, Private, frozen=True):
    """The replicas of one service over HTTP. The id of each session names its replica."""

    shown: ClassVar = ("name", "peers")
    peers: Annotated[
        Peers,
        "Where the replicas are: their URLs, or `dns+http://HOST:PORT` with a host name that has the address of each"
        " one. This replica may be among them.",
    ]
    keys: Annotated[
        tuple[Text, ...],
        "Secrets that all replicas share, 32 characters at least. The first one signs, all verify. Write"
        " `${VARIABLE}`, not the key itself.",
    ]
    name: Annotated[
        str | None,
        "The name of this replica, which no other has: letters, digits and `-`. Default: the host name.",
    ] = None
    store: Annotated[
        Text | None,
        "Where the replicas keep what they share, sealed with the first key: `valkey://HOST:6379/0`, `redis://…`,"
        " `valkeys://…` or `rediss://…` with TLS, `unix:///PATH`, `valkey+sentinel://HOST:26379,HOST:26379/SERVICE`;"
        " or `sqlite:///FILE` for processes of one machine. Needs the extra `cluster`. Default: each replica counts"
        " and remembers by itself.",
    ] = None

    def __post_init__(self) -> None:
        if not self.keys:
            raise FlawError("`keys` must not be empty")

    @property
    def replica(self) -> str:
        """The name of this replica."""
        assert self.name is not None, "`resolve` sets it"
        return self.name


def resolve(
    section: Cluster, file: Path, surroundings: Surroundings, *, authenticates: bool
) -> tuple[Cluster | None, list[str]]:
    """Return the settings with their variables, and warnings; None if they cannot be used, as in every workspace."""
    if surroundings.working_directory is not None:
        return None, []
    texts = Substitution(surroundings.all_variables())
    keys = [texts.fill_secret((*_AT, "keys", i), each) for i, each in enumerate(section.keys)]
    if not texts.failures:
        for i, key in enumerate(keys):
            if len(key) < _SHORTEST_KEY:
                texts.fail((*_AT, "keys", i), f"has fewer than {_SHORTEST_KEY} characters")
    name = _own_name() if section.name is None else texts.fill((*_AT, "name"), section.name, is_required=True)
    if not _NAME.fullmatch(name):
        texts.fail((*_AT, "name"), f"must have letters, digits and `-` only, and not `{name[:70]}`")
    peers = tuple(
        DNS + texts.fill_url((*_AT, "peers"), each.removeprefix(DNS))
        if each.startswith(DNS)
        else texts.fill_url((*_AT, "peers"), each)
        for each in section.peers
    )
    store = None if section.store is None else _resolve_store(section.store, file, surroundings)
    if texts.failures and store is not None:  # what is shared must hold
        where, why = texts.failures[0].split(": ", 1)
        raise ConfigError(str(file), where, why)
    if texts.failures:
        return None, [*texts.warnings, *texts.failures, "settings.cluster: this replica serves alone"]
    return replace(section, name=name, keys=tuple(keys), peers=peers, store=store), texts.warnings


def _resolve_store(written: str, file: Path, surroundings: Surroundings) -> str:
    """Return the URL of the store with its variables. Raises ConfigError: no replica may go on without the others."""
    where = (*_AT, "store")
    texts = Substitution(surroundings.all_variables())
    url = texts.fill(where, written, is_required=True)
    if texts.failures:
        raise ConfigError(str(file), ".".join(where), texts.failures[0].partition(": ")[2])
    try:
        address = parse_address(url, surroundings.directory)
    except FlawError as exc:
        raise ConfigError(str(file), ".".join(where), str(exc), hint=exc.hint) from exc
    if not address.is_file and find_spec("valkey") is None:
        from dynamic_mcp.system.extras import install_hint

        raise ConfigError(
            str(file), ".".join(where), "needs a package that is not installed", hint=install_hint("cluster")
        )
    return url


def _own_name() -> str:
    """Return the host name, in which other characters than letters and digits are `-`."""
    import socket

    name = re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname())
    return name.strip("-")[:63]


def find_store_file(config: Config) -> Path | None:
    """Return the file of the store, if it is one in a file."""
    settings = config.settings_of("cluster", Cluster)
    if settings is None or settings.store is None:
        return None
    address = parse_address(settings.store, config.file.parent)
    from urllib.request import url2pathname  # which knows drives

    return Path(url2pathname(address.path)) if address.is_file else None
