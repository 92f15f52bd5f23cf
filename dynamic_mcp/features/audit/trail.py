"""The audit log of a running program: what writes it, what decides while that fails, and what looks after it."""

from __future__ import annotations

import itertools
import logging
import os
from functools import cached_property
from pathlib import Path

from dynamic_mcp.features.audit import digest
from dynamic_mcp.features.audit.digest import KeyedDigest
from dynamic_mcp.features.audit.keeper import Keeper, Keeping
from dynamic_mcp.features.audit.log import AuditLog
from dynamic_mcp.features.audit.recorder import Recorder

log = logging.getLogger(__name__)


class Trail:
    """The log in one directory, open until `close`."""

    def __init__(self, directory: Path, keeping: Keeping, *, stops_writes: bool) -> None:
        self.directory = directory
        self._log = AuditLog(directory)
        self._keeper = Keeper(self._log, keeping)
        self.recorder = Recorder(self._log, self._keeper, stops_writes=stops_writes)
        self._prefix = os.urandom(6).hex()
        self._numbers = itertools.count(1)
        self._keeper.start()

    def __repr__(self) -> str:
        return f"<Trail {self._log!r}, {self.recorder!r}>"

    def new_id(self) -> str:
        """Return an id for a line, which no other line has."""
        return f"{self._prefix}-{next(self._numbers):x}"

    @cached_property
    def digest(self) -> KeyedDigest | None:
        """The digests of the log; None if there is no key, because the directory cannot be used."""
        try:
            return KeyedDigest(digest.load_key(self.directory))
        except (OSError, ValueError) as exc:
            log.warning("arguments are recorded without digests: %s", exc)
            return None

    def close(self) -> None:
        """Write what is left, have it reach the disk, and let go of the files."""
        self.recorder.close()
        self._keeper.close()
        try:
            self._log.close()
        except OSError as exc:
            log.warning("the audit log in %s may not be on disk: %s", self.directory, exc)
