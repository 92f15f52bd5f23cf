"""The folder of calls that wait for a user: one file per call, `ID.json`, written by its proxy and by commands.

A file has the call, a command's decision, and the outcome of the decision; it changes only under a lock. A file
counts only if it is a regular file of this user that other users could not have written. `ApprovalServer` is the
proxy's side, `ApprovalClient` the command's.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import secrets
import stat
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, TypeVar

from msgspec import Struct, structs

from dynamic_mcp.config.secrets import count_hidden, mask_values
from dynamic_mcp.system import file_reader, paths
from dynamic_mcp.system.file_store import FileStore, JsonCodec, Stamp, StoreError, stamp_of

log = logging.getLogger(__name__)

Scope = Literal["once", "hour", "session"]

SCRIPT = "script"
"""The kind of a question about a script; others are those of lists."""
# A call with larger arguments cannot be shown to a user.
MOST_BYTES = 16 << 20
LONGEST_REASON = 1000
_LOCK_WITHIN_S = 5.0
_SUFFIX = ".json"
_LOCK = "lock"
# In the state directory.
FOLDER = "approvals"
# Crockford's base 32: no letter that looks like a digit.
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LOOKALIKES = str.maketrans("ILO", "110")
_ID_LENGTH = 6


class QueuedApproval(Struct, frozen=True, kw_only=True):
    """A call that waits for a user. Times are seconds since 1970; the client gives up at `held_until`.

    `rule` is the rule that asks, and `allowed_by` the one that allows the caller, who has these `roles`, to make the
    call at all; it is empty without access rules. `description` is the tool's own, `notes` are the repairs of the
    arguments, and `offered` lists the scopes that can be approved. `pid` is the proxy's, and `config` its config.
    """

    id: str
    pid: int
    config: str = ""
    since: float = 0.0
    held_until: float = 0.0
    expires: float = 0.0
    subject: str = ""
    issuer: str = ""
    client: str = ""
    group: str = ""
    kind: str = "tool"
    name: str = ""
    access: str = ""
    description: str = ""
    arguments: bytes = b"{}"
    notes: tuple[str, ...] = ()
    rule: str = ""
    roles: tuple[str, ...] = ()
    allowed_by: str = ""
    offered: tuple[Scope, ...] = ("once",)


class ApprovalDecision(Struct, frozen=True, kw_only=True):
    """A user's decision about a call. `arguments` replace those of the call, unless empty."""

    id: str
    verdict: Literal["allow", "deny"]
    scope: Scope = "once"
    reason: str = ""
    by: str = ""
    arguments: bytes = b""


class ApprovalAnswer(Struct, frozen=True, kw_only=True):
    """The outcome of a decision: accepted, refused for a `reason`, or too late because the call has ended.

    A `silent` proxy has not answered in time; the decision does not count then.
    """

    outcome: Literal["taken", "refused", "gone", "silent"]
    reason: str = ""


T = TypeVar("T", QueuedApproval, ApprovalDecision)


class StoredApproval(Struct, frozen=True, kw_only=True):
    """A waiting call and its decision. `nonce` names the deciding command; `is_claimed`: the proxy has read it.

    After a refused decision, the call keeps waiting and can be decided again.
    """

    pending: QueuedApproval
    decision: ApprovalDecision | None = None
    nonce: str = ""
    is_claimed: bool = False
    answer: ApprovalAnswer | None = None

    @property
    def is_open(self) -> bool:
        return self.decision is None or self.is_refused

    @property
    def is_refused(self) -> bool:
        return self.answer is not None and self.answer.outcome == "refused"

    @property
    def is_over(self) -> bool:
        """True if the call no longer waits, and the file only informs the command."""
        return self.answer is not None and not self.is_refused


_CODEC = JsonCodec(StoredApproval, 1)


class ApprovalStore:
    """The folder, as proxies and commands use it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __repr__(self) -> str:
        return f"<ApprovalStore {self._folder}>"

    def ids(self) -> list[str]:
        """Return the ids of all calls; none if there is no folder."""
        stems = [name.removesuffix(_SUFFIX) for name in self._names() if name.endswith(_SUFFIX)]
        return [stem for stem in stems if parse_id(stem) == stem]

    def create(self, pending: QueuedApproval) -> None:
        """Write a new call. Raises OSError, also if it is too large or its id is in use."""
        paths.claim_private_dir(self._folder)
        with self.locked(pending.id):
            if os.path.lexists(self._path(pending.id)):
                raise FileExistsError(errno.EEXIST, "in use", str(self._path(pending.id)))
            self.write(StoredApproval(pending=pending))

    def locked(self, id: str) -> AbstractContextManager[None]:
        """Lock the folder against other writers. Raises OSError."""
        return self._store(id).locked(_LOCK_WITHIN_S)

    def read(self, id: str) -> StoredApproval | None:
        """Return a call; None if there is none, or the file is not valid."""
        try:
            _check_owner(self._path(id).lstat())
            stored = self._store(id).load()
        except FileNotFoundError:
            return None
        except (OSError, StoreError) as exc:
            log.debug("the approval %s cannot be read: %s", id, exc)
            return None
        return stored if stored is not None and stored.pending.id == id else None

    def write(self, stored: StoredApproval) -> None:
        """Replace a call, with the lock. Raises OSError."""
        store = self._store(stored.pending.id)
        if store.file.is_dir():
            store.set_aside()
        decision = None if stored.decision is None else _with_escapes(stored.decision)
        store.save(structs.replace(stored, pending=_with_escapes(stored.pending), decision=decision), durable=False)

    def remove(self, id: str) -> None:
        with contextlib.suppress(OSError):
            file_reader.retry(self._path(id).unlink)

    def touch(self, id: str) -> None:
        with contextlib.suppress(OSError):
            os.utime(self._path(id))

    def stamp(self, id: str) -> Stamp | None:
        """Return a value that changes with the file; None if there is no file."""
        return stamp_of(self._path(id))

    def touched_at(self, id: str) -> float:
        """Return when a call was last written or touched, in seconds since 1970. Raises OSError."""
        return self._path(id).lstat().st_mtime

    def remove_leftovers(self, before: float) -> None:
        """Remove files that are not calls and were left by killed processes before this time."""
        for name in self._names():
            file = self._folder / name
            if name != _LOCK and not name.endswith(_SUFFIX):
                with contextlib.suppress(OSError):
                    status = file.lstat()
                    if stat.S_ISREG(status.st_mode) and status.st_mtime < before:
                        file.unlink()

    def _names(self) -> list[str]:
        try:
            return sorted(file.name for file in self._folder.iterdir())
        except OSError:
            return []

    def _path(self, id: str) -> Path:
        return self._folder / f"{id}{_SUFFIX}"

    def _store(self, id: str) -> FileStore[StoredApproval]:
        return FileStore(self._path(id), _CODEC, lock=self._folder / _LOCK, most_bytes=MOST_BYTES)


def _check_owner(status: os.stat_result) -> None:
    """Raise OSError for a file that could be another user's."""
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    if sys.platform != "win32" and (status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022):
        raise PermissionError(errno.EPERM, "another user could have written it")


def _with_escapes(value: T) -> T:
    """Return a struct whose texts can be encoded as UTF-8, with escapes for other characters."""
    texts = {name: each for name, each in structs.asdict(value).items() if isinstance(each, str)}
    escaped = {name: each.encode("utf-8", "backslashreplace").decode() for name, each in texts.items()}
    return structs.replace(value, **escaped)


# --- ids and JSON --------------------------------------------------------------------------------------


def approvals_dir() -> Path:
    """Return the folder of all waiting calls of this user."""
    return paths.state_dir() / FOLDER


def make_id() -> str:
    """Return a new id, short enough to type."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))


def parse_id(typed: str) -> str:
    """Return a typed id or id prefix in its normal form; empty if it is not one."""
    typed = typed.strip()
    id = typed.upper().translate(_LOOKALIKES) if typed.isascii() else ""
    return id if len(id) <= _ID_LENGTH and set(id) <= set(_ALPHABET) else ""


def to_json(pending: QueuedApproval, now: float, *, reveals: bool = False) -> dict[str, object]:
    """Return a call as JSON, with its age and remaining time; secrets show only their length."""
    fields: dict[str, object] = {name: getattr(pending, name) for name in pending.__struct_fields__}
    times = {"age_s": round(now - pending.since, 1), "expires_in_s": round(pending.expires - now, 1)}
    return {**fields, **times, "arguments": arguments_of(pending, reveals=reveals)}


def arguments_of(pending: QueuedApproval, *, reveals: bool = False) -> object:
    """Return the arguments of a call."""
    value = read_arguments(pending.arguments)
    return value if reveals else mask_values(value, mask=count_hidden)


def read_arguments(arguments: bytes) -> object:
    """Return decoded arguments, or their text if they are not valid JSON."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments.decode("utf-8", "replace")
