"""Catalogs on disk, so that a start connects to nothing. Unreadable files are set aside and never stop anything.

A file is named by a hash of what the group runs (its program, arguments and own variables, or its URL, headers and
scopes, and the person whose login it is), so another config never meets it. For a workspace, the variables count too
that the config has it inherit. Secrets are in that hash and nowhere else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from dynamic_mcp.config.resolved import Broken, CommandLine, FeatureServer, GroupConfig, Program, Remote, SkillFolders
from dynamic_mcp.groups.catalog import Catalog, decode_catalog, encode_catalog
from dynamic_mcp.groups.offers import Offers, decode_offers, encode_offers
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.file_store import FileStore, prune_folder
from dynamic_mcp.system.text import os_reason
from dynamic_mcp.upstream.handshake import Era

log = logging.getLogger(__name__)

FORM = 2
MAX_FILES = 500
_ERAS: Mapping[str, Era] = {"legacy": "legacy", "modern": "modern"}


class StoredCatalog(Struct, frozen=True):
    """A catalog from disk, and when it was read from the upstream (seconds since 1970).

    `asks` tells that the upstream has asked a client something at least once; `lacks` is the era that it was found
    not to speak, and `offers` what it has offered to which clients.
    """

    catalog: Catalog
    read_at: float
    asks: bool = False
    lacks: Era | None = None
    offers: Offers = Offers()


class CatalogStore:
    """The catalogs in one folder."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._now = now
        self._is_broken = False
        self.on_save: Callable[[GroupConfig, bytes], None] | None = None  # in the thread that saves

    def load(self, config: GroupConfig) -> StoredCatalog | None:
        """Return the stored catalog of a group; None if there is none that can be read."""
        try:
            return self._store(config).load_or_set_aside("the cached catalog")
        except OSError as exc:
            self._complain("read", exc)
            return None

    def age_s(self, kept: StoredCatalog) -> float:
        """Return the age of a catalog in seconds; a timestamp in the future counts as now."""
        return max(0.0, self._now() - kept.read_at)

    def save(
        self,
        config: GroupConfig,
        catalog: Catalog,
        *,
        asks: bool = False,
        lacks: Era | None = None,
        offers: Offers | None = None,
    ) -> None:
        """Store a catalog; without `offers`, the stored ones stay. Never raises OSError."""
        before = self.load(config)
        asks = asks or (before is not None and before.asks)
        offers = offers or (before.offers if before is not None else Offers())
        stored = StoredCatalog(catalog, self._now(), asks, lacks, offers)
        try:
            self._store(config).save(stored)
            prune_folder(self._folder, most_files=MAX_FILES)
        except OSError as exc:
            self._complain("written", exc)
        if self.on_save is not None:
            self.on_save(config, _CatalogCodec(config.name).encode(stored))

    def has(self, config: GroupConfig) -> bool:
        """Return whether there is a catalog of a group."""
        return self._store(config).file.exists()

    def adopt(self, config: GroupConfig, data: bytes) -> None:
        """Store a catalog as `on_save` was given it; one of another version is left out. Never raises OSError."""
        try:
            self._store(config).save(_CatalogCodec(config.name).decode(data))
        except (KeyError, ValueError, TypeError, RecursionError) as exc:
            log.debug("a catalog of group %s is of another version: %s", config.name, exc)
        except OSError as exc:
            self._complain("written", exc)

    def _store(self, config: GroupConfig) -> FileStore[StoredCatalog]:
        return FileStore(self._folder / f"{key(config)}.v{FORM}.json", _CatalogCodec(config.name))

    def _complain(self, action: str, exc: OSError) -> None:
        if not self._is_broken:
            self._is_broken = True
            log.warning("catalogs are not cached: `%s` cannot be %s: %s", self._folder, action, os_reason(exc))


def key(config: GroupConfig) -> str:
    """Return a hash of everything that decides what a group offers."""
    match config.upstream:
        case Program() as program:
            own = sorted((name, program.env.get(name, "")) for name in program.own | program.requested)
            what: object = ["program", program.command, program.args, program.cwd, own]
        case Remote() as remote:
            login = (remote.oauth.client_id, remote.oauth.scopes) if remote.oauth else None
            what = ["remote", remote.kind, remote.url, sorted(remote.headers.items()), login, *_person(remote)]
            if remote.api is not None:
                what = ["api", what, sorted(remote.query.items()), remote.api]
        case CommandLine() as line:
            what = ["command line", line.command, line.pack, line.commands, bool(line.roots)]
        case SkillFolders(folders=folders):
            what = ["skills", folders]
        case FeatureServer(feature=feature, folder=folder):
            what = ["feature", feature, folder]
        case Broken():
            what = ["broken", config.name]
    return sha256(wire.encode(what)).hexdigest()[:40]


def _person(remote: Remote) -> list[list[str]]:
    """Return the user whose login reaches a server that may offer each user something else."""
    return [] if remote.login_of is None else [[remote.login_of.issuer, remote.login_of.subject]]


class _CatalogCodec:
    """Keeps entries byte for byte, which msgspec alone would not do. The group's name is for human readers."""

    def __init__(self, group: str) -> None:
        self._group = group

    def encode(self, value: StoredCatalog) -> bytes:
        whole = {kind: listing for kind, listing in value.catalog.lists.items() if not listing.complaints}
        # what could not be read again is still what it was
        whole |= {
            kind: replace(listing, complaints=(), error=wire.ABSENT)
            for kind, listing in value.catalog.lists.items()
            if listing.has_failed and listing.entries
        }
        return wire.encode(
            {
                "form": FORM,
                "group": self._group,
                "read_at": value.read_at,
                **encode_catalog(replace(value.catalog, lists=whole)),
                "asks": value.asks,
                **({"lacks": value.lacks} if value.lacks else {}),
                **({"offers": encode_offers(value.offers)} if value.offers.digests else {}),
            }
        )

    def decode(self, data: bytes) -> StoredCatalog:
        members = wire.members(data)
        if bytes(members["form"]) != b"%d" % FORM:
            raise ValueError("written by another version")
        read_at, asks = float(bytes(members["read_at"])), bytes(members["asks"]) == b"true"
        lacks = _ERAS.get(wire.text(members.get("lacks")) or "")
        offers = decode_offers(members["offers"]) if "offers" in members else Offers()
        return StoredCatalog(decode_catalog(members), read_at, asks, lacks, offers)
